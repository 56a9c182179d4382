/* config.json as arguments: formats/model/hf_args.h. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/model/hf_config.h"
#include "formats/model/features.h"
#include "formats/model/hf_args.h"
#include "tests/unit/fake_ckpt.h"

static struct mfs_error err;
static struct mfs_arena arena;
static const struct mfs_family *family, *whole;

static int parse(const char *text, struct mfs_megatron_args *ret)
{
	return mfs_hf_args_parse(text, strlen(text), "config.json", NULL, &arena, ret, &family,
				 &whole, &err);
}

/* A config.json in which every ' stands for ". */
static const char *quoted(const char *text)
{
	static char out[4096];
	size_t len = strlen(text);

	ck_assert_uint_lt(len, sizeof(out));
	for (size_t i = 0; i <= len; i++)
		out[i] = text[i] == '\'' ? '"' : text[i];
	return out;
}

static struct mfs_megatron_args accepted(const char *text)
{
	struct mfs_megatron_args a;

	unit_ok(parse(quoted(text), &a), &err);
	return a;
}

/* ---- arguments, written as config.json by hf_config.c, and read again ---- */

static void same_moe(const struct mfs_megatron_args *a, const struct mfs_megatron_args *b)
{
	ck_assert_int_eq(a->num_experts, b->num_experts);
	if (a->num_experts == MFS_ABSENT) {
		ck_assert_ptr_null(b->moe_layers);
		return;
	}
	ck_assert_int_eq(a->moe_router_topk, b->moe_router_topk);
	ck_assert_int_eq(a->moe_ffn_hidden_size, b->moe_ffn_hidden_size);
	ck_assert_int_eq(a->moe_shared_expert_intermediate_size,
			 b->moe_shared_expert_intermediate_size);
	ck_assert_int_eq(a->moe_router_num_groups, b->moe_router_num_groups);
	ck_assert_int_eq(a->moe_router_group_topk, b->moe_router_group_topk);
	ck_assert_str_eq(a->moe_router_score_function, b->moe_router_score_function);
	ck_assert_int_eq(a->first_dense_layers, b->first_dense_layers);
	ck_assert_mem_eq(a->moe_layers, b->moe_layers, (size_t)a->num_layers);
}

static void same_mla(const struct mfs_megatron_args *a, const struct mfs_megatron_args *b)
{
	ck_assert_int_eq(a->q_lora_rank, b->q_lora_rank);
	ck_assert_int_eq(a->kv_lora_rank, b->kv_lora_rank);
	ck_assert_int_eq(a->qk_head_dim, b->qk_head_dim);
	ck_assert_int_eq(a->qk_pos_emb_head_dim, b->qk_pos_emb_head_dim);
	ck_assert_int_eq(a->v_head_dim, b->v_head_dim);
	ck_assert_str_eq(a->rope_type, b->rope_type);
	ck_assert_double_eq(a->rotary_scaling_factor, b->rotary_scaling_factor);
	ck_assert_double_eq_tol(a->mscale, b->mscale, 1e-12);
	ck_assert_double_eq(a->mscale_all_dim, b->mscale_all_dim);
	ck_assert_double_eq(a->beta_fast, b->beta_fast);
	ck_assert_double_eq(a->beta_slow, b->beta_slow);
	ck_assert_int_eq(a->original_max_position_embeddings, b->original_max_position_embeddings);
}

static void same_linear_attention(const struct mfs_megatron_args *a,
				  const struct mfs_megatron_args *b)
{
	ck_assert_int_eq(!a->linear_layers, !b->linear_layers);
	if (!a->linear_layers)
		return;
	ck_assert_mem_eq(a->linear_layers, b->linear_layers, (size_t)a->num_layers);
	ck_assert_int_eq(a->linear_conv_kernel_dim, b->linear_conv_kernel_dim);
	ck_assert_int_eq(a->linear_key_head_dim, b->linear_key_head_dim);
	ck_assert_int_eq(a->linear_value_head_dim, b->linear_value_head_dim);
	ck_assert_int_eq(a->linear_num_key_heads, b->linear_num_key_heads);
	ck_assert_int_eq(a->linear_num_value_heads, b->linear_num_value_heads);
}

static void same_pattern(const struct mfs_megatron_args *a, const struct mfs_megatron_args *b)
{
	ck_assert_int_eq(!a->hybrid_layers, !b->hybrid_layers);
	if (!a->hybrid_layers)
		return;
	ck_assert_str_eq(a->hybrid_layers, b->hybrid_layers);
	ck_assert_int_eq(a->mamba_state_dim, b->mamba_state_dim);
	ck_assert_int_eq(a->mamba_head_dim, b->mamba_head_dim);
	ck_assert_int_eq(a->mamba_num_groups, b->mamba_num_groups);
	ck_assert_int_eq(a->mamba_num_heads, b->mamba_num_heads);
}

static void same_args(const struct mfs_megatron_args *a, const struct mfs_megatron_args *b)
{
	/* HF has no trace of how norms and rotary pairs were stored. */
	const mfs_features lost =
		(MFS_HAS(ZERO_CENTERED) | MFS_HAS(ROPE_INTERLEAVED)) & ~family->required;

	ck_assert((mfs_features_of(a) & ~lost) == mfs_features_of(b));
	ck_assert_int_eq(a->num_layers, b->num_layers);
	ck_assert_int_eq(a->hidden_size, b->hidden_size);
	ck_assert_int_eq(a->num_attention_heads, b->num_attention_heads);
	ck_assert_int_eq(a->num_query_groups, b->num_query_groups);
	if (!a->multi_latent_attention)
		ck_assert_int_eq(a->kv_channels, b->kv_channels);
	if (a->num_experts == MFS_ABSENT || a->first_dense_layers)
		ck_assert_int_eq(a->ffn_hidden_size, b->ffn_hidden_size);
	ck_assert_int_eq(a->max_position_embeddings, b->max_position_embeddings);
	ck_assert_int_eq(a->max_position_embeddings, b->seq_length);
	ck_assert_int_eq(a->padded_vocab_size, b->padded_vocab_size);
	ck_assert_int_eq(a->padded_vocab_size, b->vocab_size);
	ck_assert_double_eq(a->norm_epsilon, b->norm_epsilon);
	ck_assert_double_eq(a->init_method_std, b->init_method_std);
	ck_assert_double_eq(a->rotary_base, b->rotary_base);
	if (!a->multi_latent_attention)
		ck_assert_double_eq(a->rotary_percent, b->rotary_percent);
	ck_assert_double_eq(a->rope_scaling_factor, b->rope_scaling_factor);
	ck_assert_double_eq(a->rotary_seq_len_interpolation_factor,
			    b->rotary_seq_len_interpolation_factor);
	ck_assert_int_eq(a->window_size, b->window_size);
	ck_assert_int_eq(!a->window_layers, !b->window_layers);
	if (a->window_layers)
		ck_assert_mem_eq(a->window_layers, b->window_layers, (size_t)a->num_layers);
	ck_assert_int_eq(a->mtp_num_layers, b->mtp_num_layers);
	same_moe(a, b);
	same_linear_attention(a, b);
	same_pattern(a, b);
	if (a->multi_latent_attention)
		same_mla(a, b);
}

static void round_trip(const struct mfs_megatron_args *args)
{
	struct mfs_megatron_args again;
	struct mfs_model *model;
	struct mfs_ckpt ckpt;
	size_t len;
	char *text;

	fake_ckpt(&ckpt, args);
	unit_ok(mfs_model_new(&ckpt, NULL, NULL, &model, &err), &err);
	unit_ok(mfs_hf_config_json(model, NULL, NULL, &text, &len, &err), &err);
	unit_ok(parse(text, &again), &err);
	ck_assert_ptr_eq(family, model->family);
	same_args(args, &again);
	ck_assert_str_eq(again.params_dtype, "bfloat16");
	free(text);
	mfs_model_free(model);
	fake_release(&ckpt);
}

