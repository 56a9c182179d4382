/* What distinguishes a model, and which family it is of. */
#ifndef MFS_MODEL_FEATURES_H
#define MFS_MODEL_FEATURES_H

#include "formats/model/families/family.h"

/* Whether arch names a family: by its own name, model_type or architecture. -EINVAL, with the names
 * there are. */
int mfs_family_check_name(const char *arch, struct mfs_error *err);

uint64_t mfs_features_of(const struct mfs_megatron_args *a);

/*
 * arch: a family's name, model_type or architecture, or NULL: the first family that fits.
 * -EINVAL: no such family; -ENOTSUP: the (nearest) family does not fit, and why.
 */
int mfs_family_choose(const struct mfs_megatron_args *a, const char *arch,
		      const struct mfs_family **ret, struct mfs_error *err);

#endif
