/* The features of a model, and the family that it belongs to. */
#ifndef MFS_MODEL_FEATURES_H
#define MFS_MODEL_FEATURES_H

#include "formats/model/families/family.h"

/* Checks that arch is a family's name, model_type or architecture. -EINVAL: it is not; the message
 * lists the families. */
int mfs_family_check_name(const char *arch, struct mfs_error *err);

mfs_features mfs_features_of(const struct mfs_megatron_args *a);

/*
 * arch: a family's name, model_type or architecture. NULL: the family of the HF directory that the
 * arguments come from (hf_family), if it fits; else the first that does.
 * -EINVAL: there is no such family; -ENOTSUP: it does not fit, or none does. The message says why
 * the nearest family does not.
 */
int mfs_family_choose(const struct mfs_megatron_args *a, const char *arch,
		      const struct mfs_family **ret, struct mfs_error *err);

#endif
