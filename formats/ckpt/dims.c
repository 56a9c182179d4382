#include "formats/ckpt/dims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/ckpt/param_axes.h"
#include "formats/ckpt/told.h"

/* Saturates. No tensor has such a size, so the check of its shape fails. */
static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return mfs_mul_overflows(a, b, &product) ? UINT64_MAX : product;
}

/* MFS_ABSENT becomes 0. */
static uint64_t size_of(int64_t argument)
{
	return argument > 0 ? (uint64_t)argument : 0;
}

void mfs_dims(const struct mfs_megatron_args *a, uint64_t padded, uint64_t dims[MFS_DIM_COUNT])
{
	const uint64_t heads = size_of(a->num_attention_heads), head = size_of(a->kv_channels);
	const uint64_t nope = size_of(a->qk_head_dim), rope = size_of(a->qk_pos_emb_head_dim);
	const uint64_t keys =
		times(size_of(a->linear_num_key_heads), size_of(a->linear_key_head_dim));
	const uint64_t value_heads = size_of(a->linear_num_value_heads);
	const uint64_t values = times(value_heads, size_of(a->linear_value_head_dim));
	const uint64_t mixers = size_of(a->mamba_num_heads);
	const uint64_t channels = times(mixers, size_of(a->mamba_head_dim));
	const uint64_t states = times(size_of(a->mamba_num_groups), size_of(a->mamba_state_dim));

	dims[MFS_DIM_NONE] = 0;
	dims[MFS_DIM_ONE] = 1;
	dims[MFS_DIM_HIDDEN] = size_of(a->hidden_size);
	dims[MFS_DIM_HIDDEN_X2] = times(2, dims[MFS_DIM_HIDDEN]);
	dims[MFS_DIM_FFN] = size_of(a->ffn_hidden_size);
	dims[MFS_DIM_FFN_X2] = times(2, dims[MFS_DIM_FFN]);
	dims[MFS_DIM_HEAD_COUNT] = heads;
	dims[MFS_DIM_QKV] = times((a->attention_output_gate ? 2 * heads : heads) +
					  2 * size_of(a->num_query_groups),
				  head);
	dims[MFS_DIM_HEADS] = times(heads, head);
	dims[MFS_DIM_HEAD] = head;
	dims[MFS_DIM_KEYS] = times(size_of(a->num_query_groups), head);
	dims[MFS_DIM_VOCAB] = padded;
	dims[MFS_DIM_POSITIONS] = size_of(a->max_position_embeddings);
	dims[MFS_DIM_EXPERTS] = size_of(a->num_experts);
	dims[MFS_DIM_MOE_FFN] = size_of(a->moe_ffn_hidden_size);
	dims[MFS_DIM_MOE_FFN_X2] = times(2, dims[MFS_DIM_MOE_FFN]);
	dims[MFS_DIM_SHARED_FFN] = size_of(a->moe_shared_expert_intermediate_size);
	dims[MFS_DIM_SHARED_FFN_X2] = times(2, dims[MFS_DIM_SHARED_FFN]);
	dims[MFS_DIM_Q_LORA] = size_of(a->q_lora_rank);
	dims[MFS_DIM_KV_LORA] = size_of(a->kv_lora_rank);
	dims[MFS_DIM_KV_DOWN] = size_of(a->kv_lora_rank) + rope;
	dims[MFS_DIM_MLA_Q] = times(heads, nope + rope);
	dims[MFS_DIM_MLA_KV] = times(heads, nope + size_of(a->v_head_dim));
	dims[MFS_DIM_MLA_OUT] = times(heads, size_of(a->v_head_dim));
	dims[MFS_DIM_LINEAR_IN] = times(2, keys + values + value_heads);
	dims[MFS_DIM_LINEAR_CONV] = 2 * keys + values;
	dims[MFS_DIM_LINEAR_KERNEL] = size_of(a->linear_conv_kernel_dim);
	dims[MFS_DIM_LINEAR_HEAD_COUNT] = value_heads;
	dims[MFS_DIM_LINEAR_HEAD] = size_of(a->linear_value_head_dim);
	dims[MFS_DIM_LINEAR_HEADS] = values;
	dims[MFS_DIM_MAMBA_IN] = times(2, channels + states) + mixers;
	dims[MFS_DIM_MAMBA_CONV] = channels + 2 * states;
	dims[MFS_DIM_MAMBA_KERNEL] = MFS_MAMBA_KERNEL;
	dims[MFS_DIM_MAMBA_HEAD_COUNT] = mixers;
	dims[MFS_DIM_MAMBA_HEADS] = channels;
}

uint64_t mfs_dims_padded_vocab(const struct mfs_ckpt *ckpt)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);
	const uint64_t given = size_of(mfs_ckpt_args(ckpt)->padded_vocab_size);

	return given || !t || !t->ndim ? given : t->shape[0];
}

/* ---- of which tensor ---- */

static const struct mfs_param *find(const struct mfs_megatron_args *a, const char *name)
{
	static const struct {
		const char *prefix;
		enum mfs_scope scope;
	} layers[] = {
		{"decoder.layers.", MFS_SCOPE_LAYER},
		{"mtp.layers.transformer_layer.", MFS_SCOPE_LAYER},
		{"mtp.layers.", MFS_SCOPE_MTP},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(layers); i++) {
		const size_t len = strlen(layers[i].prefix);

		if (!strncmp(name, layers[i].prefix, len))
			return mfs_param_find(
				layers[i].scope, name + len,
				mfs_attention_kind(a->multi_latent_attention, a->qk_norm_wide));
	}
	return mfs_param_find(MFS_SCOPE_BEFORE, name, MFS_ATTENTION_GQA);
}

