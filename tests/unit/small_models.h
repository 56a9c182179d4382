/* Small models that between them have all that a layer can be made of, and microbatches for them.
 */
#ifndef MFS_TESTS_UNIT_SMALL_MODELS_H
#define MFS_TESTS_UNIT_SMALL_MODELS_H

#include "formats/base/array.h"
#include "tests/unit/train_model.h"

#define BATCH 2
#define SEQ   12
#define VOCAB 64

/* RMSNorm, RoPE, everything else off. */
static inline struct mft_train_config plain(void)
{
	struct mft_train_config c = {
		.micro_batch_size = BATCH,
		.seq_length = SEQ,
		.model = train_plain_model(),
	};

	c.model.num_layers = 3;
	c.model.hidden_size = 32;
	c.model.ffn_hidden_size = 40;
	c.model.num_attention_heads = c.model.num_query_groups = 4;
	c.model.kv_channels = 8;
	c.model.seq_length = SEQ;
	c.model.max_position_embeddings = SEQ + 4;
	c.model.vocab_size = VOCAB - 3;
	c.model.padded_vocab_size = VOCAB;
	train_config_types(&c, MFS_F32);
	return c;
}

/* GPT-2 and what else uses LayerNorm. */
static inline struct mft_train_config gpt2_like(void)
{
	struct mft_train_config c = plain();

	c.model.layernorm = c.model.zero_centered_gamma = c.model.add_bias_linear = true;
	c.model.position_embedding_type = "learned_absolute";
	c.model.tied = true;
	c.hidden_dropout = 0.1;
	c.attention_dropout = 0.2;
	return c;
}

static inline struct mft_train_config llama_like(void)
{
	struct mft_train_config c = plain();

	c.model.swiglu = c.model.use_rope_scaling = true;
	c.model.num_query_groups = 2;
	c.model.window_size = 7;
	return c;
}

static inline struct mft_train_config qwen_like(void)
{
	struct mft_train_config c = plain();

	c.model.swiglu = c.model.add_qkv_bias = c.model.qk_layernorm = c.model.tied = true;
	c.model.num_query_groups = 1;
	c.model.kv_channels = 12;
	c.attention_dropout = 0.1;
	return c;
}

static inline struct mft_train_config neox_like(void)
{
	struct mft_train_config c = plain();

	c.model.layernorm = c.model.qk_layernorm = c.model.exact_gelu = true;
	c.model.rotary_percent = 0.5;
	c.model.rotary_interleaved = true;
	c.model.rotary_seq_len_interpolation_factor = 2;
	c.apply_query_key_layer_scaling = true;
	return c;
}

static inline struct mft_train_config relu_like(void)
{
	struct mft_train_config c = plain();

	c.model.squared_relu = c.model.zero_centered_gamma = true;
	c.hidden_dropout = 0.3;
	return c;
}

static inline struct mft_train_config geglu_like(void)
{
	struct mft_train_config c = plain();

	c.model.quick_geglu = c.model.add_bias_linear = true;
	c.model.position_embedding_type = "none";
	return c;
}

/* of eight layers at most */
static const uint8_t all_layers[8] = {1, 1, 1, 1, 1, 1, 1, 1};
static const uint8_t later_layers[8] = {0, 1, 1, 1, 1, 1, 1, 1};

static inline void add_experts(struct mft_train_config *c, int64_t experts, int64_t top_k)
{
	c->model.num_experts = experts;
	c->model.moe_router_topk = top_k;
	c->model.moe_layers = all_layers;
	c->model.moe_ffn_hidden_size = 24;
	c->moe_router_bias_update_rate = 0.125;
}

static inline void add_latents(struct mft_train_config *c)
{
	c->model.multi_latent_attention = true;
	c->model.rope_type = "rope";
	c->model.kv_lora_rank = 10;
	c->model.qk_head_dim = 8;
	c->model.qk_pos_emb_head_dim = 4;
	c->model.v_head_dim = 6;
	c->model.rotary_scaling_factor = c->model.mscale = 1;
}

static inline struct mft_train_config mixtral_like(void)
{
	struct mft_train_config c = llama_like();

	add_experts(&c, 4, 2);
	c.moe_aux_loss_coeffs[MFT_AUX_LOSS] = 0.1;
	c.moe_z_loss_coeff = 0.01;
	return c;
}

