/* Rows with one more token behind each of them, as preprocess_data.py --append-eod writes documents; empty rows
 * have it too. */
#ifndef MFS_DATASET_ROWS_ROWS_EOD_H
#define MFS_DATASET_ROWS_ROWS_EOD_H

#include <stdint.h>

#include "formats/dataset/rows/rows.h"

/* of is taken over, on success. -EINVAL: its dtype cannot hold eod. No token passes through: the file has them
 * without the ones between. */
int mfs_rows_eod(struct mfs_rows *of, int64_t eod, struct mfs_rows **ret, struct mfs_error *err);

#endif