bool mfs_dims_of(const struct mfs_megatron_args *a, const char *name,
		 enum mfs_dim ret[MFS_PARAM_AXES])
{
	const struct mfs_param *p = find(a, name);

	if (p)
		mfs_param_axes(p, mfs_args_gated(a), ret);
	return p;
}

/* ---- whether it has it ---- */

static const char *const arguments[MFS_DIM_COUNT] = {
	[MFS_DIM_NONE] = "arguments",
	[MFS_DIM_ONE] = "arguments",
	[MFS_DIM_HIDDEN] = "hidden_size",
	[MFS_DIM_HIDDEN_X2] = "hidden_size",
	[MFS_DIM_FFN] = "ffn_hidden_size",
	[MFS_DIM_FFN_X2] = "ffn_hidden_size",
	[MFS_DIM_HEAD_COUNT] = "num_attention_heads",
	[MFS_DIM_QKV] = "num_attention_heads, num_query_groups and kv_channels",
	[MFS_DIM_HEADS] = "num_attention_heads and kv_channels",
	[MFS_DIM_HEAD] = "kv_channels",
	[MFS_DIM_KEYS] = "num_query_groups and kv_channels",
	[MFS_DIM_VOCAB] = "padded_vocab_size",
	[MFS_DIM_POSITIONS] = "max_position_embeddings",
	[MFS_DIM_EXPERTS] = "num_experts",
	[MFS_DIM_MOE_FFN] = "moe_ffn_hidden_size",
	[MFS_DIM_MOE_FFN_X2] = "moe_ffn_hidden_size",
	[MFS_DIM_SHARED_FFN] = "moe_shared_expert_intermediate_size",
	[MFS_DIM_SHARED_FFN_X2] = "moe_shared_expert_intermediate_size",
	[MFS_DIM_Q_LORA] = "q_lora_rank",
	[MFS_DIM_KV_LORA] = "kv_lora_rank",
	[MFS_DIM_KV_DOWN] = "kv_lora_rank and qk_pos_emb_head_dim",
	[MFS_DIM_MLA_Q] = "num_attention_heads, qk_head_dim and qk_pos_emb_head_dim",
	[MFS_DIM_MLA_KV] = "num_attention_heads, qk_head_dim and v_head_dim",
	[MFS_DIM_LINEAR_IN] = "linear_num_key_heads, linear_key_head_dim, linear_num_value_heads "
			      "and linear_value_head_dim",
	[MFS_DIM_LINEAR_CONV] = "linear_num_key_heads, linear_key_head_dim, "
				"linear_num_value_heads and linear_value_head_dim",
	[MFS_DIM_LINEAR_KERNEL] = "linear_conv_kernel_dim",
	[MFS_DIM_LINEAR_HEAD_COUNT] = "linear_num_value_heads",
	[MFS_DIM_LINEAR_HEAD] = "linear_value_head_dim",
	[MFS_DIM_LINEAR_HEADS] = "linear_num_value_heads and linear_value_head_dim",
	[MFS_DIM_MAMBA_IN] = "mamba_num_heads, mamba_head_dim, mamba_num_groups and "
			     "mamba_state_dim",
	[MFS_DIM_MAMBA_CONV] = "mamba_num_heads, mamba_head_dim, mamba_num_groups and "
			       "mamba_state_dim",
	[MFS_DIM_MAMBA_KERNEL] = "kind of layer",
	[MFS_DIM_MAMBA_HEAD_COUNT] = "mamba_num_heads",
	[MFS_DIM_MAMBA_HEADS] = "mamba_num_heads and mamba_head_dim",
	[MFS_DIM_MLA_OUT] = "num_attention_heads and v_head_dim",
};

/* Who says so: the run's arguments, or a config.json in their place. Returns text. */
static const char *whose(const struct mfs_ckpt *ckpt, char *text, size_t size)
{
	const char *by = mfs_ckpt_told_by(ckpt);
	const size_t len = strlen(mfs_ckpt_dir(ckpt));

	if (by && !strncmp(by, mfs_ckpt_dir(ckpt), len) && by[len] == '/')
		by += len + 1;
	if (by)
		snprintf(text, size, "%.300s/config.json's", by);
	else
		snprintf(text, size, "the run's");
	return text;
}

int mfs_dims_check(const struct mfs_ckpt *ckpt, const uint64_t dims[MFS_DIM_COUNT],
		   const struct mfs_global_tensor *t, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE], want[64], found[128], who[320];
	uint64_t expected[MFS_PARAM_AXES];
	enum mfs_dim axes[MFS_PARAM_AXES];
	unsigned ndim, wrong = 0;

	if (!mfs_dims_of(mfs_ckpt_args(ckpt), t->name, axes))
		return 0;
	ndim = mfs_param_ndim(axes);
	for (unsigned i = 0; i < ndim; i++)
		expected[i] = dims[axes[i]];
	if (t->ndim == ndim && !memcmp(t->shape, expected, ndim * sizeof(*expected)))
		return 0;
	while (t->ndim == ndim && t->shape[wrong] == expected[wrong])
		wrong++;
	return mfs_fail(err, -EINVAL, "%s: tensor '%s' is %s, but by %s %s it should be %s",
			mfs_ckpt_dir(ckpt), mfs_global_tensor_name(t, name, sizeof(name)),
			mfs_shape_text(t->shape, t->ndim, found, sizeof(found)),
			whose(ckpt, who, sizeof(who)), arguments[axes[wrong]],
			mfs_shape_text(expected, ndim, want, sizeof(want)));
}