static struct mfs_megatron_args (*const fakes[])(void) = {
	fake_llama,   fake_qwen2,    fake_qwen3,      fake_gpt2,
	fake_mixtral, fake_deepseek, fake_qwen3_next, fake_nemotron_h,
};

START_TEST(every_family_comes_back)
{
	struct mfs_megatron_args a = fakes[_i]();

	round_trip(&a);
	a.tied = !a.tied && !a.hybrid_layers; /* NemotronHForCausalLM ties nothing */
	a.norm_epsilon = 3e-6;
	a.init_method_std = 0.006;
	a.max_position_embeddings = 1000;
	a.zero_centered_gamma = true;
	round_trip(&a);
}
END_TEST

START_TEST(attention_comes_back)
{
	struct mfs_megatron_args a = fake_llama();

	a.num_query_groups = 4;
	round_trip(&a);
	a.kv_channels = 24;
	a.add_bias_linear = true;
	a.rotary_base = 500000;
	round_trip(&a);
	a.use_rope_scaling = true;
	a.rope_scaling_factor = 32;
	round_trip(&a);
	a = fake_qwen2();
	a.rotary_seq_len_interpolation_factor = 4;
	a.window_size = 128;
	round_trip(&a);
	a = fake_mixtral();
	a.window_size = 64;
	a.moe_aux_loss_coeff = 0.02;
	round_trip(&a);
	a = fake_gpt2();
	a.exact_gelu = true;
	a.ffn_hidden_size = 100;
	round_trip(&a);
	a.position_embedding_type = "rope";
	a.rotary_percent = 0.25;
	round_trip(&a);
	a = fake_llama();
	a.hf_family = "glm";
	a.rotary_interleaved = true;
	a.rotary_percent = 0.5;
	round_trip(&a);
	ck_assert_str_eq(family->name, "glm");
	a.hf_family = "nemotron";
	a.rotary_interleaved = a.swiglu = false;
	a.layernorm = a.zero_centered_gamma = a.squared_relu = true;
	round_trip(&a);
	ck_assert_str_eq(family->name, "nemotron");
	a = fake_llama();
	a.window_size = 32;
	a.window_layers = (const uint8_t *)"\1\0\1\1";
	round_trip(&a);
	ck_assert_str_eq(family->name, "ministral");
	a = fake_qwen3();
	a.post_norms = true;
	round_trip(&a);
	ck_assert_str_eq(family->name, "exaone4");
}
END_TEST

START_TEST(experts_come_back)
{
	static const uint8_t mixed[] = {1, 0};
	struct mfs_megatron_args a = fake_mixtral();

	a.qk_layernorm = true;
	a.moe_layers = mixed;
	round_trip(&a);
	ck_assert_str_eq(family->name, "qwen3-moe");
	a.moe_router_pre_softmax = true;
	round_trip(&a);
	a.qk_layernorm = false;
	a.add_qkv_bias = a.moe_shared_expert_gate = true;
	a.moe_shared_expert_intermediate_size = 56;
	round_trip(&a);
	ck_assert_str_eq(family->name, "qwen2-moe");
	a.moe_shared_expert_gate = a.moe_router_pre_softmax = false;
	a.moe_shared_expert_intermediate_size = 48;
	a.moe_router_score_function = "sigmoid";
	a.moe_router_enable_expert_bias = true;
	a.moe_layers = fake_deepseek().moe_layers;
	a.first_dense_layers = 1;
	a.rotary_percent = 0.5;
	a.mtp_num_layers = 1;
	round_trip(&a);
	ck_assert_str_eq(family->name, "glm4-moe");
	a = fake_deepseek();
	a.moe_router_score_function = "softmax";
	a.moe_router_enable_expert_bias = false;
	a.moe_router_pre_softmax = true;
	a.moe_router_topk_scaling_factor = 2.5;
	round_trip(&a);
	ck_assert_str_eq(family->name, "deepseek-v2");
}
END_TEST

START_TEST(deepseek_comes_back)
{
	struct mfs_megatron_args a = fake_deepseek();

	a.q_lora_rank = MFS_ABSENT;
	a.moe_shared_expert_intermediate_size = 96;
	a.mtp_num_layers = 2;
	a.moe_router_topk_scaling_factor = 2.5;
	round_trip(&a);
	a.moe_router_topk = 2;
	a.moe_router_num_groups = 2;
	a.moe_router_group_topk = 1;
	a.rope_type = "yarn";
	a.rotary_scaling_factor = 40;
	a.mscale = a.mscale_all_dim = 0.707;
	a.beta_fast = 16;
	round_trip(&a);
	a.mscale = 1; /* transformers then takes the mscale of 1 by itself */
	a.mscale_all_dim = 0;
	round_trip(&a);
	a.mscale = 0.5; /* the quotient is written as attention_factor */
	round_trip(&a);
	a.moe_router_topk = 1; /* norm_topk_prob is false */
	a.moe_router_num_groups = a.moe_router_group_topk = MFS_ABSENT;
	round_trip(&a);
}
END_TEST

/* ---- what a file leaves out ---- */

START_TEST(defaults_are_the_class_s)
{
	struct mfs_megatron_args a = accepted("{'model_type': 'llama'}");

	ck_assert_int_eq(a.hidden_size, 4096);
	ck_assert_int_eq(a.num_query_groups, 32);
	ck_assert_int_eq(a.kv_channels, 128);
	ck_assert_int_eq(a.vocab_size, 32000);
	ck_assert_int_eq(a.seq_length, 2048);
	ck_assert_double_eq(a.norm_epsilon, 1e-6);
	ck_assert(!a.tied && !a.add_bias_linear && a.swiglu && !a.layernorm);
	a = accepted("{'model_type': 'qwen3', 'hidden_size': 1024, 'num_attention_heads': 32}");
	ck_assert_int_eq(a.kv_channels, 128);
	ck_assert_int_eq(a.window_size, MFS_ABSENT);
	ck_assert(a.qk_layernorm);
	a = accepted("{'model_type': 'mixtral'}");
	ck_assert_double_eq(a.rotary_base, 1e6);
	ck_assert_int_eq(a.num_query_groups, 8);
	ck_assert_int_eq(a.moe_ffn_hidden_size, 14336);
	ck_assert_int_eq(a.num_experts, 8);
	a = accepted("{'architectures': ['GPT2LMHeadModel']}");
	ck_assert(a.tied && a.layernorm && a.add_bias_linear && !a.exact_gelu);
	ck_assert_int_eq(a.ffn_hidden_size, 3072);
	ck_assert_str_eq(a.position_embedding_type, "learned_absolute");
	a = accepted("{'model_type': 'deepseek_v3'}");
	ck_assert_int_eq(a.first_dense_layers, 3);
	ck_assert_int_eq(a.moe_shared_expert_intermediate_size, 2048);
	ck_assert_int_eq(a.moe_router_num_groups, 8);
	ck_assert_int_eq(a.mtp_num_layers, 1);
	ck_assert_double_eq(a.moe_router_topk_scaling_factor, 2.5);
	/* layer_types alternate, and YaRN has fractions of pairs */
	a = accepted("{'model_type': 'gpt_oss'}");
	ck_assert(a.quick_geglu && !a.swiglu && a.add_bias_linear && a.learnable_softmax);
	ck_assert(a.glu_linear_offset == 1 && a.activation_func_clamp_value == 7);
	ck_assert_str_eq(a.position_embedding_type, "yarn");
	ck_assert(a.rotary_scaling_factor == 32 && a.rotary_base == 150000 && a.yarn_unrounded);
	ck_assert_int_eq(a.original_max_position_embeddings, 4096);
	ck_assert_int_eq(a.window_size, 128);
	ck_assert(a.window_layers[0] && !a.window_layers[1] && a.window_layers[34]);
	ck_assert(!a.window_layers[35]);
}
END_TEST

