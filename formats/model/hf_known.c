#include "formats/model/hf_known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"

/* ---- keys ---- */

/* Read by a function of its own, not by a row; or computed by the class from others. */
static const char *const read_elsewhere[] = {
	"architectures",
	"dtype",
	"full_attention_interval",
	"layers_block_type",
	"mamba_dt_limit",
	"max_position_embeddings",
	"model_type",
	"num_nextn_predict_layers",
	"original_max_position_embeddings",
	"partial_rotary_factor",
	"qk_head_dim",
	"quantization_config",
	"rope_local_base_freq",
	"rope_parameters",
	"rope_scaling",
	"rope_theta",
	"tie_word_embeddings",
	"time_step_limit",
	"torch_dtype",
	"vocab_size",
};

static const char *const copied[] = {
	"auto_map",	"mamba_ssm_cache_dtype", "mamba_ssm_dtype",
	"sep_token_id", "tokenizer_class",	 "transformers_version",
};

/* Of training and of classes' other heads; how a reader runs; how it generates (a view has a
 * generation_config.json); where the file came from. */
static const char *const left[] = {
	"_attn_implementation",
	"_attn_implementation_autoset",
	"_attn_implementation_internal",
	"_commit_hash",
	"_experts_implementation",
	"_experts_implementation_internal",
	"_flash_attn_2_enabled",
	"_from_model_config",
	"_name_or_path",
	"_sliding_window_pattern",
	"attention_dropout",
	"attention_dropout_prob",
	"attention_probs_dropout_prob",
	"attention_softmax_in_fp32",
	"attn_implementation",
	"attn_pdrop",
	"aux_loss_alpha",
	"bad_words_ids",
	"base_model_pp_plan",
	"base_model_tp_plan",
	"begin_suppress_tokens",
	"bos_token_id",
	"boi_token_index",
	"cache_implementation",
	"chunk_size_feed_forward",
	"classifier_bias",
	"classifier_dropout",
	"classifier_dropout_prob",
	"cross_attention_hidden_size",
	"decoder_start_token_id",
	"distributed_config",
	"diversity_penalty",
	"do_sample",
	"early_stopping",
	"embd_pdrop",
	"embedding_dropout",
	"encoder_no_repeat_ngram_size",
	"eoi_token_index",
	"eos_token_id",
	"ep_size",
	"experts_implementation",
	"exponential_decay_length_penalty",
	"ffn_dim_multiplier",
	"finetuning_task",
	"forced_bos_token_id",
	"forced_eos_token_id",
	"fusion_config",
	"gradient_checkpointing",
	"hidden_dropout",
	"hidden_dropout_prob",
	"id2label",
	"image_token_id",
	"image_token_index",
	"initial_context_length",
	"initializer_range",
	"input_jitter_noise",
	"is_decoder",
	"is_llama_config",
	"keys_to_ignore_at_inference",
	"label2id",
	"layernorm_full_attention_beta",
	"layernorm_linear_attention_beta",
	"layernorm_mlp_beta",
	"length_penalty",
	"low_cpu_mem_usage",
	"max_length",
	"max_model_len",
	"max_sequence_length",
	"max_window_layers",
	"mcorefs",
	"min_length",
	"mlp_dropout",
	"mlp_intermediate_size",
	"model_max_length",
	"moe_router_dtype",
	"moe_shared_expert_overlap",
	"mtp_hybrid_override_pattern",
	"mtp_layers_block_type",
	"mtp_loss_scaling_factor",
	"mtp_num_hidden_layers",
	"mtp_transformer_layers",
	"mtp_use_dedicated_embeddings",
	"multiple_of",
	"n_special",
	"name_or_path",
	"no_repeat_ngram_size",
	"num_beam_groups",
	"num_beams",
	"num_labels",
	"num_logits_to_keep",
	"num_mtp_layers",
	"num_mtp_modules",
	"num_return_sequences",
	"output_attentions",
	"output_hidden_states",
	"output_router_logits",
	"output_scores",
	"pad_token_id",
	"predict_special_tokens",
	"prefix",
	"pretraining_tp",
	"problem_type",
	"remove_invalid_values",
	"repetition_penalty",
	"rescale_prenorm_residual",
	"residual_in_fp32",
	"return_dict",
	"return_dict_in_generate",
	"resid_pdrop",
	"residual_dropout",
	"rotary_scaling_factor",
	"router_aux_loss_coef",
	"router_jitter_noise",
	"router_z_loss_coef",
	"scale_attention_softmax_in_fp32",
	"seq_aux",
	"shared_moe_mode",
	"sliding_window_size",
	"sub_configs",
	"summary_activation",
	"summary_first_dropout",
	"summary_last_dropout",
	"summary_proj_to_labels",
	"summary_type",
	"summary_use_proj",
	"suppress_tokens",
	"task_specific_params",
	"temperature",
	"tf_legacy_loss",
	"tie_encoder_decoder",
	"time_step_rank",
	"tokenizer",
	"top_k",
	"top_p",
	"torchscript",
	"tp_plan",
	"transformers.js_config",
	"typical_p",
	"unk_token_id",
	"unsloth_fixed",
	"unsloth_version",
	"use_bfloat16",
	"use_cache",
	"use_flash_attention_2",
	"use_flash_attn",
	"use_mamba_kernels",
	"use_mtp",
	"use_return_dict",
	"video_token_id",
	"vision_end_token_id",
	"vision_start_token_id",
	"vision_token_id",
	"z_loss_weight",
};

