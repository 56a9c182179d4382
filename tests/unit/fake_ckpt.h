/*
 * Checkpoints without files: the tensors that Megatron-core's GPTModel has for given arguments
 * (megatron/core/models/gpt/gpt_model.py), written down here a second time and in Megatron's own
 * terms, so that the families' tables have something to disagree with.
 */
#ifndef MFS_TESTS_FAKE_CKPT_H
#define MFS_TESTS_FAKE_CKPT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt_build.h"
#include "tests/unit/unit.h"

/* Two layers, hidden 64, 4 heads of 16 in 2 groups, padded vocabulary 1024: a llama. */
static inline struct mfs_megatron_args fake_llama(void)
{
	return (struct mfs_megatron_args){
		.num_layers = 2,
		.hidden_size = 64,
		.ffn_hidden_size = 176,
		.num_attention_heads = 4,
		.num_query_groups = 2,
		.kv_channels = 16,
		.seq_length = 128,
		.max_position_embeddings = 256,
		.vocab_size = MFS_ABSENT,
		.padded_vocab_size = 1024,
		.make_vocab_size_divisible_by = 128,
		.tensor_model_parallel_size = 1,
		.norm_epsilon = 1e-5,
		.swiglu = true,
		.position_embedding_type = "rope",
		.rotary_base = 10000,
		.rotary_percent = 1,
		.rope_scaling_factor = 8,
		.rotary_scaling_factor = 1,
		.mscale = 1,
		.beta_fast = 32,
		.beta_slow = 1,
		.original_max_position_embeddings = 4096,
		.window_size = MFS_ABSENT,
		.num_experts = MFS_ABSENT,
		.moe_router_topk = 2,
		.moe_ffn_hidden_size = 176,
		.moe_shared_expert_intermediate_size = MFS_ABSENT,
		.moe_router_score_function = "softmax",
		.moe_router_num_groups = MFS_ABSENT,
		.moe_router_group_topk = MFS_ABSENT,
		.q_lora_rank = MFS_ABSENT,
		.kv_lora_rank = 32,
		.qk_head_dim = 128,
		.qk_pos_emb_head_dim = 64,
		.v_head_dim = 128,
		.init_method_std = 0.02,
		.moe_mlp_glu_interleave_size = MFS_ABSENT,
		.moe_shared_expert_glu_interleave_size = MFS_ABSENT,
	};
}

static inline struct mfs_megatron_args fake_qwen2(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.add_qkv_bias = a.tied = true;
	return a;
}

static inline struct mfs_megatron_args fake_qwen3(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.qk_layernorm = true;
	a.kv_channels = 32;
	return a;
}

static inline struct mfs_megatron_args fake_gpt2(void)
{
	struct mfs_megatron_args a = fake_llama();

	a.layernorm = a.add_bias_linear = a.add_qkv_bias = a.tied = true;
	a.swiglu = false;
	a.position_embedding_type = "learned_absolute";
	a.num_query_groups = 4;
	return a;
}

static inline struct mfs_megatron_args fake_mixtral(void)
{
	static const uint8_t moe[] = {1, 1};
	struct mfs_megatron_args a = fake_llama();

	a.num_experts = 4;
	a.moe_layers = moe;
	a.moe_ffn_hidden_size = 48;
	return a;
}

static inline struct mfs_megatron_args fake_deepseek(void)
{
	static const uint8_t moe[] = {0, 1};
	struct mfs_megatron_args a = fake_mixtral();

	a.moe_layers = moe;
	a.first_dense_layers = 1;
	a.multi_latent_attention = a.qk_layernorm = a.moe_router_enable_expert_bias = true;
	a.num_query_groups = 4;
	a.rope_type = "rope";
	a.q_lora_rank = 32;
	a.kv_lora_rank = 16;
	a.qk_head_dim = a.v_head_dim = 16;
	a.qk_pos_emb_head_dim = 8;
	a.moe_router_score_function = "sigmoid";
	a.moe_shared_expert_intermediate_size = 48;
	return a;
}