START_TEST(null_is_computed)
{
	struct mfs_megatron_args a = accepted(
		"{'model_type': 'qwen2', 'num_key_value_heads': null, 'num_attention_heads': 8,"
		" 'hidden_size': 512, 'head_dim': null, 'sliding_window': null}");

	ck_assert_int_eq(a.num_query_groups, 8);
	ck_assert_int_eq(a.kv_channels, 64);
	a = accepted("{'model_type': 'deepseek_v3', 'q_lora_rank': null}");
	ck_assert_int_eq(a.q_lora_rank, MFS_ABSENT);
}
END_TEST

START_TEST(other_words_for_a_key)
{
	struct mfs_megatron_args a =
		accepted("{'model_type': 'gpt2', 'hidden_size': 96, 'n_ctx': 256,"
			 " 'n_positions': 256, 'activation_function':"
			 " 'gelu_pytorch_tanh'}");

	ck_assert_int_eq(a.hidden_size, 96);
	ck_assert_int_eq(a.max_position_embeddings, 256);
	a = accepted("{'model_type': 'mixtral', 'num_experts': 4, 'torch_dtype': 'float16'}");
	ck_assert_int_eq(a.num_experts, 4);
	ck_assert_str_eq(a.params_dtype, "float16");
	a = accepted("{'model_type': 'llama', 'architectures': ['LlamaModel'],"
		     " 'dtype': 'torch.float32'}");
	ck_assert_str_eq(a.params_dtype, "float32");
}
END_TEST

START_TEST(rotary_forms)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'llama', 'rope_theta': 5e5, 'rope_scaling':"
		     " {'type': 'linear', 'factor': 2}}");
	ck_assert_double_eq(a.rotary_base, 5e5);
	ck_assert_double_eq(a.rotary_seq_len_interpolation_factor, 2);
	a = accepted("{'model_type': 'llama', 'rope_parameters': {'rope_type': 'llama3',"
		     " 'rope_theta': 5e5, 'factor': 8, 'low_freq_factor': 1,"
		     " 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}}");
	ck_assert(a.use_rope_scaling);
	ck_assert_double_eq(a.rotary_base, 5e5);
	a = accepted("{'model_type': 'qwen2', 'rope_scaling': null, 'rope_parameters':"
		     " {'rope_type': 'default', 'rope_theta': 1e6}, 'rope_theta': 1e6}");
	ck_assert_double_eq(a.rotary_base, 1e6);
	/* DeepSeek-V3's own; and with the class's beta_fast, mscale, original length */
	a = accepted("{'model_type': 'deepseek_v3', 'max_position_embeddings': 163840,"
		     " 'rope_scaling': {'beta_fast': 32, 'beta_slow': 1, 'factor': 40,"
		     " 'mscale': 1.0, 'mscale_all_dim': 1.0, 'type': 'yarn',"
		     " 'original_max_position_embeddings': 4096}, 'rope_theta': 10000}");
	ck_assert_str_eq(a.rope_type, "yarn");
	ck_assert_int_eq(a.original_max_position_embeddings, 4096);
	a = accepted("{'model_type': 'deepseek_v3', 'rope_scaling': {'type': 'yarn',"
		     " 'factor': 4, 'beta_fast': null}}");
	ck_assert_int_eq(a.original_max_position_embeddings, 4096);
	ck_assert_double_eq(a.beta_fast, 32);
	ck_assert_double_eq(a.mscale, 1);
	ck_assert_double_eq(a.mscale_all_dim, 0);
}
END_TEST

/* Scales of cos and sin, computed as Megatron does from the arguments, for every way of saying
 * it. */
/* The part of a head that rotates, and GELU, under the keys that classes have for them. */
START_TEST(parts_of_heads)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'gpt_neox', 'use_parallel_residual': false}");
	ck_assert_double_eq(a.rotary_percent, 0.25);
	ck_assert_double_eq(a.rotary_base, 10000);
	ck_assert(a.exact_gelu);
	a = accepted("{'model_type': 'gpt_neox', 'use_parallel_residual': false,"
		     " 'rotary_pct': 1.0, 'rotary_emb_base': 500, 'hidden_act': 'gelu_fast'}");
	ck_assert_double_eq(a.rotary_percent, 1);
	ck_assert_double_eq(a.rotary_base, 500);
	ck_assert(!a.exact_gelu);
	a = accepted("{'model_type': 'nemotron', 'num_key_value_heads': 8,"
		     " 'rope_parameters': {'partial_rotary_factor': 0.75}}");
	ck_assert_double_eq(a.rotary_percent, 0.75);
	ck_assert(a.zero_centered_gamma && a.layernorm && a.squared_relu);
}
END_TEST

START_TEST(yarn_scales)
{
	static const struct {
		const char *keys;
		double scale, all;
	} cases[] = {
		{"", 1.368887945411394, 0},
		{", 'mscale': 0.7", 1.368887945411394, 0},
		{", 'mscale_all_dim': 0.5", 1.368887945411394, 0.5},
		{", 'mscale': 1, 'mscale_all_dim': 0.5", 1.368887945411394 / 1.1844439727056968,
		 0.5},
		{", 'attention_factor': 1.2, 'mscale_all_dim': 0.5", 1.2, 0.5},
		{", 'attention_factor': 1, 'mscale_all_dim': 0", 1, 0},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const double unit = 0.3688879454113936; /* 0.1 ln 40 */
		struct mfs_megatron_args a;
		char text[256];

		snprintf(text, sizeof(text),
			 "{'model_type': 'deepseek_v3', 'rope_scaling': {'type': 'yarn',"
			 " 'factor': 40%s}}",
			 cases[i].keys);
		a = accepted(text);
		ck_assert_double_eq(a.mscale_all_dim, cases[i].all);
		ck_assert_double_eq_tol((unit * a.mscale + 1) / (unit * a.mscale_all_dim + 1),
					cases[i].scale, 1e-9);
	}
}
END_TEST

START_TEST(windows_are_megatrons)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'qwen2', 'num_hidden_layers': 2, 'use_sliding_window': true,"
		     " 'sliding_window': 64, 'max_window_layers': 0}");
	ck_assert_int_eq(a.window_size, 64);
	a = accepted("{'model_type': 'qwen2', 'num_hidden_layers': 2, 'use_sliding_window': true,"
		     " 'sliding_window': 64, 'max_window_layers': 2}");
	ck_assert_int_eq(a.window_size, MFS_ABSENT);
	a = accepted("{'model_type': 'qwen3', 'num_hidden_layers': 2, 'use_sliding_window': true,"
		     " 'layer_types': ['sliding_attention', 'sliding_attention']}");
	ck_assert_int_eq(a.window_size, 4096);
	a = accepted("{'model_type': 'mixtral', 'sliding_window': 4096}");
	ck_assert_int_eq(a.window_size, 4096);
	/* Gemma's number is that of the tokens to the left. */
	a = accepted("{'model_type': 'gemma3_text', 'num_hidden_layers': 2, 'sliding_window': 64,"
		     " 'layer_types': ['sliding_attention', 'full_attention']}");
	ck_assert_int_eq(a.window_size, 65);
}
END_TEST

