/*
 * What one model-parallel rank holds, in the order in which Megatron's modules register it: the
 * order of a state dict, of named_parameters(), and (reversed) of the distributed optimizer's
 * buffers.
 *
 * Names are those of a module's state dict with the layer numbers of the rank's own pipeline chunk,
 * as legacy files have them; local (megatron.core) and Transformer Engine modules spell some of
 * them differently (megatron/core/models/gpt/gpt_layer_specs.py).
 */
#ifndef MFS_MEGATRON_RANK_H
#define MFS_MEGATRON_RANK_H

#include "formats/ckpt/target.h"
#include "formats/megatron/layout.h"

enum mfs_layer_spec {
	MFS_LAYER_SPEC_LOCAL, /* megatron.core's own modules */
	MFS_LAYER_SPEC_TE,    /* Transformer Engine's */
};

/* What the run used (args.transformer_impl); TE where it does not say. */
enum mfs_layer_spec mfs_layer_spec_of(const struct mfs_ckpt *ckpt);

struct mfs_rank {
	uint32_t tp, pp, ep;
};

struct mfs_module_row;
struct mfs_rank_list;

/* One entry of a rank's state dict. */
struct mfs_rank_tensor {
	struct mfs_target base; /* kind NULL: an _extra_state, whose value is None */
	const struct mfs_rank_list *list;
	const struct mfs_module_row *row;
	const struct mfs_global_tensor *src;
	int32_t layer;	   /* in its chunk; of MTP the depth; -1 outside of layers */
	int32_t expert;	   /* among the rank's; -1 */
	uint8_t split;	   /* enum mfs_tp_split, MFS_TP_AUTO and MFS_TP_GATED resolved */
	bool is_parameter; /* not a buffer (router.expert_bias) */
	bool is_expert;	   /* a routed expert's: another optimizer and other ranks reduce it */
	bool is_copy; /* of the embedding: the tied head of the last stage, the embedding of MTP */
	/* the embedding or its copy that all-reduces keep equal, where there are stages */
	bool is_shared;
};

/* A pipeline chunk: state dict 'model', or 'model0', 'model1', ... */
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
 * layout has been checked; vocab: true rows or 0 (layout.h). Of routed experts and their tensor
 * ranks the rank's own are listed (expert-tensor rank: tp modulo etp). -EINVAL: a tensor that
 * cannot be divided so.
 */
int mfs_rank_list_new(struct mfs_ckpt *ckpt, const struct mfs_layout *layout,
		      const struct mfs_rank *rank, enum mfs_layer_spec spec, uint64_t vocab,
		      struct mfs_rank_list **ret, struct mfs_error *err);
void mfs_rank_list_free(struct mfs_rank_list *list);

/* "decoder.layers.0.mlp.linear_fc1.weight" as the rank's state dict has it; returns the length, as
 * snprintf. Of an _extra_state, too. */
size_t mfs_rank_tensor_name(const struct mfs_rank_tensor *t, char *text, size_t size);

/* The same part of the optimizer's tensor of a parameter. -ENODATA: there is none, named. */
int mfs_rank_state(const struct mfs_rank_tensor *t, enum mfs_state state,
		   struct mfs_rank_tensor *ret, struct mfs_error *err);

/*
 * The checkpoint has what the modules of a GPTModel with its arguments have: every layer and expert
 * has its tensors and those that others of its kind have, each of the shape that they say
 * (model/dims.h), and there is nothing that no module has. To be asked before a model is shown as
 * complete. -ENODATA, -ENOTSUP, -EINVAL: the tensor's name. -EINVAL also where the vocabulary would
 * be padded to multiples that the run's own never was.
 */
int mfs_rank_check(const struct mfs_ckpt *ckpt, enum mfs_layer_spec spec, struct mfs_error *err);

/* Which (tp, ep) pairs have a legacy file at a stage: all that occur among tp x dp ranks, ep and
 * etp counted as parallel_state.py does. i from 0; false behind the last. */
bool mfs_rank_at(const struct mfs_layout *layout, uint32_t i, struct mfs_rank *ret);

/* "mp_rank_01_002_003" (training/checkpointing.py:get_checkpoint_name); returns text. */
const char *mfs_rank_dir_name(const struct mfs_layout *layout, const struct mfs_rank *rank,
			      char text[64]);

#endif
