/* What names begin with, and what they begin with elsewhere: "language_model.model." and
 * "model.". */
#ifndef MFS_BASE_PREFIXES_H
#define MFS_BASE_PREFIXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_PREFIXES_MAX 64 /* rows of a table */

/* A table of these ends with a row without a from. */
struct mfs_prefix {
	const char *from;
	const char *to; /* NULL: such names have no counterpart */
};

/* The longest prefix of a name. NULL: it has none of these. */
const struct mfs_prefix *mfs_prefix_find(const struct mfs_prefix *table, const char *name);

/* The names that were seen, by a table. It begins as {.table = ...}. */
struct mfs_prefixes {
	const struct mfs_prefix *table;
	const char *owner;    /* whose table it is, for messages */
	uint64_t used;	      /* the i-th bit: the i-th row */
	uint32_t all, others; /* names, and those of them without a counterpart */
};

/* mfs_prefix_find() of a name that counts. */
const struct mfs_prefix *mfs_prefixes_see(struct mfs_prefixes *seen, const char *name);

/* True if two prefixes stand for one, and both were seen: two names may stand for one then. */
bool mfs_prefixes_clash(const struct mfs_prefixes *seen, const struct mfs_prefix **ret_a,
			const struct mfs_prefix **ret_b);

/* Writes the name that stands for this one, cut to size. Returns its full length. */
size_t mfs_prefix_replace(const struct mfs_prefix *prefix, const char *name, char *text,
			  size_t size);

#endif