/* With the text config's keys below text_config, or among the others. */
START_TEST(vision_language_models)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'qwen2_5_vl', 'num_hidden_layers': 2, 'hidden_size': 64,"
		     " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'image_token_id': 9,"
		     " 'rope_scaling': {'type': 'mrope', 'mrope_section': [2, 3, 3]}}");
	ck_assert_str_eq(family->name, "qwen2");
	ck_assert_str_eq(whole->name, "qwen2.5-vl");
	ck_assert_str_eq(a.position_embedding_type, "rope");
	ck_assert(a.rotary_base == 1000000 && a.padded_vocab_size == 152064 && !a.tied);
	a = accepted(
		"{'model_type': 'qwen3_vl', 'tie_word_embeddings': true, 'text_config': {"
		" 'num_hidden_layers': 2, 'rope_parameters': {'rope_type': 'default',"
		" 'rope_theta': 7.0, 'mrope_section': [4, 2, 2], 'mrope_interleaved': true}}}");
	ck_assert_str_eq(family->name, "qwen3");
	ck_assert(a.rotary_base == 7 && a.tied && a.num_layers == 2);
	a = accepted("{'model_type': 'llava', 'text_config': {'num_hidden_layers': 2}}");
	ck_assert(!strcmp(family->name, "llama") && !strcmp(a.hf_family, "llama"));
	a = accepted("{'model_type': 'llava', 'text_config': {'model_type': 'mistral'}}");
	ck_assert_str_eq(family->name, "mistral");
	a = accepted("{'model_type': 'llama'}");
	ck_assert_ptr_null(whole);
}
END_TEST

/* The class has a window unless all layers are declared to see everything. */
START_TEST(windows_of_some_layers)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'ministral', 'num_hidden_layers': 3, 'sliding_window': 64,"
		     " 'layer_types': ['full_attention', 'sliding_attention', 'full_attention']}");
	ck_assert_int_eq(a.window_size, 64);
	ck_assert_mem_eq(a.window_layers, "\0\1\0", 3);
	a = accepted("{'model_type': 'ministral', 'num_hidden_layers': 2}");
	ck_assert_int_eq(a.window_size, 4096);
	ck_assert_ptr_null(a.window_layers);
	a = accepted("{'model_type': 'ministral', 'num_hidden_layers': 1,"
		     " 'layer_types': ['full_attention']}");
	ck_assert_int_eq(a.window_size, MFS_ABSENT);
	a = accepted("{'model_type': 'ministral', 'num_hidden_layers': 1, 'sliding_window': null}");
	ck_assert_int_eq(a.window_size, MFS_ABSENT);
}
END_TEST

/* The layers of a model with experts, as text: '.' is a dense one. */
static const char *layers_of(const char *text)
{
	static char out[16];
	const struct mfs_megatron_args a = accepted(text);

	ck_assert_int_lt(a.num_layers, (int64_t)sizeof(out));
	for (int64_t i = 0; i < a.num_layers; i++)
		out[i] = mfs_args_is_moe(&a, i) ? 'x' : '.';
	out[a.num_layers] = 0;
	ck_assert_int_eq(a.first_dense_layers, (int64_t)strspn(out, "."));
	return out;
}

START_TEST(layers_with_experts)
{
	ck_assert_str_eq(layers_of("{'model_type': 'qwen3_moe', 'num_hidden_layers': 4}"), "xxxx");
	ck_assert_str_eq(layers_of("{'model_type': 'qwen3_moe', 'num_hidden_layers': 4,"
				   " 'mlp_only_layers': [2, 0]}"),
			 ".x.x");
	ck_assert_str_eq(layers_of("{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 3}"),
			 ".xx");
	ck_assert_str_eq(layers_of("{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 3,"
				   " 'first_k_dense_replace': 2}"),
			 "..x");
	ck_assert_str_eq(layers_of("{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 2,"
				   " 'first_k_dense_replace': 1,"
				   " 'mlp_layer_types': ['dense', 'sparse']}"),
			 ".x");
}
END_TEST

/* By their types, or by which have full attention. */
START_TEST(layers_with_linear_attention)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'qwen3_next', 'num_hidden_layers': 5}");
	ck_assert_mem_eq(a.linear_layers, "\1\1\1\0\1", 5);
	a = accepted("{'model_type': 'qwen3_next', 'num_hidden_layers': 4,"
		     " 'full_attention_interval': 2}");
	ck_assert_mem_eq(a.linear_layers, "\1\0\1\0", 4);
	a = accepted("{'model_type': 'qwen3_next', 'num_hidden_layers': 2,"
		     " 'layer_types': ['full_attention', 'linear_attention']}");
	ck_assert_mem_eq(a.linear_layers, "\0\1", 2);
	ck_assert_int_eq(a.linear_num_value_heads, 32);
}
END_TEST

/* A letter a layer, or a type a layer under one of two names each; Python's Infinity is no JSON. */
START_TEST(layers_of_one_sublayer)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-M*',"
		     " 'time_step_limit': [0.0, Infinity]}");
	ck_assert_str_eq(a.hybrid_layers, "M-M*");
	ck_assert(a.num_layers == 4 && a.num_experts == MFS_ABSENT && !a.moe_layers);
	ck_assert_str_eq(a.position_embedding_type, "none");
	a = accepted("{'model_type': 'nemotron_h', 'num_hidden_layers': 4,"
		     " 'layers_block_type': ['mamba', 'attention', 'moe', 'mlp'],"
		     " 'time_step_limit': [0.0, {'__float__': 'Infinity'}]}");
	ck_assert_str_eq(a.hybrid_layers, "M*E-");
	ck_assert_mem_eq(a.moe_layers, "\0\0\1\0", 4);
	a = accepted("{'model_type': 'nemotron_h', 'layers_block_type':"
		     " ['linear_attention', 'full_attention'], 'hybrid_override_pattern': 'M*'}");
	ck_assert_str_eq(a.hybrid_layers, "M*");
	accepted("{'model_type': 'nemotron_h'}");
}
END_TEST

START_TEST(kimi_is_a_deepseek)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'kimi_k2', 'architectures': ['DeepseekV3ForCausalLM']}");
	ck_assert_str_eq(family->name, "deepseek-v3");
	ck_assert_str_eq(a.hf_model_type, "kimi_k2");
	ck_assert_ptr_null(a.hf_architecture);
	a = accepted("{'model_type': 'kimi_k2', 'architectures': ['KimiK2ForCausalLM']}");
	ck_assert_str_eq(family->name, "deepseek-v3");
	ck_assert_str_eq(a.hf_model_type, "kimi_k2");
	ck_assert_str_eq(a.hf_architecture, "KimiK2ForCausalLM");
	a = accepted("{'model_type': 'deepseek_v3', 'architectures': ['DeepseekV3ForCausalLM']}");
	ck_assert(!a.hf_model_type && !a.hf_architecture);
}
END_TEST

/* Two spellings of a class with one model_type. */
START_TEST(the_class_decides)
{
	struct mfs_megatron_args a;

	accepted("{'model_type': 'baichuan', 'architectures': ['BaiChuanForCausalLM']}");
	ck_assert_str_eq(family->name, "baichuan");
	unit_fails(parse(quoted("{'model_type': 'baichuan',"
				" 'architectures': ['BaichuanForCausalLM']}"),
			 &a),
		   &err, -ENOTSUP, "ALiBi");
	unit_fails(parse(quoted("{'model_type': 'baichuan'}"), &a), &err, -ENODATA,
		   "'architectures' names none");
}
END_TEST

