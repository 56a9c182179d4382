/*
 * What a chain's first version changes: weight_base.json, next to the versions. The shared format
 * names no base (for an engine it is the model that it was started with), so this file is ours
 * alone, and a chain may be without it.
 */
#ifndef MFS_DELTA_BASE_H
#define MFS_DELTA_BASE_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/delta/delta_rules.h"

#define MFS_DELTA_BASE_FILE "weight_base.json"

struct mfs_delta_base_sum {
	const char *name, *sum;
};

struct mfs_delta_base {
	const char *source; /* a SOURCE: an absolute path or a URL */
	const char *view;   /* "hf"; "": the files of a HuggingFace directory as they are */
	enum mfs_delta_sum_kind sum;
	struct mfs_delta_base_sum *sums; /* in the order of tensors' names */
	uint32_t count;
	struct mfs_arena arena; /* of what was read */
};

/* Writes the file, in place of an old one. */
int mfs_delta_base_write(const char *dir, const struct mfs_delta_base *base, struct mfs_error *err);

/* A relative path in it begins in dir. -ENOENT: the chain has none; -EINVAL: it breaks the format;
 * -ENODATA; -ENOTSUP. */
int mfs_delta_base_read(const char *dir, struct mfs_delta_base *ret, struct mfs_error *err);
/* A zero-filled one may be released. */
void mfs_delta_base_release(struct mfs_delta_base *base);

/* The checksum of a tensor of the base. NULL: it is not known. */
const char *mfs_delta_base_find(const struct mfs_delta_base *base, const char *name);

#endif