/* usual: the values that change nothing, as JSON, separated by blanks; the message names the first.
 * A list is usual if each of its elements is. expected: what the message names instead of it. */
static const struct computing {
	const char *key, *usual, *expected;
} computes[] = {
	{"add_bias", "false", NULL},
	{"add_cross_attention", "false", NULL},
	{"add_qkv_bias", "false", NULL},
	{"alibi", "false", NULL},
	{"altup_num_inputs", NULL, NULL},
	{"attention_bias", "false", NULL},
	{"attention_chunk_size", NULL, NULL},
	{"attention_multiplier", NULL, NULL},
	{"attention_out_bias", "false", NULL},
	{"attention_sink_size", "0", NULL},
	{"attention_window_size", NULL, NULL},
	{"attn_bias", "false", NULL},
	{"attn_config", NULL, NULL},
	{"attn_logit_softcapping", "0", NULL},
	{"attn_output_gate", "false", NULL},
	{"attn_scale", NULL, NULL},
	{"attn_temperature_tuning", "false 0", NULL},
	{"attn_type_list", "1", NULL},
	{"bias", "false", NULL},
	{"bidirectional", "false", NULL},
	{"block_configs", NULL, NULL},
	{"clip_qkv", NULL, NULL},
	{"decoder_sparse_step", "1", NULL},
	{"dim_model_base", NULL, NULL},
	{"dual_chunk_attention_config", NULL, NULL},
	{"emb_scale", "1", NULL},
	{"embedding_multiplier", "1", NULL},
	{"embedding_scale", "1", NULL},
	{"embedding_size", NULL, NULL},
	{"final_logit_softcapping", "0", NULL},
	{"first_k_dense_replace", "0", NULL},
	{"full_attn_mod", "1", NULL},
	{"hidden_size_per_layer_input", "0", NULL},
	{"index_topk", NULL, NULL},
	{"interleave_moe_layer_step", NULL, NULL},
	{"interpolate_factor", "1", NULL},
	{"is_causal", "true", NULL},
	{"is_encoder_decoder", "false", NULL},
	{"is_heterogeneous", "false", NULL},
	{"is_mm_prefix_lm", "false", NULL},
	{"is_prefix_lm", "false", NULL},
	{"key_multiplier", "1", NULL},
	{"laurel_rank", NULL, NULL},
	{"layer_group_size", NULL, NULL},
	{"layer_scale", "false", NULL},
	{"llama_4_scaling", NULL, NULL},
	{"lm_head_bias", "false", NULL},
	{"lm_head_multiplier", "1", NULL},
	{"logit_scale", "1", NULL},
	{"logits_mup_width_multiplier", "1", NULL},
	{"logits_scaling", "1", NULL},
	{"logit_softcap", "0", NULL},
	{"logits_soft_cap", "0", NULL},
	{"mamba_d_state", NULL, NULL},
	{"mlp_bias", "false", NULL},
	{"mlp_type", "\"default\"", NULL},
	{"mlp_only_layers", NULL, NULL},
	{"moe_latent_size", NULL, NULL},
	{"moe_layer_freq", "1", NULL},
	{"mscale", "1", NULL},
	{"mup_scale", "1", NULL},
	{"mup_width_multiplier", "1", NULL},
	{"no_rope_layer_interval", "0", NULL},
	{"no_rope_layers", "1", NULL},
	{"norm_topk_prob", "true", NULL},
	{"num_experts_per_token", NULL, NULL},
	{"num_kv_shared_layers", "0", NULL},
	{"parallel_attn", "false", NULL},
	{"parallel_residual", "false", NULL},
	{"per_layer_config", "false", "none: layers that differ are not read"},
	{"pruned_heads", "false", "none"},
	{"qk_layernorm", "false", NULL},
	{"qk_norm", "false", NULL},
	{"qkv_bias", "false", NULL},
	{"query_pre_attn_scalar", NULL, NULL},
	{"residual_multiplier", "1", NULL},
	{"residual_scale", "1", NULL},
	{"rope_interleave", "false", NULL},
	{"rope_interleaved", "false", NULL},
	{"rope_pct", "1", NULL},
	{"rope_percent", "1", NULL},
	{"rope_ratio", "1", NULL},
	{"rotary_emb_base", "10000", NULL},
	{"rotary_pct", "1", NULL},
	{"rotary_percent", "1", NULL},
	{"routed_scaling_factor", "1", NULL},
	{"scale_attn_by_inverse_layer_idx", "false", NULL},
	{"scale_attn_weights", "true", NULL},
	{"scale_depth", NULL, NULL},
	{"scale_emb", "1", NULL},
	{"scoring_func", "\"softmax\"", NULL},
	{"shared_expert_intermediate_size", "0", NULL},
	{"sliding_window_pattern", NULL, NULL},
	{"softmax_scale", NULL, NULL},
	{"swiglu_limit", "0", NULL},
	{"tie_lm_head", NULL, NULL},
	{"use_alibi", "false", NULL},
	{"use_bias", "false", NULL},
	{"use_bidirectional_attention", "false", NULL},
	{"use_causal_mask", "true", NULL},
	{"use_expert_bias", "false", NULL},
	{"use_mrope", "false", NULL},
	{"use_mup", "false", NULL},
	{"use_parallel_residual", "false", NULL},
	{"use_qk_layernorm", "false", NULL},
	{"use_qk_norm", "false", NULL},
	{"use_qkv_bias", "false", NULL},
	{"use_rope", "true", NULL},
	{"use_sliding_window", "false", NULL},
	{"value_residual", "false", NULL},
	{"width_multiplier", "1", NULL},
};

