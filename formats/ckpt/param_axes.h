/*
 * The parameters of a GPTModel, by their canonical names (ckpt.h): the one table of their axes.
 * Families and the checks of tensors (dims.h) read it
 * (megatron/core/transformer/{attention,multi_latent_attention,mlp}.py, moe/).
 */
#ifndef MFS_CKPT_PARAM_AXES_H
#define MFS_CKPT_PARAM_AXES_H

#include <stdbool.h>

#include "formats/base/nearest.h"
#include "formats/ckpt/dim.h"

enum mfs_scope {
	MFS_SCOPE_BEFORE, /* before the layers */
	MFS_SCOPE_LAYER,  /* in every layer, and in every MTP layer's inner layer */
	MFS_SCOPE_MTP,	  /* in every MTP layer, outside of its inner layer */
	MFS_SCOPE_AFTER,  /* after the layers */
};

struct mfs_param {
	const char *name; /* in a layer: after its number */
	/* of a model without gate halves; those that there are not are MFS_DIM_NONE */
	enum mfs_dim axes[MFS_PARAM_AXES];
	bool norm; /* a weight that zero-centred norms store as weight - 1 */
};

/* Kinds of attention use some names with other shapes. WIDE: grouped queries whose norms
 * are over all heads at once. */
enum mfs_attention { MFS_ATTENTION_GQA, MFS_ATTENTION_WIDE, MFS_ATTENTION_MLA };
enum mfs_attention mfs_attention_kind(bool mla, bool wide);

/* The parameter of that name in a scope, as this kind of attention has it. NULL: there is none. */
const struct mfs_param *mfs_param_find(enum mfs_scope scope, const char *name,
				       enum mfs_attention attention);
/* Tries the names of a scope. */
void mfs_param_nearest(enum mfs_scope scope, enum mfs_attention attention,
		       struct mfs_nearest *near);

/* gated: the rows of fc1 are a gate half and an up half. */
void mfs_param_axes(const struct mfs_param *p, bool gated, enum mfs_dim ret[MFS_PARAM_AXES]);
/* True if a gated model has two halves of it. */
bool mfs_param_is_halved(const struct mfs_param *p);
/* True if there is one per expert. */
bool mfs_param_is_of_experts(const struct mfs_param *p);

#endif
