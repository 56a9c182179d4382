/*
 * The sequences of an indexed dataset as rows (rows.h): row i is sequence i, documents of several
 * sequences (sentences) are several rows. A multimodal dataset has a column "mode".
 */
#ifndef MFS_DATASET_ROWS_ROWS_INDEXED_H
#define MFS_DATASET_ROWS_ROWS_INDEXED_H

#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"

/* d must outlive the rows. Where pointers are contiguous this is done at once; else a pass over the
 * lengths keeps a sum for every few rows. Rows that do not lie inside of their .bin are `bad`,
 * which is no error. -EINVAL: an array of the .idx contradicts itself. */
int mfs_rows_indexed(const struct mfs_indexed_dataset *d, struct mfs_rows **ret,
		     struct mfs_error *err);

#endif