/* Keys with which files also say what all models of their class have: Qwen3-Coder has use_qk_norm,
 * MiMo attention_bias. */
static const struct {
	const char *key;
	mfs_features has;
} stated[] = {
	{"add_qkv_bias", MFS_HAS(QKV_BIAS)}, {"attention_bias", MFS_HAS(QKV_BIAS)},
	{"qk_layernorm", MFS_HAS(QK_NORM)},  {"qk_norm", MFS_HAS(QK_NORM)},
	{"qkv_bias", MFS_HAS(QKV_BIAS)},     {"use_qk_layernorm", MFS_HAS(QK_NORM)},
	{"use_qk_norm", MFS_HAS(QK_NORM)},   {"use_qkv_bias", MFS_HAS(QKV_BIAS)},
};

/* How the weights that lie next to the file are stored: nothing that other weights have. */
static const struct computing storing[] = {
	{"compression_config", "false", "none: quantised weights are not read"},
	{"quantization", "false", "none: MLX's quantised weights are not read"},
	{"transformers_weights", "false", "none: weights under their usual name"},
};

static bool listed(const char *const *table, size_t count, const char *key)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(table[i], key))
			return true;
	return false;
}

static bool has_row(const struct mfs_family *f, const char *key)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if (!strcmp(row->key, key))
			return true;
	for (const struct mfs_config_alias *a = f->aliases; a->key; a++)
		if (!strcmp(a->other, key))
			return true;
	return false;
}

/* ---- values ---- */