static inline struct mfs_megatron_args fake_gpt_oss(void)
{
	static const uint8_t slides[] = {1, 0};
	struct mfs_megatron_args a = fake_mixtral();

	a.swiglu = false;
	a.quick_geglu = a.add_bias_linear = a.learnable_softmax = a.yarn_unrounded = true;
	a.glu_linear_offset = 1;
	a.activation_func_clamp_value = 7;
	a.position_embedding_type = "yarn";
	a.window_size = 128;
	a.window_layers = slides;
	return a;
}

/* A gated delta net in the first layer, attention with output gates in the second. */
static inline struct mfs_megatron_args fake_qwen3_next(void)
{
	static const uint8_t linear[] = {1, 0};
	struct mfs_megatron_args a = fake_mixtral();

	a.zero_centered_gamma = a.qk_layernorm = a.attention_output_gate = true;
	a.moe_shared_expert_intermediate_size = 80;
	a.moe_shared_expert_gate = true;
	a.rotary_percent = 0.25;
	a.linear_layers = linear;
	a.linear_conv_kernel_dim = 3;
	a.linear_key_head_dim = 6;
	a.linear_value_head_dim = 10;
	a.linear_num_key_heads = 2;
	a.linear_num_value_heads = 4;
	return a;
}

/* A layer of each kind, in the order of the letters. */
static inline struct mfs_megatron_args fake_nemotron_h(void)
{
	static const uint8_t moe[] = {0, 0, 0, 1};
	struct mfs_megatron_args a = fake_mixtral();

	a.num_layers = 4;
	a.hybrid_layers = "M*-E";
	a.moe_layers = moe;
	a.swiglu = false;
	a.squared_relu = a.moe_router_enable_expert_bias = true;
	a.position_embedding_type = "none";
	a.moe_router_score_function = "sigmoid";
	a.moe_shared_expert_intermediate_size = 80;
	a.mamba_state_dim = 3;
	a.mamba_head_dim = 6;
	a.mamba_num_groups = 2;
	a.mamba_num_heads = 8;
	return a;
}

/* One pointer per name, as readers give it. */
static inline const char *fake_intern(struct mfs_ckpt *c, const char *name)
{
	for (uint32_t i = c->tensor_count; i-- > 0;)
		if (!strcmp(c->tensors[i].name, name))
			return c->tensors[i].name;
	return mfs_arena_strndup(&c->arena, name, strlen(name));
}

static inline struct mfs_global_tensor *fake_add(struct mfs_ckpt *c, const char *prefix,
						 const char *name, int32_t layer, int32_t expert,
						 int64_t rows, int64_t columns)
{
	struct mfs_global_tensor *t;
	char whole[MFS_CKPT_NAME_SIZE];

	if (!(c->tensor_count & (c->tensor_count - 1)))
		c->tensors = reallocarray(c->tensors, c->tensor_count ? 2 * c->tensor_count : 1,
					  sizeof(*t));
	ck_assert_ptr_nonnull(c->tensors);
	snprintf(whole, sizeof(whole), "%s%s", prefix, name);
	t = &c->tensors[c->tensor_count];
	*t = (struct mfs_global_tensor){.name = fake_intern(c, whole),
					.layer = layer,
					.expert = expert,
					.dtype = MFS_BF16,
					.ndim = columns ? 2 : 1,
					.shape = {(uint64_t)rows, (uint64_t)columns}};
	c->tensor_count++;
	return t;
}

