/*
 * Rows as JSON lines of token ids, any byte of which can be computed: a token takes the same width whatever its
 * value, padded with spaces, which JSON allows between its words, and so does what stands around tokens.
 *
 *   {"input_ids": [  312,    7, 4085], "mode":    0}
 *   {"input_ids": [], "mode":    0}
 *
 * Row i begins at i * (what a row without tokens takes) + start(i) * (what a token takes).
 */
#ifndef MFS_DATASET_FILES_JSONL_H
#define MFS_DATASET_FILES_JSONL_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/plan/vfile.h"

/*
 * A new virtual file that the rows must outlive. The width is that of the largest id of vocab_size, or if that
 * is 0, of any value of the dtype; an id that it does not hold is -EIO where it is read. -ENOTSUP: tokens or a
 * column are no integers; -EINVAL: the file would be too large.
 */
int mfs_rows_jsonl(const struct mfs_rows *rows, uint64_t vocab_size, struct mfs_vfile **ret,
		   struct mfs_error *err);

#endif
