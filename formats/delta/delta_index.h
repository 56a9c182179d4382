/*
 * A version of a chain, read: what its index and the headers of its files say. The compressed
 * changes are read when they are applied (delta_apply.h).
 */
#ifndef MFS_DELTA_INDEX_H
#define MFS_DELTA_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/delta/delta_rules.h"
#include "formats/io/source.h"

struct mfs_fileset;

/* How a tensor changes. One that does not change has none. */
struct mfs_delta_change {
	const char *name;
	const char *sum;	 /* of the tensor's bytes after the change */
	struct mfs_source bytes; /* compressed; its name is the file's */
};

struct mfs_delta {
	struct mfs_delta_meta meta;
	struct mfs_fileset *files;	  /* index and weights */
	struct mfs_delta_change *changes; /* in the order of their names */
	uint32_t count;
	struct mfs_arena arena;
};

/* Whether dir has an index that says how changes are encoded. Another directory is a whole model,
 * or is not complete. -EINVAL: the index is no JSON; -ENOENT: there is no index. */
int mfs_delta_looks_like_one(const char *dir, bool *ret, struct mfs_error *err);

/* Opens a version's directory. -ENOENT: there is no index; -ENODATA: a file, a key or a checksum is
 * missing; -ENOTSUP: an encoding, compression or checksum that is not known; -EINVAL: files break
 * the format, or a tensor is there twice. */
int mfs_delta_open(const char *dir, struct mfs_delta **ret, struct mfs_error *err);
void mfs_delta_free(struct mfs_delta *d);

/* NULL: the tensor does not change. */
const struct mfs_delta_change *mfs_delta_find(const struct mfs_delta *d, const char *name);

/* The versions in a directory, ascending, whole models included, whether they are complete or not.
 * The caller frees *ret. -errno: the directory cannot be read. */
int mfs_delta_versions(const char *dir, uint32_t **ret, uint32_t *ret_count, struct mfs_error *err);

/* Whether the names in a directory say that it is a chain. *ret_only: it is one version of a chain,
 * which is its number; 0: it is all of it. */
bool mfs_delta_looks_like_chain(const char *dir, uint32_t *ret_only);

#endif
