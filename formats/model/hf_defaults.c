/*
 * The defaults of transformers' classes for keys that a config.json leaves out, as of transformers
 * 5.19 (configuration_NAME.py; tests/interop/test_hf_source.py compares them). Only keys that
 * hf_args.c reads are listed. null: the class computes the value. num_nextn_predict_layers is
 * absent, since the weights of older files tell it.
 */
#include <string.h>

#include "formats/model/hf_args.h"

static const struct {
	const char *model_type, *json;
} classes[] = {
	{"llama", "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008,"
		  " \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
		  " \"num_key_value_heads\": null, \"head_dim\": null, \"hidden_act\": \"silu\","
		  " \"max_position_embeddings\": 2048, \"initializer_range\": 0.02,"
		  " \"rms_norm_eps\": 1e-06, \"tie_word_embeddings\": false,"
		  " \"rope_theta\": 10000.0, \"attention_bias\": false, \"mlp_bias\": false}"},
	{"qwen2", "{\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016,"
		  " \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
		  " \"num_key_value_heads\": 32, \"head_dim\": null, \"hidden_act\": \"silu\","
		  " \"max_position_embeddings\": 32768, \"initializer_range\": 0.02,"
		  " \"rms_norm_eps\": 1e-06, \"tie_word_embeddings\": false,"
		  " \"rope_theta\": 10000.0, \"use_sliding_window\": false,"
		  " \"sliding_window\": 4096, \"max_window_layers\": 28, \"layer_types\": null}"},
	{"qwen3", "{\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016,"
		  " \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
		  " \"num_key_value_heads\": 32, \"head_dim\": 128, \"hidden_act\": \"silu\","
		  " \"max_position_embeddings\": 32768, \"initializer_range\": 0.02,"
		  " \"rms_norm_eps\": 1e-06, \"tie_word_embeddings\": false,"
		  " \"rope_theta\": 10000.0, \"attention_bias\": false,"
		  " \"use_sliding_window\": false, \"sliding_window\": 4096,"
		  " \"max_window_layers\": 28, \"layer_types\": null}"},
	{"mixtral", "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336,"
		    " \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
		    " \"num_key_value_heads\": 8, \"head_dim\": null, \"hidden_act\": \"silu\","
		    " \"max_position_embeddings\": 131072, \"initializer_range\": 0.02,"
		    " \"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": false,"
		    " \"rope_theta\": 1000000.0, \"sliding_window\": null,"
		    " \"num_experts_per_tok\": 2, \"num_local_experts\": 8,"
		    " \"router_aux_loss_coef\": 0.001}"},
	{"deepseek_v3",
	 "{\"vocab_size\": 129280, \"hidden_size\": 7168, \"intermediate_size\": 18432,"
	 " \"moe_intermediate_size\": 2048, \"num_hidden_layers\": 61,"
	 " \"num_attention_heads\": 128, \"num_key_value_heads\": 128,"
	 " \"n_shared_experts\": 1, \"n_routed_experts\": 256,"
	 " \"routed_scaling_factor\": 2.5, \"kv_lora_rank\": 512, \"q_lora_rank\": 1536,"
	 " \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"qk_nope_head_dim\": 128,"
	 " \"n_group\": 8, \"topk_group\": 4, \"num_experts_per_tok\": 8,"
	 " \"first_k_dense_replace\": 3, \"norm_topk_prob\": true, \"hidden_act\": \"silu\","
	 " \"max_position_embeddings\": 4096, \"initializer_range\": 0.02,"
	 " \"rms_norm_eps\": 1e-06, \"tie_word_embeddings\": false,"
	 " \"rope_theta\": 10000.0, \"rope_interleave\": true, \"attention_bias\": false,"
	 " \"num_nextn_predict_layers\": 1}"},
	{"gpt2", "{\"vocab_size\": 50257, \"n_positions\": 1024, \"n_embd\": 768,"
		 " \"n_layer\": 12, \"n_head\": 12, \"n_inner\": null,"
		 " \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05,"
		 " \"initializer_range\": 0.02, \"scale_attn_weights\": true,"
		 " \"scale_attn_by_inverse_layer_idx\": false, \"add_cross_attention\": false,"
		 " \"tie_word_embeddings\": true}"},
};

const char *mfs_hf_defaults(const struct mfs_family *family)
{
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (!strcmp(classes[i].model_type, family->model_type))
			return classes[i].json;
	return NULL;
}
