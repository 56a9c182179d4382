/*
 * The tensors of an HF view where a layer's experts are stacked (-o stack_experts): a family's
 * [fused] rows say which tensors of each expert become one of all, as classes of transformers 5
 * hold them: "mlp.experts.gate_up_proj" [experts, gates and ups, hidden].
 */
#ifndef MFS_FS_VIEW_STACKED_H
#define MFS_FS_VIEW_STACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/target.h"

struct mfs_arena;
struct mfs_family;
struct mfs_hf_target;
struct mfs_model;

/* A tensor that is shown. */
struct mfs_stacked {
	const struct mfs_target *target;
	const struct mfs_hf_target *like; /* itself, or that of its first expert */
};

/* The tensors of a model in their order; a stack is in the place of its first one. -ENOTSUP: it is
 * not known how the family stacks experts (mfs_stacked_possible()); -ENOMEM. */
int mfs_stacked_list(const struct mfs_model *m, struct mfs_arena *arena, struct mfs_stacked **ret,
		     uint32_t *ret_count, struct mfs_error *err);

/* -ENOTSUP: HF has tensors of each expert of the family, and no names of stacks are known. */
int mfs_stacked_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			 struct mfs_error *err);

/* Makes the box of an expert's tensor, which has so many axes, that of the tensor of all. */
void mfs_stacked_box(struct mfs_box_map *m, unsigned ndim, uint64_t expert);

#endif