/* One of JSON's values with blanks between them. */
static bool is_one_of(const json_t *value, const char *usual)
{
	char word[32];

	while (usual && *usual) {
		const size_t len = strcspn(usual, " ");
		json_t *one;
		bool same;

		snprintf(word, sizeof(word), "%.*s", (int)len, usual);
		one = json_loads(word, JSON_DECODE_ANY, NULL);
		same = json_is_number(one) && json_is_number(value)
			       ? json_number_value(one) == json_number_value(value)
			       : json_equal(one, value);
		json_decref(one);
		if (same)
			return true;
		usual += len + strspn(usual + len, " ");
	}
	return false;
}

/* What says nothing: null, and lists and objects in which there is nothing. */
static bool is_usual(const json_t *value, const char *usual)
{
	const json_t *item;
	size_t i;

	if (json_is_null(value) || is_one_of(value, usual))
		return true;
	if (json_is_object(value))
		return !json_object_size(value);
	json_array_foreach(value, i, item)
	{
		if (!is_one_of(item, usual))
			return false;
	}
	return json_is_array(value);
}

static const char *text_of(const struct mfs_family *f, const char *key)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if (!strcmp(row->key, key) && row->kind == MFS_CONFIG_TEXT)
			return row->text;
	return NULL;
}

/* Classes look for their activation under one of these names. Where a file has others too, they may
 * only say the same. */
static bool same_activation(const struct mfs_family *f, const json_t *value)
{
	static const char *const keys[] = {"hidden_act", "hidden_activation", "activation_function",
					   "mlp_hidden_act"};
	const char *name = mfs_hf_activation(json_string_value(value)), *own = NULL;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys) && !own; i++)
		own = mfs_hf_activation(text_of(f, keys[i]));
	if (!own && f->required & MFS_HAS(GEGLU))
		own = "gelu_pytorch_tanh";
	return name && own && !strcmp(name, own);
}

/* Another name of the eps of norms than the one that the class reads. Where it says something else
 * than that one, no class reads it, and it is remarked on. */
static bool is_same_eps(const struct mfs_megatron_args *a, const char *key, const json_t *value)
{
	static const char *const names[] = {"layer_norm_eps", "layer_norm_epsilon", "norm_eps",
					    "norm_epsilon", "rms_norm_eps"};

	return listed(names, MFS_ARRAY_SIZE(names), key) && json_is_number(value) &&
	       json_number_value(value) == a->norm_epsilon;
}

static bool is_number(const json_t *value, int64_t n)
{
	return json_is_integer(value) && json_integer_value(value) == n;
}

/* Keys whose usual value depends on the model. True: the key is one, and *ret_usual says whether
 * its value is usual; *ret_words: which one would be. */
static bool depends(const struct mfs_family *f, const struct mfs_megatron_args *a, const char *key,
		    const json_t *value, bool *ret_usual, const char **ret_words)
{
	const bool mla = f->required & MFS_HAS(MLA);
	const bool none = json_is_null(value);

	if (!strcmp(key, "head_dim")) {
		*ret_usual =
			none || is_number(value, mla ? a->qk_pos_emb_head_dim : a->kv_channels);
		*ret_words = mla ? "the same as 'qk_rope_head_dim'"
				 : "hidden_size over the number of heads: this class computes it";
	} else if (!strcmp(key, "num_key_value_heads")) {
		*ret_usual = none || mla || is_number(value, a->num_attention_heads);
		*ret_words = "the number of heads: this class has no groups";
	} else if (!strcmp(key, "layer_types") && f->required & MFS_HAS(HYBRID)) {
		*ret_usual = true; /* read with the pattern */
	} else if (!strcmp(key, "layer_types")) {
		*ret_usual = none || (is_usual(value, "\"full_attention\"") &&
				      a->window_size == MFS_ABSENT);
		*ret_words = "full attention in all layers: readers of this class differ in it";
	} else if (!strcmp(key, "sliding_window")) {
		*ret_usual = none || is_number(value, 0);
		*ret_words = "null: readers of this class differ in it";
	} else if (!strcmp(key, "hidden_act") || !strcmp(key, "hidden_activation") ||
		   !strcmp(key, "activation_function")) {
		*ret_usual = none || same_activation(f, value);
		*ret_words = "the activation of the class";
	} else if (!strcmp(key, "norm_type")) {
		*ret_words = f->required & MFS_HAS(LAYERNORM) ? "layer_norm" : "rms_norm";
		*ret_usual = none || mfs_str_is(json_string_value(value), *ret_words);
	} else {
		return false;
	}
	return true;
}

