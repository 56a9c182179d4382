/* Cuts text into documents. */
#ifndef MFS_FS_PACK_SEPARATOR_H
#define MFS_FS_PACK_SEPARATOR_H

#include <stdbool.h>
#include <stddef.h>

/* What stands after each document; after the last of a file it may be missing. len is not 0. */
struct mfs_separator {
	const char *bytes;
	size_t len;
};

/* The first separator at or after `from` of text; NULL: none. */
const char *mfs_separator_find(const struct mfs_separator *s, const char *from, const char *end);

/* The document at *at, without its separator, and steps after it. False: the text has ended. */
bool mfs_separator_next(const struct mfs_separator *s, const char **at, const char *end,
			const char **ret, size_t *ret_len);

#endif
