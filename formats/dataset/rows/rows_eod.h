/* Rows with one more token at the end of each, as preprocess_data.py --append-eod writes documents.
 * Empty rows get it too. */
#ifndef MFS_DATASET_ROWS_ROWS_EOD_H
#define MFS_DATASET_ROWS_ROWS_EOD_H

#include <stdint.h>

#include "formats/dataset/rows/rows.h"

/* On success the rows own `of`. -EINVAL: its dtype cannot hold eod. There are no extents: no file
 * has the tokens with ends between them. */
int mfs_rows_eod(struct mfs_rows *of, int64_t eod, struct mfs_rows **ret, struct mfs_error *err);

#endif
