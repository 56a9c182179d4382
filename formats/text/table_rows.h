/*
 * Rows of a table as JSON lines of some of its columns: {"text": "..."}, one after the other. A
 * file's kind is a row of the list in formats/text/tables/table_text.c.
 */
#ifndef MFS_TEXT_TABLE_ROWS_H
#define MFS_TEXT_TABLE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/io/source.h"

struct mfs_table_want {
	const char *const *columns; /* in the order that they have in a line */
	size_t count;
	/* Integers, booleans, lists and structs are read, too, and columns that are not there are
	 * left out of lines; but one of them must be there. */
	bool any;
};

struct mfs_table_ops {
	const char *name; /* "Parquet" */
	bool (*is)(const uint8_t *first, size_t len);
	/* src and want are copied; what they point to must outlive *ret. -EINVAL: damaged;
	 * -ENODATA: there is no such column; -ENOTSUP: of a type or compression that is not read
	 * here, which is named. */
	int (*open)(const struct mfs_source *src, const struct mfs_table_want *want, void **ret,
		    struct mfs_error *err);
	/* Appends the next row, with a newline. *ret_end: there is none. -EINVAL: damaged; -EFBIG:
	 * the row is longer than 1 GiB; -ENOTSUP, as above. */
	int (*next)(void *table, struct mfs_buf *to, bool *ret_end, struct mfs_error *err);
	void (*free)(void *table); /* NULL: nothing */
};

/* Fails with -ENODATA: a table has none of the columns that are wanted. */
int mfs_table_none(const char *name, const struct mfs_table_want *want, struct mfs_error *err);

/* ---- for kinds: a row on its way to being a line ---- */

#define MFS_TABLE_ROW_MAX (1u << 30) /* bytes */

struct mfs_table_row {
	struct mfs_buf *to;
	size_t start;	  /* of the row, in to */
	const char *name; /* of the file, for messages */
};

/* Appends text as it is; or a string, with its quotes. -EFBIG: the row is longer than
 * MFS_TABLE_ROW_MAX; no bytes are looked at if len is more by itself. */
int mfs_table_row_add(struct mfs_table_row *r, const char *text, struct mfs_error *err);
int mfs_table_row_string(struct mfs_table_row *r, const void *bytes, size_t len,
			 struct mfs_error *err);
/* Appends what stands before the value of a member; first: of its object. */
int mfs_table_row_member(struct mfs_table_row *r, bool first, const char *name,
			 struct mfs_error *err);
int mfs_table_row_int(struct mfs_table_row *r, int64_t value, struct mfs_error *err);
int mfs_table_row_uint(struct mfs_table_row *r, uint64_t value, struct mfs_error *err);

#endif
