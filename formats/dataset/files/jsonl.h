/*
 * Rows as JSON lines of token ids, any byte of which can be computed: every token has the same
 * width, and so has what stands around tokens. Spaces fill the width, as JSON allows them between
 * its words.
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
 * A new virtual file; the rows must outlive it. The width is that of the largest id of a
 * vocabulary, or, if vocab_size is 0, of any value of the dtype. Reading a wider id is -EIO.
 * -ENOTSUP: tokens or a column are not integers; -EINVAL: the file would be too large.
 */
int mfs_rows_jsonl(const struct mfs_rows *rows, uint64_t vocab_size, struct mfs_vfile **ret,
		   struct mfs_error *err);

#endif