START_TEST(all_layers_dense)
{
	struct mfs_megatron_args a =
		accepted("{'model_type': 'deepseek_v3', 'num_hidden_layers': 2}");

	ck_assert_int_eq(a.first_dense_layers, 2);
	ck_assert_uint_eq(a.moe_layers[0] + a.moe_layers[1], 0);
}
END_TEST

/* ---- keys that no row has ---- */

static const char *remark_of(const char *text)
{
	const struct mfs_megatron_args a = accepted(text);

	return a.hf_remarks ? a.hf_remarks[0] : "";
}

START_TEST(keys_without_a_row)
{
	static const char *const harmless[] = {
		"{'model_type': 'llama', 'is_causal': true, 'return_dict': false, 'id2label': {}}",
		"{'model_type': 'llama', 'clip_qkv': null, 'logit_scale': 1.0, 'qk_norm': false}",
		"{'model_type': 'llama', 'quantization': false, 'pruned_heads': {}}",
		"{'model_type': 'llama', 'layer_types': ['full_attention', 'full_attention']}",
		"{'model_type': 'qwen3_next', 'use_sliding_window': false, 'sliding_window': null}",
		"{'model_type': 'phi3', 'head_dim': 96}",
		"{'model_type': 'gpt2', 'hidden_act': null, 'is_decoder': true}",
		"{'model_type': 'gemma2', 'hidden_act': 'gelu_pytorch_tanh'}",
		"{'model_type': 'minimax_m2', 'attn_type_list': [1, 1, 1]}",
		"{'model_type': 'qwen3', 'qk_norm': true, 'use_qk_layernorm': true}",
		"{'model_type': 'qwen2', 'attention_bias': true, 'use_qkv_bias': true}",
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(harmless); i++)
		ck_assert_str_eq(remark_of(harmless[i]), "");
	ck_assert_str_eq(remark_of("{'model_type': 'llama', 'wingspan': 7, 'a\\u001b\\u007f': 1}"),
			 "config.json has 'wingspan', 'a\\u001B?': if that changes what the "
			 "model computes, Megatron and gguf views are wrong");
	ck_assert_ptr_nonnull(
		strstr(remark_of("{'model_type': 'nemotron_h', 'mamba_dt_min': 0.25}"),
		       "time_step_min 0.25: transformers from 5.0 on"));
}
END_TEST

/* Files as makers publish them, with all the keys that stand in them: none is refused, and what is
 * harmless is not remarked on. */
START_TEST(published_files)
{
	json_t *all = json_load_file("tests/fixtures/published_configs.json", 0, NULL), *one;
	struct mfs_megatron_args a;
	size_t i;

	ck_assert_uint_gt(json_array_size(all), 40);
	json_array_foreach(all, i, one)
	{
		const char *name = json_string_value(json_object_get(one, "name"));
		const char *remark = json_string_value(json_object_get(one, "remark"));
		char *text = json_dumps(json_object_get(one, "config"), 0);
		const int rc = parse(text, &a);

		ck_assert_msg(!rc, "%s: %s", name, err.msg);
		ck_assert_str_eq(family->name, json_string_value(json_object_get(one, "family")));
		ck_assert_msg(remark ? a.hf_remarks && strstr(a.hf_remarks[0], remark)
				     : !a.hf_remarks,
			      "%s: %s", name, a.hf_remarks ? a.hf_remarks[0] : "no remark");
		free(text);
	}
	json_decref(all);
}
END_TEST

/* What StarCoder2's and Nemotron-H's files say and no class reads: it may only say the same. */
START_TEST(keys_that_say_it_again)
{
	static const char star[] = "{'model_type': 'starcoder2', 'norm_epsilon': 1e-5, %s}";
	char text[200];
	struct mfs_megatron_args a;

	snprintf(text, sizeof(text), star, "'layer_norm_epsilon': 1e-5, 'norm_type': null");
	a = accepted(text);
	ck_assert_ptr_null(a.hf_remarks);
	snprintf(text, sizeof(text), star, "'layer_norm_epsilon': 1e-6");
	a = accepted(text);
	ck_assert(a.hf_remarks && strstr(a.hf_remarks[0], "'layer_norm_epsilon'"));
	snprintf(text, sizeof(text), star, "'mlp_type': 'gated'");
	unit_fails(parse(quoted(text), &a), &err, -ENOTSUP, "mlp_type");
	snprintf(text, sizeof(text), star, "'norm_type': 'rms_norm'");
	unit_fails(parse(quoted(text), &a), &err, -ENOTSUP, "norm_type");
	a = accepted("{'model_type': 'nemotron_h', 'rms_norm_eps': 1e-6}");
	ck_assert(a.hf_remarks && strstr(a.hf_remarks[0], "'rms_norm_eps'"));
}
END_TEST

/* A Mistral with layer_types is what AutoModelForCausalLM takes it for. */
START_TEST(layer_types_of_a_mistral)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'mistral', 'architectures': ['MistralForCausalLM'],"
		     " 'num_hidden_layers': 2, 'sliding_window': 64,"
		     " 'layer_types': ['full_attention', 'sliding_attention']}");
	ck_assert_str_eq(family->name, "ministral");
	ck_assert(a.window_size == 64 && !a.window_layers[0] && a.window_layers[1]);
	a = accepted("{'model_type': 'mistral', 'num_hidden_layers': 1,"
		     " 'layer_types': ['full_attention']}");
	ck_assert_int_eq(a.window_size, MFS_ABSENT);
	accepted("{'model_type': 'mistral', 'layer_types': null}");
	ck_assert_str_eq(family->name, "mistral");
}
END_TEST

/* Without layer_types each sixth layer has no window, or each Nth. */
START_TEST(windows_of_gemma_3)
{
	struct mfs_megatron_args a;

	a = accepted("{'model_type': 'gemma3_text', 'num_hidden_layers': 7}");
	ck_assert_mem_eq(a.window_layers, "\1\1\1\1\1\0\1", 7);
	a = accepted("{'model_type': 'gemma3_text', 'num_hidden_layers': 4,"
		     " 'sliding_window_pattern': 2}");
	ck_assert_mem_eq(a.window_layers, "\1\0\1\0", 4);
}
END_TEST