static inline void fake_attention(struct mfs_ckpt *c, const char *p, int32_t l)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = a->hidden_size, heads = a->num_attention_heads, d = a->kv_channels;
	const int64_t gates = a->attention_output_gate ? heads : 0;
	const int64_t qkv = (heads + gates + 2 * a->num_query_groups) * d;

	fake_add(c, p, "self_attention.linear_qkv.weight", l, -1, qkv, h);
	fake_add(c, p, "self_attention.linear_proj.weight", l, -1, h, heads * d);
	if (a->add_bias_linear || a->add_qkv_bias)
		fake_add(c, p, "self_attention.linear_qkv.bias", l, -1, qkv, 0);
	if (a->add_bias_linear)
		fake_add(c, p, "self_attention.linear_proj.bias", l, -1, h, 0);
	if (a->learnable_softmax)
		fake_add(c, p, "self_attention.core_attention.softmax_offset", l, -1, heads, 0);
	if (a->qk_layernorm) {
		fake_add(c, p, "self_attention.q_layernorm.weight", l, -1, d, 0);
		fake_add(c, p, "self_attention.k_layernorm.weight", l, -1, d, 0);
	}
}

static inline void fake_delta_net(struct mfs_ckpt *c, const char *p, int32_t l)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = a->hidden_size, heads = a->linear_num_value_heads;
	const int64_t keys = a->linear_num_key_heads * a->linear_key_head_dim;
	const int64_t values = heads * a->linear_value_head_dim;
	struct mfs_global_tensor *conv;

	fake_add(c, p, "self_attention.in_proj.weight", l, -1, 2 * (keys + values + heads), h);
	conv = fake_add(c, p, "self_attention.conv1d.weight", l, -1, 2 * keys + values, 1);
	conv->ndim = 3;
	conv->shape[2] = (uint64_t)a->linear_conv_kernel_dim;
	fake_add(c, p, "self_attention.A_log", l, -1, heads, 0);
	fake_add(c, p, "self_attention.dt_bias", l, -1, heads, 0);
	fake_add(c, p, "self_attention.out_norm.weight", l, -1, a->linear_value_head_dim, 0);
	fake_add(c, p, "self_attention.out_proj.weight", l, -1, h, values);
}

static inline void fake_mamba(struct mfs_ckpt *c, const char *p, int32_t l)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = a->hidden_size, heads = a->mamba_num_heads;
	const int64_t inner = heads * a->mamba_head_dim;
	const int64_t states = a->mamba_num_groups * a->mamba_state_dim;
	struct mfs_global_tensor *conv;

	fake_add(c, p, "mixer.in_proj.weight", l, -1, 2 * inner + 2 * states + heads, h);
	conv = fake_add(c, p, "mixer.conv1d.weight", l, -1, inner + 2 * states, 1);
	conv->ndim = 3;
	conv->shape[2] = 4;
	fake_add(c, p, "mixer.conv1d.bias", l, -1, inner + 2 * states, 0);
	fake_add(c, p, "mixer.A_log", l, -1, heads, 0);
	fake_add(c, p, "mixer.D", l, -1, heads, 0);
	fake_add(c, p, "mixer.dt_bias", l, -1, heads, 0);
	fake_add(c, p, "mixer.norm.weight", l, -1, inner, 0);
	fake_add(c, p, "mixer.out_proj.weight", l, -1, h, inner);
}

static inline void fake_mla(struct mfs_ckpt *c, const char *p, int32_t l)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = a->hidden_size, n = a->num_attention_heads;
	const int64_t q = n * (a->qk_head_dim + a->qk_pos_emb_head_dim);

	if (a->q_lora_rank == MFS_ABSENT) {
		fake_add(c, p, "self_attention.linear_q_proj.weight", l, -1, q, h);
	} else {
		fake_add(c, p, "self_attention.linear_q_down_proj.weight", l, -1, a->q_lora_rank,
			 h);
		fake_add(c, p, "self_attention.linear_q_up_proj.weight", l, -1, q, a->q_lora_rank);
		fake_add(c, p, "self_attention.q_layernorm.weight", l, -1, a->q_lora_rank, 0);
	}
	fake_add(c, p, "self_attention.linear_kv_down_proj.weight", l, -1,
		 a->kv_lora_rank + a->qk_pos_emb_head_dim, h);
	fake_add(c, p, "self_attention.linear_kv_up_proj.weight", l, -1,
		 n * (a->qk_head_dim + a->v_head_dim), a->kv_lora_rank);
	fake_add(c, p, "self_attention.kv_layernorm.weight", l, -1, a->kv_lora_rank, 0);
	fake_add(c, p, "self_attention.linear_proj.weight", l, -1, h, n * a->v_head_dim);
}

