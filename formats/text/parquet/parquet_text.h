/*
 * Rows of Parquet files as JSON lines of some of their columns: {"text": "..."}. A page of each
 * column is in memory at a time, and what its dictionary has.
 *
 * Columns are of byte arrays that are UTF-8, once in a row or missing (null), at the top of the
 * schema. Pages of version 1 and 2; PLAIN, dictionaries, DELTA_LENGTH_BYTE_ARRAY; uncompressed,
 * snappy, gzip and zstd.
 */
#ifndef MFS_TEXT_PARQUET_TEXT_H
#define MFS_TEXT_PARQUET_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

struct mfs_pq_table;

/* fd, name (for messages) and columns must outlive it. -EINVAL: damaged; -ENODATA: there is no such
 * column; -ENOTSUP: of a type, encoding or compression that is not read here, which is named. */
int mfs_pq_table_open(int fd, const char *name, const char *const *columns, size_t count,
		      struct mfs_pq_table **ret, struct mfs_error *err);
void mfs_pq_table_free(struct mfs_pq_table *t); /* NULL: nothing */

/* Appends the next row, with a newline. *ret_end: there is none. -EINVAL: damaged; -EFBIG: the row
 * is longer than 1 GiB; -ENOTSUP, as above. */
int mfs_pq_table_next(struct mfs_pq_table *t, struct mfs_buf *to, bool *ret_end,
		      struct mfs_error *err);

#endif
