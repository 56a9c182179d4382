/*
 * What one model-parallel rank holds, in the order in which Megatron's modules register it. This is
 * the order of a state dict and of named_parameters(); the distributed optimizer's buffers have it
 * reversed.
 *
 * Names are those of a module's state dict in legacy files, with layer numbers that begin at 0 in
 * each model chunk. Local (megatron.core) and Transformer Engine modules have different names for
 * some tensors (megatron/core/models/gpt/gpt_layer_specs.py).
 */
#ifndef MFS_MEGATRON_RANK_H
#define MFS_MEGATRON_RANK_H

#include "formats/ckpt/target.h"
#include "formats/megatron/layout.h"

enum mfs_layer_spec {
	MFS_LAYER_SPEC_LOCAL, /* megatron.core's own modules */
	MFS_LAYER_SPEC_TE,    /* Transformer Engine's */
};

/* The layer spec of the run (args.transformer_impl); TE if the arguments do not say. */
enum mfs_layer_spec mfs_layer_spec_of(const struct mfs_ckpt *ckpt);

struct mfs_rank {
	uint32_t tp, pp, ep;
	uint32_t
		etp; /* only looked at where the layout's etp does not divide tp: else it follows */
};

struct mfs_module_row;
struct mfs_rank_list;

/* One entry of a rank's state dict. */
struct mfs_rank_tensor {
	struct mfs_target base; /* kind NULL: an _extra_state with the value None */
	const struct mfs_rank_list *list;
	const struct mfs_module_row *row;
	const struct mfs_global_tensor *src;
	int32_t layer;	   /* number in its model chunk; depth of an MTP layer; -1: in no layer */
	int32_t expert;	   /* number among the rank's; -1: of no expert */
	uint8_t split;	   /* enum mfs_tp_split_kind, with MFS_TP_AUTO and MFS_TP_GATED resolved */
	bool is_parameter; /* not a buffer (router.expert_bias) */
	bool is_expert;	   /* of a routed expert, which has its own optimizer and ranks */
	bool is_copy;	   /* copy of the embedding: the last stage's tied head, MTP's embedding */
	bool is_shared;	   /* embedding or copy; all-reduces between stages keep these equal */
};

/* A model chunk: state dict 'model', or 'model0', 'model1', ... */
struct mfs_model_chunk {
	uint32_t first, count; /* tensors */
};

struct mfs_rank_list {
	struct mfs_ckpt *ckpt;
	struct mfs_layout layout;
	struct mfs_rank rank;
	enum mfs_layer_spec spec;
	uint64_t vocab; /* rows of the embedding at this layout */
	struct mfs_rank_tensor *tensors;
	uint32_t count;
	struct mfs_model_chunk *chunks; /* [layout.vpp] */
};

/*
 * layout has been checked. vocab: true rows; 0: not known (layout.h). Only the rank's own routed
 * experts are listed; its expert-tensor rank is tp modulo etp, where that divides tp. -EINVAL: a
 * tensor cannot be divided so.
 */
int mfs_rank_list_new(struct mfs_ckpt *ckpt, const struct mfs_layout *layout,
		      const struct mfs_rank *rank, enum mfs_layer_spec spec, uint64_t vocab,
		      struct mfs_rank_list **ret, struct mfs_error *err);
void mfs_rank_list_free(struct mfs_rank_list *list);

/* The boxes of mfs_target_boxes(), for a target that is shown under another name, or whose src is
 * the same tensor of another checkpoint: rows of the vocabulary that src lacks are zeros. */
int mfs_rank_tensor_boxes(const struct mfs_target *t, mfs_emit_box emit, void *arg);

/* The name in the rank's state dict: "decoder.layers.0.mlp.linear_fc1.weight". Returns the length,
 * as snprintf() does. */
size_t mfs_rank_tensor_name(const struct mfs_rank_tensor *t, char *text, size_t size);

/* The same part of a parameter's optimizer state. -ENODATA: the checkpoint has none, and the
 * message names it; -EINVAL: it has another shape than the parameter. */
int mfs_rank_state(const struct mfs_rank_tensor *t, enum mfs_state state,
		   struct mfs_rank_tensor *ret, struct mfs_error *err);

/*
 * Checks that the checkpoint is a whole GPTModel of its arguments, before a view shows it as one.
 * Every layer and expert has its tensors, and those that others of its kind have. Each has the
 * shape of the arguments (ckpt/dims.h). Errors name the tensor. -ENODATA: it is missing; -EINVAL:
 * it has another shape; -ENOTSUP: no module has it. -EINVAL too if make_vocab_size_divisible_by
 * cannot be what padded the stored embedding.
 */
int mfs_rank_check(const struct mfs_ckpt *ckpt, enum mfs_layer_spec spec, struct mfs_error *err);

/* The i-th rank (from 0) that has a legacy file; false after the last. Each stage has a file for
 * every (tp, ep) that occurs when parallel_state.py numbers tp x dp ranks. */
bool mfs_rank_at(const struct mfs_layout *layout, uint32_t i, struct mfs_rank *ret);

/* "mp_rank_01_002_003" (training/checkpointing.py:get_checkpoint_name); returns text. */
const char *mfs_rank_dir_name(const struct mfs_layout *layout, const struct mfs_rank *rank,
			      char text[64]);

#endif