static bool is_stated(const struct mfs_family *f, const char *key, const json_t *value)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(stated); i++)
		if (!strcmp(stated[i].key, key))
			return json_is_true(value) && f->required & stated[i].has;
	return false;
}

static const struct computing *find(const struct computing *table, size_t count, const char *key)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(table[i].key, key))
			return &table[i];
	return NULL;
}

static enum mfs_hf_meaning unless_usual(const struct computing *row, const json_t *value,
					enum mfs_hf_meaning meaning, const char **ret_usual)
{
	*ret_usual = row->expected ? row->expected
		     : row->usual  ? row->usual
				   : "null: no argument of Megatron says this";
	return is_usual(value, row->usual) ? MFS_HF_LEFT : meaning;
}

enum mfs_hf_meaning mfs_hf_meaning_of(const struct mfs_family *f, const struct mfs_megatron_args *a,
				      const char *key, const json_t *value, const char **ret_usual)
{
	const struct computing *row;
	bool usual;

	*ret_usual = NULL;
	if (has_row(f, key))
		return MFS_HF_READ;
	if (depends(f, a, key, value, &usual, ret_usual))
		return usual ? MFS_HF_LEFT : MFS_HF_COMPUTES;
	if (is_stated(f, key, value) || is_same_eps(a, key, value))
		return MFS_HF_LEFT;
	if ((row = find(computes, MFS_ARRAY_SIZE(computes), key)))
		return unless_usual(row, value, MFS_HF_COMPUTES, ret_usual);
	if ((row = find(storing, MFS_ARRAY_SIZE(storing), key)))
		return unless_usual(row, value, MFS_HF_STORES, ret_usual);
	if (listed(copied, MFS_ARRAY_SIZE(copied), key))
		return MFS_HF_COPIED;
	if (listed(left, MFS_ARRAY_SIZE(left), key))
		return MFS_HF_LEFT;
	if (listed(read_elsewhere, MFS_ARRAY_SIZE(read_elsewhere), key))
		return MFS_HF_READ;
	return json_is_null(value) ? MFS_HF_LEFT : MFS_HF_UNKNOWN;
}

/* ---- words ---- */

const char *mfs_hf_key_in_words(const char *key, char *text, size_t size)
{
	json_t *string = json_string(key);
	char *json = json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	const size_t len = json ? strlen(json) : 0;

	if (len > 2)
		snprintf(text, size, "'%.*s'", len < 62 ? (int)len - 2 : 60, json + 1);
	else
		snprintf(text, size, "'?'");
	for (char *c = text; *c; c++)
		if (*c == 0x7f)
			*c = '?';
	free(json);
	json_decref(string);
	return text;
}

void mfs_hf_key_list_add(struct mfs_hf_key_list *list, const char *key)
{
	char word[64];
	const size_t used = strlen(list->text);

	mfs_hf_key_in_words(key, word, sizeof(word));
	if (list->more ||
	    used + strlen(word) + 2 + sizeof(" and 1000000 more") > sizeof(list->text))
		list->more++;
	else
		snprintf(list->text + used, sizeof(list->text) - used, "%s%s", used ? ", " : "",
			 word);
}

const char *mfs_hf_key_list_text(struct mfs_hf_key_list *list)
{
	const size_t used = strlen(list->text);

	if (list->more)
		snprintf(list->text + used, sizeof(list->text) - used, "%s%u more",
			 used ? " and " : "", list->more);
	return list->text;
}

const char *mfs_hf_activation(const char *name)
{
	static const char *const names[][2] = {
		{"swish", "silu"},
		{"gelu_python", "gelu"},
		{"gelu_new", "gelu_pytorch_tanh"},
		{"gelu_fast", "gelu_pytorch_tanh"},
		{"gelu_accurate", "gelu_pytorch_tanh"},
		{"gelu_python_tanh", "gelu_pytorch_tanh"},
	};

	for (size_t i = 0; name && i < MFS_ARRAY_SIZE(names); i++)
		if (!strcmp(names[i][0], name))
			return names[i][1];
	return name;
}
