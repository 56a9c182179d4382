/*
 * Rows as JSON lines of their text, which is what load_dataset("json") and preprocess_data.py read:
 *
 *   {"text": "Once upon a time"}
 */
#ifndef MFS_DATASET_FILES_TEXT_LINES_H
#define MFS_DATASET_FILES_TEXT_LINES_H

#include "formats/base/error.h"
#include "formats/dataset/text/row_text.h"
#include "formats/plan/vfile.h"

#define MFS_TEXT_COLUMN "text" /* the member, and the column of other files */

/* A new virtual file of so many rows; the text must outlive it. */
int mfs_text_lines(struct mfs_row_text *text, uint64_t rows, struct mfs_vfile **ret,
		   struct mfs_error *err);

#endif