static inline void fake_experts(struct mfs_ckpt *c, const char *p, int32_t l)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = a->hidden_size, f = a->moe_ffn_hidden_size;
	const int64_t shared = a->moe_shared_expert_intermediate_size;
	const int64_t halves = a->squared_relu ? 1 : 2;

	fake_add(c, p, "mlp.router.weight", l, -1, a->num_experts, h);
	if (a->moe_router_enable_expert_bias)
		fake_add(c, p, "mlp.router.expert_bias", l, -1, a->num_experts, 0)->dtype = MFS_F32;
	if (a->add_bias_linear)
		fake_add(c, p, "mlp.router.bias", l, -1, a->num_experts, 0);
	for (int32_t e = 0; e < a->num_experts; e++) {
		fake_add(c, p, "mlp.experts.experts.linear_fc1.weight", l, e, halves * f, h);
		fake_add(c, p, "mlp.experts.experts.linear_fc2.weight", l, e, h, f);
		if (!a->add_bias_linear)
			continue;
		fake_add(c, p, "mlp.experts.experts.linear_fc1.bias", l, e, 2 * f, 0);
		fake_add(c, p, "mlp.experts.experts.linear_fc2.bias", l, e, h, 0);
	}
	if (shared == MFS_ABSENT)
		return;
	fake_add(c, p, "mlp.shared_experts.linear_fc1.weight", l, -1, halves * shared, h);
	fake_add(c, p, "mlp.shared_experts.linear_fc2.weight", l, -1, h, shared);
	if (c->args.moe_shared_expert_gate)
		fake_add(c, p, "mlp.shared_experts.gate_weight", l, -1, 1, h);
}

static inline void fake_mlp(struct mfs_ckpt *c, const char *p, int32_t l)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = a->hidden_size, f = a->ffn_hidden_size, in = a->swiglu ? 2 * f : f;

	fake_add(c, p, "mlp.linear_fc1.weight", l, -1, in, h);
	fake_add(c, p, "mlp.linear_fc2.weight", l, -1, h, f);
	if (a->add_bias_linear) {
		fake_add(c, p, "mlp.linear_fc1.bias", l, -1, in, 0);
		fake_add(c, p, "mlp.linear_fc2.bias", l, -1, h, 0);
	}
}

static inline void fake_norm(struct mfs_ckpt *c, const char *p, const char *name, int32_t l)
{
	char whole[MFS_CKPT_NAME_SIZE];

	snprintf(whole, sizeof(whole), "%s.weight", name);
	fake_add(c, p, whole, l, -1, c->args.hidden_size, 0);
	snprintf(whole, sizeof(whole), "%s.bias", name);
	if (c->args.layernorm)
		fake_add(c, p, whole, l, -1, c->args.hidden_size, 0);
}

/* A layer that is one sublayer. */
static inline void fake_sublayer(struct mfs_ckpt *c, const char *p, int32_t l)
{
	switch (c->args.hybrid_layers[l]) {
	case 'M':
		fake_norm(c, p, "norm", l);
		fake_mamba(c, p, l);
		break;
	case '*':
		fake_norm(c, p, "input_layernorm", l);
		fake_attention(c, p, l);
		break;
	case '-':
		fake_norm(c, p, "pre_mlp_layernorm", l);
		fake_mlp(c, p, l);
		break;
	default:
		fake_norm(c, p, "pre_mlp_layernorm", l);
		fake_experts(c, p, l);
		break;
	}
}