START_TEST(activations_have_megatrons_names)
{
	ck_assert(!accepted("{'model_type': 'gpt2', 'activation_function': 'gelu_accurate'}")
			   .exact_gelu);
	ck_assert(accepted("{'model_type': 'gpt2', 'activation_function': 'gelu_python'}")
			  .exact_gelu);
	ck_assert(accepted("{'model_type': 'llama', 'hidden_act': 'swish'}").swiglu);
	ck_assert(accepted("{'model_type': 'gemma', 'hidden_act': 'gelu'}").geglu);
	ck_assert(accepted("{'model_type': 'gemma2', 'hidden_activation': 'gelu_fast'}").geglu);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
	const char *text;
	int code;
	const char *says;
} refused[] = {
	/* no config.json, or of no family */
	{"[]", -EINVAL, "object"},
	{"{'model_type': 'llama'", -EINVAL, "JSON"},
	{"{}", -ENODATA, "model_type"},
	{"{'model_type': 'bert'}", -ENOTSUP, "bert"},
	{"{'model_type': 'llama', 'architectures': ['Qwen2ForCausalLM']}", -ENOTSUP, "Qwen2"},
	{"{'model_type': 'llama', 'architectures': ['LlamaForSequenceClassification']}", -ENOTSUP,
	 "LlamaForSequenceClassification"},
	/* numbers */
	{"{'model_type': 'llama', 'hidden_size': null}", -EINVAL, "'hidden_size' is null"},
	{"{'model_type': 'llama', 'hidden_size': 0}", -EINVAL, "'hidden_size' is 0"},
	{"{'model_type': 'llama', 'hidden_size': 64.5}", -EINVAL, "64.5"},
	{"{'model_type': 'llama', 'hidden_size': '64'}", -EINVAL, "hidden_size"},
	{"{'model_type': 'llama', 'num_hidden_layers': 9999999}", -ENOTSUP, "100000"},
	{"{'model_type': 'llama', 'num_hidden_layers': 99999999999}", -EINVAL, "num_hidden"},
	{"{'model_type': 'llama', 'num_hidden_layers': 100000}", -ENOTSUP, "more than 400000"},
	{"{'model_type': 'mixtral', 'num_local_experts': 90000}", -ENOTSUP, "90000 experts: a"},
	{"{'model_type': 'llama', 'num_key_value_heads': 5}", -EINVAL, "num_key_value_heads"},
	{"{'model_type': 'llama', 'rms_norm_eps': null}", -EINVAL, "rms_norm_eps"},
	{"{'model_type': 'llama', 'rms_norm_eps': -1}", -EINVAL, "rms_norm_eps"},
	{"{'model_type': 'llama', 'vocab_size': -1}", -EINVAL, "vocab_size"},
	{"{'model_type': 'llama', 'hidden_size': 16, 'num_attention_heads': 32}", -EINVAL, "heads"},
	{"{'model_type': 'llama', 'hidden_size': 100, 'num_attention_heads': 32}", -ENOTSUP,
	 "multiple"},
	/* what Megatron has no argument for */
	{"{'model_type': 'llama', 'hidden_act': 'gelu'}", -ENOTSUP, "'hidden_act' is \"gelu\""},
	{"{'model_type': 'llama', 'attention_bias': true}", -ENOTSUP, "mlp_bias"},
	{"{'model_type': 'llama', 'mlp_bias': true}", -ENOTSUP, "attention_bias"},
	{"{'model_type': 'llama', 'tie_word_embeddings': 1}", -EINVAL, "tie_word_embeddings"},
	{"{'model_type': 'qwen3', 'attention_bias': true}", -ENOTSUP, "attention_bias"},
	{"{'model_type': 'qwen2', 'use_qk_norm': true}", -ENOTSUP, "use_qk_norm"},
	{"{'model_type': 'qwen3', 'use_qkv_bias': true}", -ENOTSUP, "use_qkv_bias"},
	{"{'model_type': 'llama', 'quantization_config': {'quant_method': 'fp8'}}", -ENOTSUP,
	 "fp8"},
	{"{'model_type': 'llama', 'is_encoder_decoder': true}", -ENOTSUP, "is_encoder_decoder"},
	{"{'model_type': 'gpt2', 'activation_function': 'relu'}", -ENOTSUP, "relu"},
	{"{'model_type': 'gpt2', 'activation_function': null}", -ENOTSUP, "activation_function"},
	{"{'model_type': 'gpt2', 'scale_attn_weights': false}", -ENOTSUP, "scale_attn_weights"},
	{"{'model_type': 'gpt2', 'scale_attn_by_inverse_layer_idx': true}", -ENOTSUP, "inverse"},
	{"{'model_type': 'gpt2', 'add_cross_attention': true}", -ENOTSUP, "cross"},
	{"{'model_type': 'gpt2', 'n_ctx': 10}", -ENOTSUP, "n_positions"},
	{"{'model_type': 'gpt2', 'n_embd': 10, 'hidden_size': 12}", -EINVAL, "n_embd"},
	{"{'model_type': 'gpt2', 'n_embd': 70}", -ENOTSUP, "multiple"},
	/* positions */
	{"{'model_type': 'llama', 'rope_scaling': {'type': 'dynamic', 'factor': 2}}", -ENOTSUP,
	 "dynamic"},
	{"{'model_type': 'llama', 'rope_scaling': {'type': 'yarn', 'factor': 2}}", -ENOTSUP,
	 "yarn"},
	{"{'model_type': 'deepseek_v3', 'rope_scaling': {'type': 'linear', 'factor': 2}}", -ENOTSUP,
	 "linear"},
	{"{'model_type': 'llama', 'rope_scaling': {'type': 'linear'}}", -ENODATA,
	 "rope_scaling.factor"},
	{"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': -2}}", -EINVAL,
	 "rope_scaling.factor"},
	{"{'model_type': 'llama', 'rope_scaling': {'type': 3}}", -EINVAL, "rope_type"},
	{"{'model_type': 'llama', 'rope_scaling': []}", -EINVAL, "rope_scaling"},
	{"{'model_type': 'gpt_oss', 'layer_types': ['sliding_attention', 'full_attention']}",
	 -EINVAL, "one text a layer"},
	{"{'model_type': 'gpt_oss', 'swiglu_limit': 0}", -ENOTSUP, "activation_func_clamp_value"},
	{"{'model_type': 'gpt_oss', 'swiglu_alpha': 1}", -ENOTSUP, "swiglu_alpha"},
	{"{'model_type': 'gpt_oss', 'num_local_experts': 100001}", -ENOTSUP,
	 "100001 experts, expected at most"},
	{"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 2},"
	 " 'rope_parameters': {'rope_type': 'linear', 'factor': 4}}",
	 -EINVAL, "the same as 'rope_scaling'"},
	{"{'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 2},"
	 " 'rope_parameters': {'rope_type': 'default'}}",
	 -EINVAL, "the same as 'rope_scaling'"},
	{"{'model_type': 'llama', 'rope_theta': 1e4, 'rope_parameters': {'rope_theta': 1e6}}",
	 -EINVAL, "rope_theta"},
	{"{'model_type': 'llama', 'rope_theta': 0}", -EINVAL, "rope_theta"},
	{"{'model_type': 'llama', 'rope_scaling': {'rope_type': 'llama3', 'factor': 8,"
	 " 'low_freq_factor': 2, 'high_freq_factor': 4,"
	 " 'original_max_position_embeddings': 8192}}",
	 -ENOTSUP, "low_freq_factor"},
	{"{'model_type': 'llama', 'rope_scaling': {'rope_type': 'llama3', 'factor': 8,"
	 " 'low_freq_factor': 1, 'high_freq_factor': 4,"
	 " 'original_max_position_embeddings': 4096}}",
	 -ENOTSUP, "original_max_position_embeddings"},
	{"{'model_type': 'llama', 'partial_rotary_factor': 0.5}", -ENOTSUP, "partial_rotary"},
	{"{'model_type': 'llama', 'rope_parameters': {'partial_rotary_factor': 0.5}}", -ENOTSUP,
	 "partial_rotary"},
	{"{'model_type': 'qwen2', 'rope_parameters': {'full_attention': {'rope_theta': 1}}}",
	 -ENOTSUP, "every layer"},
	{"{'model_type': 'deepseek_v3', 'rope_scaling': {'type': 'yarn', 'factor': 4,"
	 " 'truncate': false}}",
	 -ENOTSUP, "truncate"},
	{"{'model_type': 'deepseek_v3', 'rope_scaling': {'type': 'yarn', 'factor': 1,"
	 " 'attention_factor': 2}}",
	 -ENOTSUP, "attention_factor"},
	{"{'model_type': 'phi3', 'partial_rotary_factor': 0}", -EINVAL, "at most 1"},
	{"{'model_type': 'phi3', 'rope_scaling': {'type': 'longrope'}}", -ENOTSUP, "longrope"},
	{"{'model_type': 'stablelm', 'partial_rotary_factor': 0.25,"
	 " 'rope_parameters': {'partial_rotary_factor': 0.5}}",
	 -EINVAL, "the same number at the top"},
	/* what Megatron has not */
	{"{'model_type': 'olmo2'}", -ENOTSUP, "which Megatron cannot express: norms after"},
	{"{'architectures': ['PhiForCausalLM']}", -ENOTSUP, "side by side"},
	{"{'model_type': 'gpt_neox'}", -ENOTSUP, "use_parallel_residual"},
	{"{'model_type': 'gpt_neox', 'use_parallel_residual': false, 'hidden_act': 'relu'}",
	 -ENOTSUP, "hidden_act"},
	/* windows */
	{"{'model_type': 'qwen2', 'use_sliding_window': true}", -ENOTSUP, "max_window_layers"},
	{"{'model_type': 'qwen2', 'num_hidden_layers': 2, 'layer_types': ['full_attention']}",
	 -EINVAL, "layer_types"},
	{"{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['linear_attention']}",
	 -ENOTSUP, "linear_attention"},
	{"{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}",
	 -EINVAL, "sliding_window"},
	{"{'model_type': 'ministral', 'num_hidden_layers': 1, 'sliding_window': null,"
	 " 'layer_types': ['sliding_attention']}",
	 -EINVAL, "a number that is in use"},
	{"{'model_type': 'qwen3', 'num_hidden_layers': 2, 'use_sliding_window': true,"
	 " 'layer_types': ['sliding_attention', 'full_attention']}",
	 -ENOTSUP, "in all layers or in none"},
	/* linear attention */
	{"{'model_type': 'qwen3_next', 'num_hidden_layers': 2, 'layer_types': ['full_attention']}",
	 -EINVAL, "one text a layer"},
	{"{'model_type': 'qwen3_next', 'num_hidden_layers': 1,"
	 " 'layer_types': ['sliding_attention']}",
	 -ENOTSUP, "\"full_attention\" or \"linear_attention\""},
	{"{'model_type': 'qwen3_next', 'num_hidden_layers': 1, 'layer_types': [7]}", -ENOTSUP,
	 "'layer_types' is 7"},
	{"{'model_type': 'qwen3_next', 'full_attention_interval': 0}", -EINVAL,
	 "full_attention_interval"},
	{"{'model_type': 'qwen3_next', 'linear_num_value_heads': 24}", -EINVAL,
	 "a multiple of 'linear_num_key_heads'"},
	{"{'model_type': 'qwen3_next', 'linear_conv_kernel_dim': null}", -EINVAL,
	 "linear_conv_kernel_dim"},
	/* layers of one sublayer */
	{"{'model_type': 'nemotron_h', 'num_hidden_layers': 4, 'hybrid_override_pattern': 'M-M'}",
	 -EINVAL, "'hybrid_override_pattern' is \"M-M\", expected a letter a layer"},
	{"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-G'}", -ENOTSUP,
	 "a letter of \"M*-E\" a layer"},
	{"{'model_type': 'nemotron_h', 'hybrid_override_pattern': ''}", -ENOTSUP, "a letter of"},
	{"{'model_type': 'nemotron_h', 'hybrid_override_pattern': 4}", -ENOTSUP, "a letter of"},
	{"{'model_type': 'nemotron_h', 'layers_block_type': ['mamba', 'conv']}", -ENOTSUP,
	 "'layers_block_type' is \"conv\""},
	{"{'model_type': 'nemotron_h', 'layers_block_type': []}", -ENOTSUP, "a letter of"},
	{"{'model_type': 'nemotron_h', 'layers_block_type': ['mamba'],"
	 " 'hybrid_override_pattern': '-'}",
	 -EINVAL, "'hybrid_override_pattern' is \"-\", expected M"},
	{"{'model_type': 'nemotron_h', 'n_groups': 3}", -EINVAL, "'mamba_num_heads' is 128"},
	{"{'model_type': 'nemotron_h', 'time_step_limit': [0.0, 0.1]}", -ENOTSUP,
	 "'time_step_limit' is [0.0,0.1], expected [0.0, Infinity]"},
	{"{'model_type': 'nemotron_h', 'n_routed_experts': null}", -EINVAL, "n_routed_experts"},
	/* experts */
	{"{'model_type': 'mixtral', 'num_experts_per_tok': 9}", -EINVAL, "num_experts_per_tok"},
	{"{'model_type': 'mixtral', 'num_local_experts': null}", -EINVAL, "num_local_experts"},
	{"{'model_type': 'deepseek_v3', 'topk_group': 3}", -ENOTSUP, "topk_group"},
	{"{'model_type': 'deepseek_v3', 'topk_group': 9}", -EINVAL, "topk_group"},
	{"{'model_type': 'deepseek_v3', 'n_group': 7}", -EINVAL, "n_group"},
	{"{'model_type': 'deepseek_v3', 'norm_topk_prob': false}", -ENOTSUP, "norm_topk_prob"},
	{"{'model_type': 'deepseek_v3', 'scoring_func': 'softmax'}", -ENOTSUP, "softmax"},
	{"{'model_type': 'deepseek_v3', 'topk_method': 'greedy'}", -ENOTSUP, "greedy"},
	{"{'model_type': 'deepseek_v3', 'moe_layer_freq': 2}", -ENOTSUP, "moe_layer_freq"},
	{"{'model_type': 'deepseek_v3', 'rope_interleave': false}", -ENOTSUP, "rope_interleave"},
	{"{'model_type': 'deepseek_v3', 'attention_bias': true}", -ENOTSUP, "attention_bias"},
	{"{'model_type': 'deepseek_v3', 'num_key_value_heads': 2}", -ENOTSUP,
	 "num_attention_heads"},
	{"{'model_type': 'deepseek_v3', 'n_shared_experts': null}", -ENODATA, "n_shared_experts"},
	{"{'model_type': 'deepseek_v2', 'num_experts_per_tok': 2,"
	 " 'topk_method': 'group_limited_greedy'}",
	 -ENOTSUP, "group_limited_greedy"},
	{"{'model_type': 'qwen3_moe', 'decoder_sparse_step': 2}", -ENOTSUP, "decoder_sparse_step"},
	{"{'model_type': 'qwen3_moe', 'mlp_only_layers': 1}", -EINVAL, "a list of layers"},
	{"{'model_type': 'qwen3_moe', 'mlp_only_layers': [0, 24]}", -EINVAL,
	 "24, expected the number of a layer"},
	{"{'model_type': 'qwen3_moe', 'mlp_only_layers': [-1]}", -EINVAL, "-1, expected"},
	{"{'model_type': 'qwen3_moe', 'mlp_only_layers': [0.5]}", -EINVAL, "0.5, expected"},
	{"{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 2, 'mlp_layer_types': ['dense']}",
	 -EINVAL, "one text a layer"},
	{"{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 2,"
	 " 'mlp_layer_types': ['sparse', 'dense']}",
	 -ENOTSUP, "dense layers between"},
	{"{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 1, 'mlp_layer_types': ['wide']}",
	 -ENOTSUP, "\"dense\" or \"sparse\""},
	{"{'model_type': 'glm4_moe_lite', 'num_hidden_layers': 2, 'first_k_dense_replace': 2,"
	 " 'mlp_layer_types': ['dense', 'sparse']}",
	 -EINVAL, "as many leading dense layers"},
	/* keys that no row has */
	{"{'model_type': 'qwen2', 'is_causal': false}", -ENOTSUP,
	 "'is_causal' is false, expected true"},
	{"{'model_type': 'gpt2', 'is_causal': false}", -ENOTSUP, "'is_causal'"},
	{"{'model_type': 'llava', 'text_config': {'is_causal': false}}", -ENOTSUP, "'is_causal'"},
	{"{'model_type': 'qwen3', 'use_bidirectional_attention': true}", -ENOTSUP,
	 "use_bidirectional_attention"},
	{"{'model_type': 'llama', 'logit_scale': 0.5}", -ENOTSUP,
	 "'logit_scale' is 0.5, expected 1"},
	{"{'model_type': 'llama', 'sliding_window': 64}", -ENOTSUP, "'sliding_window' is 64"},
	{"{'model_type': 'llama', 'layer_types': ['sliding_attention']}", -ENOTSUP,
	 "'layer_types'"},
	{"{'model_type': 'phi3', 'sliding_window': 64, 'layer_types': ['full_attention']}",
	 -ENOTSUP, "'layer_types'"},
	{"{'model_type': 'phi3', 'head_dim': 64}", -ENOTSUP,
	 "'head_dim' is 64, expected hidden_size"},
	{"{'model_type': 'qwen2', 'dual_chunk_attention_config': {'chunk_size': 64}}", -ENOTSUP,
	 "dual_chunk_attention_config"},
	{"{'model_type': 'mistral', 'llama_4_scaling': {'beta': 0.1}}", -ENOTSUP,
	 "llama_4_scaling"},
	{"{'model_type': 'minimax_m2', 'attn_type_list': [1, 0]}", -ENOTSUP, "attn_type_list"},
	{"{'model_type': 'llama', 'hidden_activation': 'gelu'}", -ENOTSUP, "hidden_activation"},
	{"{'model_type': 'glm4_moe_lite', 'head_dim': 32}", -ENOTSUP,
	 "'head_dim' is 32, expected the same as 'qk_rope_head_dim'"},
	/* activations */
	{"{'model_type': 'gemma2', 'hidden_activation': 'gelu'}", -ENOTSUP,
	 "'hidden_activation' is \"gelu\""},
	{"{'model_type': 'gemma3_text', 'hidden_activation': 'gelu_python'}", -ENOTSUP,
	 "gelu_python"},
	{"{'model_type': 'gemma2', 'hidden_act': 'gelu'}", -ENOTSUP, "'hidden_act' is \"gelu\""},
	{"{'model_type': 'gemma', 'hidden_activation': 'gelu'}", -ENOTSUP, "hidden_activation"},
	{"{'model_type': 'gpt2', 'activation_function': 'quick_gelu'}", -ENOTSUP, "quick_gelu"},
	{"{'model_type': 'gpt2', 'activation_function': 'gelu_10'}", -ENOTSUP, "gelu_10"},
	{"{'model_type': 'gemma3_text', 'sliding_window_pattern': 0}", -EINVAL,
	 "sliding_window_pattern"},
};

