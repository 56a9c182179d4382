/*
 * Views that an iteration cannot have, as far as that is known without building them: the family that no HF model has,
 * arguments and modules that Megatron views do not cover, a reference that is missing. They are not listed; a file
 * beside those that are says why.
 */
#ifndef MFS_FS_VIEW_WHY_NOT_H
#define MFS_FS_VIEW_WHY_NOT_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/access.h"

#define MFS_WHY_NOT_FILE "why-not.txt"
#define MFS_WHY_NOT_VIEW                                                                           \
	"why-not" /* a view with that file alone, whose directory is the iteration's */

struct mfs_ckpt;
struct mfs_view;
struct mfs_view_options;

struct mfs_why_not {
	char *hf, *megatron;	       /* sentences; NULL: there is that view, or are those */
	struct mfs_access_fold access; /* as readable as a view of the checkpoint is */
};

/* Reads nothing but ref's config.json. -ENOMEM. */
int mfs_why_not_find(struct mfs_ckpt *ckpt, const struct mfs_view_options *opt,
		     struct mfs_why_not *ret);
void mfs_why_not_release(struct mfs_why_not *w);

/* At least one is lacking. The file has a line for each, "hf: sentence"; mtime_ns is its time. */
int mfs_why_not_view(const struct mfs_why_not *w, int64_t mtime_ns, struct mfs_view **ret,
		     struct mfs_error *err);

#endif
