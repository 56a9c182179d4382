/* Rows of a file that is a table, as JSON lines (formats/text/table_rows.h). */
#ifndef MFS_TEXT_TABLES_TABLE_TEXT_H
#define MFS_TEXT_TABLES_TABLE_TEXT_H

#include "formats/text/table_rows.h"

#define MFS_TABLE_LOOK 8 /* bytes of a file that show what it is */

/* The kind of the table that begins with these bytes. NULL: it is none. */
const struct mfs_table_ops *mfs_table_ops_of(const uint8_t *first, size_t len);

struct mfs_table_text;

/* Opens a file as a table of a kind. fd, name (for messages) and what want points to must outlive
 * it. Fails as the kind's open(). */
int mfs_table_text_open(const struct mfs_table_ops *kind, int fd, const char *name,
			const struct mfs_table_want *want, struct mfs_table_text **ret,
			struct mfs_error *err);
void mfs_table_text_free(struct mfs_table_text *t); /* NULL: nothing */

/* Appends the next row, with a newline. *ret_end: there is none. Fails as the kind's next(). */
int mfs_table_text_next(struct mfs_table_text *t, struct mfs_buf *to, bool *ret_end,
			struct mfs_error *err);

#endif