START_TEST(configs_that_are_not_read_say_why)
{
	struct mfs_megatron_args a;

	unit_fails(parse(quoted(refused[_i].text), &a), &err, refused[_i].code, refused[_i].says);
	ck_assert_ptr_nonnull(strstr(err.msg, "config.json"));
}
END_TEST

START_TEST(arch_is_for_files_that_do_not_say)
{
	static const char text[] = "{\"hidden_size\": 64, \"num_attention_heads\": 4, "
				   "\"num_key_value_heads\": 2}";
	static const char llama[] = "{\"model_type\": \"llama\"}";
	struct mfs_megatron_args a;

	unit_ok(mfs_hf_args_parse(text, strlen(text), "c", "qwen2", &arena, &a, &family, &whole,
				  &err),
		&err);
	ck_assert_str_eq(family->name, "qwen2");
	unit_ok(mfs_hf_args_parse(llama, strlen(llama), "c", "llama", &arena, &a, &family, &whole,
				  &err),
		&err);
	unit_fails(mfs_hf_args_parse(llama, strlen(llama), "c", "gpt2", &arena, &a, &family, &whole,
				     &err),
		   &err, -ENOTSUP, "gpt2");
	unit_fails(mfs_hf_args_parse(llama, strlen(llama), "c", "bert", &arena, &a, &family, &whole,
				     &err),
		   &err, -EINVAL, "no such family");
}
END_TEST