static inline struct mft_train_config deepseek_like(void)
{
	struct mft_train_config c = plain();

	add_experts(&c, 8, 4);
	add_latents(&c);
	c.model.swiglu = c.model.qk_layernorm = true;
	c.model.moe_layers = later_layers;
	c.model.q_lora_rank = 12;
	c.model.rope_type = "yarn";
	c.model.rotary_scaling_factor = 4;
	c.model.mscale_all_dim = 0.5;
	c.model.beta_fast = 32;
	c.model.beta_slow = 1;
	c.model.original_max_position_embeddings = 8;
	c.model.moe_router_score_function = "sigmoid";
	c.model.moe_router_enable_expert_bias = true;
	c.model.moe_router_num_groups = 4;
	c.model.moe_router_group_topk = 2;
	c.model.moe_router_topk_scaling_factor = 2.5;
	c.model.moe_shared_expert_intermediate_size = 20;
	c.moe_aux_loss_coeffs[MFT_SEQ_AUX_LOSS] = 0.2;
	c.moe_router_dtype = "fp32";
	return c;
}

/* A gate of shared experts, one expert a token, keys and values without norms. */
static inline struct mft_train_config gated_like(void)
{
	struct mft_train_config c = plain();

	add_experts(&c, 5, 1);
	add_latents(&c);
	c.model.layernorm = true;
	c.model.moe_router_pre_softmax = true;
	c.model.moe_shared_expert_intermediate_size = 16;
	c.model.moe_shared_expert_gate = true;
	c.moe_aux_loss_coeffs[MFT_AUX_LOSS] = 0.05;
	c.moe_aux_loss_coeffs[MFT_SEQ_AUX_LOSS] = 0.03;
	c.moe_aux_loss_coeffs[MFT_GLOBAL_AUX_LOSS] = 0.07;
	c.moe_z_loss_coeff = 0.02;
	c.calculate_per_token_loss = true;
	return c;
}

/* Experts that have biases, and a router that has one. */
static inline struct mft_train_config biased_like(void)
{
	struct mft_train_config c = gpt2_like();

	add_experts(&c, 7, 2);
	c.model.swiglu = true;
	c.moe_aux_loss_coeffs[MFT_AUX_LOSS] = 0.1;
	return c;
}

/* One expert of seven a token, with a bias and by a router of more digits. */
static inline struct mft_train_config biased_wide(void)
{
	struct mft_train_config c = plain();

	add_experts(&c, 7, 1);
	c.model.add_bias_linear = c.model.squared_relu = true;
	c.model.moe_layers = later_layers;
	c.model.moe_router_score_function = "sigmoid";
	c.moe_router_dtype = "fp32";
	return c;
}

/* Tokens choose experts alike, each one of them. */
static inline struct mft_train_config alike_like(void)
{
	struct mft_train_config c = plain();

	add_experts(&c, 6, 1);
	c.moe_sinkhorn = true;
	c.moe_z_loss_coeff = 0.01;
	return c;
}

/* Two MTP layers: a tied head, positions, dropout. */
static inline struct mft_train_config gpt2_ahead(void)
{
	struct mft_train_config c = gpt2_like();

	c.model.num_layers = 3;
	c.model.mtp_num_layers = 2;
	c.mtp_loss_scaling_factor = 0.7;
	return c;
}

static inline struct mft_train_config deepseek_ahead(void)
{
	struct mft_train_config c = deepseek_like();

	c.model.mtp_num_layers = 1;
	c.mtp_loss_scaling_factor = 0.3;
	return c;
}

/* Two of three layers have a gated delta net, the other one an output gate. */
static const uint8_t most_layers[8] = {1, 1, 0, 1, 1, 0, 1, 1};

static inline struct mft_train_config qwen_next_like(void)
{
	struct mft_train_config c = plain();

	c.model.swiglu = c.model.zero_centered_gamma = c.model.qk_layernorm = true;
	c.model.attention_output_gate = true;
	c.model.num_query_groups = 2;
	c.model.rotary_percent = 0.5;
	c.model.linear_layers = most_layers;
	c.model.linear_conv_kernel_dim = 4;
	c.model.linear_key_head_dim = 6;
	c.model.linear_value_head_dim = 10;
	c.model.linear_num_key_heads = 2;
	c.model.linear_num_value_heads = 6;
	return c;
}

static struct mft_train_config (*const small_models[])(void) = {
	gpt2_like,	llama_like,   qwen_like,     neox_like,	 relu_like,
	geglu_like,	mixtral_like, deepseek_like, gated_like, gpt2_ahead,
	deepseek_ahead, biased_like,  biased_wide,   alike_like, qwen_next_like,
};
#define SMALL_MODELS ((int)(MFS_ARRAY_SIZE(small_models)))

static inline struct mft_batch *batch_of(int model, bool two_documents, uint64_t seed)
{
	struct mft_batch *b = train_batch_new(BATCH, SEQ, VOCAB - 3, seed);

	if (two_documents)
		train_batch_split(b, BATCH, SEQ, 5);
	train_batch_look_ahead(b, BATCH, SEQ, small_models[model]().model.mtp_num_layers);
	return b;
}

/* Two documents a sequence, in every second model. */
static inline struct mft_batch *batch_for(int model, uint64_t seed)
{
	return batch_of(model, model % 2, seed);
}

#endif
