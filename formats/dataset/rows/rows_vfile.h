/* Tokens and columns of rows as parts of virtual files. */
#ifndef MFS_DATASET_ROWS_ROWS_VFILE_H
#define MFS_DATASET_ROWS_ROWS_VFILE_H

#include "formats/dataset/rows/rows.h"
#include "formats/plan/vfile.h"

/* Bytes [off, off+len) of the stream of tokens, which need not begin or end at a token. buf needs no alignment. */
int mfs_rows_read_bytes(const struct mfs_rows *r, uint64_t off, void *buf, size_t len,
			struct mfs_error *err);

/* Tokens [first, first+count) as they are in the stream: runs of source files where rows know them and they
 * are long enough, computed where not. rows must outlive the file. */
int mfs_rows_add_tokens(const struct mfs_rows *r, uint64_t first, uint64_t count,
			struct mfs_vfile *f, struct mfs_error *err);

#endif
