/* Tensors of all experts that files have in the place of one of each (families: [fused]). */
#ifndef MFS_MODEL_HF_FUSED_H
#define MFS_MODEL_HF_FUSED_H

#include "formats/model/families/family.h"
#include "formats/model/hf_tensors.h"

/* How the family's file divides a tensor that is called rest in its layer. NULL: it does not. */
const struct mfs_fused *mfs_hf_fused(const struct mfs_family *f, const char *rest);

/*
 * Adds the parts of each expert of t under their own names, where they lie; t is then used. rest:
 * the end of t->name, in its layer. each: [rows, columns] of a part. -EINVAL: t has another shape;
 * -ENOTSUP: it is quantised, there are more experts than MFS_FUSED_EXPERTS, or its shape does not
 * tell whether it is transposed.
 */
#define MFS_FUSED_EXPERTS 65536
int mfs_hf_unfuse(struct mfs_ckpt *ckpt, struct mfs_hf_tensors *set, const struct mfs_fused *row,
		  struct mfs_hf_tensor *t, const char *rest, const uint64_t *each,
		  struct mfs_error *err);

#endif
