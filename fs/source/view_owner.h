/*
 * Who has views, for those that show them: an iteration (fs/source/root.h), a dataset (fs/data/data.h). Names of views
 * are relative to it: "hf", "megatron/torch/tp2-pp1", "samples/train-s4096".
 */
#ifndef MFS_FS_SOURCE_VIEW_OWNER_H
#define MFS_FS_SOURCE_VIEW_OWNER_H

#include <stdint.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_held;

struct mfs_view_owner {
	/* The view, valid until it is dropped (fs/view/keeper.h). */
	int (*hold)(void *object, const char *name, struct mfs_held **ret,
		    struct mfs_view **ret_view, struct mfs_error *err);
	/* Whether there is one, by its name: 0, -ENOENT, -EINVAL (impossible). */
	int (*check)(void *object, const char *name, struct mfs_error *err);
	/* What a listing of a directory of views shows, where any possible name is a view. Names live as long
	 * as the owner. */
	int (*list)(void *object, const char *dir, const char *const **ret, uint32_t *ret_count,
		    struct mfs_error *err);
};

extern const struct mfs_view_owner mfs_iteration_views; /* of a struct mfs_iteration */
extern const struct mfs_view_owner mfs_dataset_views;	/* of a struct mfs_dataset */

#endif
