/*
 * The arguments of a run, with types. They come from the pickled argparse.Namespace `args` of a
 * checkpoint (megatron/training/arguments.py), or from another source of them (args_source.h). Only
 * those are read that a reader of weights needs.
 *
 * An argument that is absent gets a default. It is the default of the Megatron releases that did
 * not save the argument, which may differ from the newest release.
 */
#ifndef MFS_ARGS_MEGATRON_ARGS_H
#define MFS_ARGS_MEGATRON_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/args/args_source.h"
#include "formats/base/absent.h"
#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/torch/pickle.h"

/* Weights that a model can have, 16 of a layer and 3 of an expert: 128 layers with 1024 experts are
 * within it. Each is a record, whatever its size, and a few numbers in a file can ask for any. */
#define MFS_MAX_WEIGHTS 400000

/*
 * The factor of Llama 3's rotary scaling. Releases of Megatron up to core 0.19 read
 * --rope-scaling-factor and do not pass it to the model, whose own default this is
 * (gpt_builders.py, training/argument_utils.py: gpt_config_from_args,
 * core/models/gpt/gpt_model.py). Their main branch passes it since NVIDIA/Megatron-LM pull request
 * 6306, and forks did before. Nothing in a checkpoint says which of them trained it. So a model has
 * this factor whatever the arguments say, unless the person who names a reference (-o ref=) says
 * another.
 */
#define MFS_ROPE_SCALING_FACTOR 8.0

/* Maximal update parametrization (core/transformer/transformer_config.py: use_mup): what a model of
 * another width than the one whose rates were found multiplies. Without it all are 1. */
struct mfs_mup {
	bool on;
	double width;		  /* hidden_size / mup_base_hidden_size */
	double embedding, output; /* of what goes in, and of logits */
	double attention;	  /* of scores, in the place of one over the root of kv_channels */
};

/* A member for each row of fields.h, which says what it means. */
struct mfs_megatron_args {
#define MFS_ARGS_OF_INT(member)	   int64_t member;
#define MFS_ARGS_OF_REAL(member)   double member;
#define MFS_ARGS_OF_FLAG(member)   bool member;
#define MFS_ARGS_OF_TEXT(member)   const char *member;
#define MFS_ARGS_OF_LAYERS(member) const uint8_t *member;
#define MFS_ARGS_OF_TEXTS(member)  const char *const *member;
#define MFS_ARGS_OF_PAIR(member)   int64_t member[2];
#define MFS_ARGS_OF_MUP(member)	   struct mfs_mup member;
#define ARG(type, member, ...)	   MFS_ARGS_OF_##type(member)
#include "formats/args/fields.h"
};

/*
 * Reads the arguments of a source. Strings are put into arena. -ENODATA names an argument that is
 * missing and has no default. -EINVAL names one that has the wrong type or an impossible value.
 */
int mfs_args_read(const struct mfs_args_source *source, struct mfs_arena *arena,
		  struct mfs_megatron_args *ret, struct mfs_error *err);

/* Like mfs_args_read(), of the value under 'args' of a state. -EINVAL: also if it is no
 * Namespace. */
int mfs_megatron_args_read(const struct mfs_pickle *doc, mfs_value args, struct mfs_arena *arena,
			   struct mfs_megatron_args *ret, struct mfs_error *err);

/*
 * Corrects what was read from the arguments of a run before core, or of the legacy model: there
 * openai_gelu counts, and a run that has no argument bias_gelu_fusion has no fused GELU
 * (megatron/model/transformer.py at v1.0 and v2.0: ParallelMLP).
 */
void mfs_megatron_args_before_core(const struct mfs_pickle *doc, mfs_value args,
				   struct mfs_megatron_args *a);

/*
 * The size of the vocabulary before it was padded, if the run recorded it; else 0. padded: rows
 * that are stored. Only some tokenizers use the argument vocab_size. If padding it does not give
 * the rows that are stored, it was not used, and the result is 0. NullTokenizer adds a row for the
 * end of documents until core 0.17 (core/tokenizers/text/libraries/null_tokenizer.py).
 */
uint64_t mfs_args_true_vocab(const struct mfs_megatron_args *a, uint64_t padded);

/* True if the layer, counted from 0, has experts. An MTP layer is of the kind of the last layer
 * (gpt_layer_specs.py: get_gpt_mtp_block_spec). */
static inline bool mfs_args_is_moe(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->moe_layers && a->moe_layers[layer];
}

/* True if experimental_attention_variant says gated delta net, under its first name or its
 * second (core 0.20). NULL: no such argument. */
bool mfs_args_is_delta_net(const char *variant);

/* True if the layer, counted from 0, has linear attention. */
static inline bool mfs_args_is_linear(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->linear_layers && a->linear_layers[layer];
}

/* What a layer of a hybrid model is. Others are attention and an MLP each. */
enum mfs_hybrid_kind {
	MFS_HYBRID_MAMBA = 'M',
	MFS_HYBRID_ATTENTION = '*',
	MFS_HYBRID_MLA = '+', /* these two in the blocks of a GPTModel alone */
	MFS_HYBRID_DELTA_NET = 'G',
	MFS_HYBRID_MLP = '-',
	MFS_HYBRID_MOE = 'E',
};

/* True if the layer, counted from 0, is a Mamba-2 mixer. */
static inline bool mfs_args_is_mamba(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->hybrid_layers && a->hybrid_layers[layer] == MFS_HYBRID_MAMBA;
}

/* True if it has attention of any kind. */
static inline bool mfs_args_has_attention(const struct mfs_megatron_args *a, int64_t layer)
{
	return !a->hybrid_layers || a->hybrid_layers[layer] == MFS_HYBRID_ATTENTION;
}

/* True if it has an MLP, or experts. */
static inline bool mfs_args_has_mlp(const struct mfs_megatron_args *a, int64_t layer)
{
	return !a->hybrid_layers || a->hybrid_layers[layer] == MFS_HYBRID_MLP ||
	       a->hybrid_layers[layer] == MFS_HYBRID_MOE;
}

/* True if some layers have experts and others have none. */
static inline bool mfs_args_layers_differ(const struct mfs_megatron_args *a)
{
	bool dense = false;

	for (int64_t i = 0; a->moe_layers && i < a->num_layers; i++)
		dense |= !a->moe_layers[i];
	return dense;
}

/* True if linear_fc1 has a gate half and an up half. */
static inline bool mfs_args_gated(const struct mfs_megatron_args *a)
{
	return a->swiglu || a->quick_geglu || a->geglu;
}

/* The number of weights that MFS_MAX_WEIGHTS limits. Layers and experts are below 2^31. */
int64_t mfs_megatron_args_weights(const struct mfs_megatron_args *a);

#endif