/* Classes whose defaults are a model that Megatron cannot express. */
static bool is_none_of_megatron(const struct mfs_family *f)
{
	return !strcmp(f->name, "gpt-neox") || !strcmp(f->name, "internlm2");
}

/* Every family has its defaults, and they are a whole model of it. */
START_TEST(defaults_of_every_family)
{
	for (const struct mfs_family *const *f = mfs_families(); *f; f++) {
		json_t *defaults = json_loads((*f)->defaults, JSON_REJECT_DUPLICATES, NULL);
		struct mfs_megatron_args a;
		char only[128];

		ck_assert(json_is_object(defaults));
		json_decref(defaults);
		snprintf(only, sizeof(only), "{'model_type': '%s', 'architectures': ['%s']}",
			 (*f)->model_type, (*f)->architecture);
		if ((*f)->language) /* its text family's, and its own: vision_language_models */
			continue;
		if ((*f)->impossible || is_none_of_megatron(*f)) {
			unit_fails(parse(quoted(only), &a), &err, -ENOTSUP,
				   (*f)->impossible ? (*f)->impossible : "expected false");
			continue;
		}
		if (!strcmp((*f)->name, "exaone4")) { /* the 32B's window */
			unit_fails(parse(quoted(only), &a), &err, -ENOTSUP, "sliding_window");
			continue;
		}
		if (!strcmp((*f)->name, "deepseek-v2")) { /* its class leaves the top k open */
			unit_fails(parse(quoted(only), &a), &err, -EINVAL, "num_experts_per_tok");
			continue;
		}
		a = accepted(only);
		ck_assert_int_gt(a.num_layers, 0);
		ck_assert_ptr_eq(family, *f);
	}
}
END_TEST

static void tear_down(void)
{
	mfs_arena_release(&arena);
}

Suite *mfs_suite(void)
{
	Suite *s = suite_create("hf_args");
	TCase *c = tcase_create("round trip");

	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_loop_test(c, every_family_comes_back, 0, MFS_ARRAY_SIZE(fakes));
	tcase_add_test(c, attention_comes_back);
	tcase_add_test(c, experts_come_back);
	tcase_add_test(c, deepseek_comes_back);
	suite_add_tcase(s, c);
	c = unit_case(s, "read", defaults_are_the_class_s);
	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_test(c, null_is_computed);
	tcase_add_test(c, other_words_for_a_key);
	tcase_add_test(c, rotary_forms);
	tcase_add_test(c, parts_of_heads);
	tcase_add_test(c, yarn_scales);
	tcase_add_test(c, windows_are_megatrons);
	tcase_add_test(c, vision_language_models);
	tcase_add_test(c, windows_of_some_layers);
	tcase_add_test(c, keys_without_a_row);
	tcase_add_test(c, published_files);
	tcase_add_test(c, keys_that_say_it_again);
	tcase_add_test(c, layer_types_of_a_mistral);
	tcase_add_test(c, windows_of_gemma_3);
	tcase_add_test(c, activations_have_megatrons_names);
	tcase_add_test(c, layers_with_experts);
	tcase_add_test(c, layers_with_linear_attention);
	tcase_add_test(c, layers_of_one_sublayer);
	tcase_add_test(c, kimi_is_a_deepseek);
	tcase_add_test(c, the_class_decides);
	tcase_add_test(c, all_layers_dense);
	tcase_add_test(c, defaults_of_every_family);
	c = unit_case(s, "refused", arch_is_for_files_that_do_not_say);
	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_loop_test(c, configs_that_are_not_read_say_why, 0, MFS_ARRAY_SIZE(refused));
	return s;
}