/* like: the layer of the decoder whose kind it is of. */
static inline void fake_layer(struct mfs_ckpt *c, const char *p, int32_t l, int64_t like)
{
	const bool moe = c->args.moe_layers && c->args.moe_layers[like];

	if (c->args.hybrid_layers) {
		fake_sublayer(c, p, l);
		return;
	}
	fake_norm(c, p,
		  c->args.post_norms ? "self_attention.linear_proj.post_layernorm"
				     : "input_layernorm",
		  l);
	if (c->args.linear_layers && c->args.linear_layers[like])
		fake_delta_net(c, p, l);
	else if (c->args.multi_latent_attention)
		fake_mla(c, p, l);
	else
		fake_attention(c, p, l);
	fake_norm(c, p, c->args.post_norms ? "mlp.linear_fc2.post_layernorm" : "pre_mlp_layernorm",
		  l);
	if (moe)
		fake_experts(c, p, l);
	else
		fake_mlp(c, p, l);
}

static inline int fake_order(const void *a, const void *b)
{
	const struct mfs_global_tensor *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	if (!order)
		order = (x->layer > y->layer) - (x->layer < y->layer);
	return order ? order : (x->expert > y->expert) - (x->expert < y->expert);
}

static inline void fake_sort(struct mfs_ckpt *c)
{
	qsort(c->tensors, c->tensor_count, sizeof(*c->tensors), fake_order);
	c->model_count = c->tensor_count;
}

/* Released with fake_release(). */
static inline void fake_ckpt(struct mfs_ckpt *c, const struct mfs_megatron_args *args)
{
	const struct mfs_megatron_args *a = &c->args;
	const int64_t h = args->hidden_size;

	static const struct mfs_ckpt_format format = {.name = "fake", .title = "fake"};

	*c = (struct mfs_ckpt){.dir = "/ckpt/iter_0000001", .format = &format, .args = *args};
	fake_add(c, "embedding.", "word_embeddings.weight", -1, -1, a->padded_vocab_size, h);
	if (!strcmp(a->position_embedding_type, "learned_absolute"))
		fake_add(c, "embedding.", "position_embeddings.weight", -1, -1,
			 a->max_position_embeddings, h);
	for (int32_t l = 0; l < a->num_layers; l++)
		fake_layer(c, "decoder.layers.", l, l);
	for (int32_t k = 0; k < a->mtp_num_layers; k++) {
		fake_add(c, "mtp.layers.", "enorm.weight", k, -1, h, 0);
		fake_add(c, "mtp.layers.", "hnorm.weight", k, -1, h, 0);
		fake_add(c, "mtp.layers.", "eh_proj.weight", k, -1, h, 2 * h);
		fake_add(c, "mtp.layers.", "final_layernorm.weight", k, -1, h, 0);
		fake_layer(c, "mtp.layers.transformer_layer.", k, a->num_layers - 1);
	}
	fake_norm(c, "decoder.", "final_layernorm", -1);
	if (!a->tied)
		fake_add(c, "", "output_layer.weight", -1, -1, a->padded_vocab_size, h);
	fake_sort(c);
}

static inline struct mfs_global_tensor *fake_find(struct mfs_ckpt *c, const char *name,
						  int32_t layer, int32_t expert)
{
	const struct mfs_global_tensor *t = mfs_ckpt_find(c, name, layer, expert);

	ck_assert_msg(t != NULL, "%s: no such tensor", name);
	return (struct mfs_global_tensor *)t;
}

static inline void fake_drop(struct mfs_ckpt *c, struct mfs_global_tensor *t)
{
	*t = c->tensors[--c->tensor_count];
	fake_sort(c);
}

static inline void fake_release(struct mfs_ckpt *c)
{
	free(c->tensors);
	mfs_arena_release(&c->arena);
}

#endif
