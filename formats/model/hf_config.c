#include "formats/model/hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/hf_config_i.h"
#include "formats/model/families/family.h"

struct writer {
	struct mfs_model *model;
	const struct mfs_megatron_args *args;
	const struct mfs_hf_tokens *tokens; /* or NULL */
	mfs_features features;
	double llama3_factor;
};

/* ---- values that are more than a field ---- */

/* These are constants in Megatron (models/common/embeddings/rotary_pos_embedding.py:
 * _apply_scaling). */
static json_t *llama3_scaling(const struct writer *w)
{
	return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
			 w->llama3_factor, "low_freq_factor", 1.0, "high_freq_factor", 4.0,
			 "original_max_position_embeddings", 8192);
}

/* yarn_get_mscale of both sides: 0.1 mscale ln(factor) + 1. */
static double yarn_mscale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Megatron scales cos and sin by mscale(mscale) / mscale(mscale_all_dim). transformers ignores
 * mscale if one of the two is 0, so the quotient is written then. */
static json_t *yarn_scaling(const struct mfs_megatron_args *a)
{
	const double factor = a->rotary_scaling_factor;
	const double scale =
		yarn_mscale(factor, a->mscale) / yarn_mscale(factor, a->mscale_all_dim);
	json_t *yarn = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:I}", "rope_type", "yarn",
				 "factor", factor, "mscale", a->mscale, "mscale_all_dim",
				 a->mscale_all_dim, "beta_fast", a->beta_fast, "beta_slow",
				 a->beta_slow, "original_max_position_embeddings",
				 (json_int_t)a->original_max_position_embeddings);

	if ((a->mscale == 0 || a->mscale_all_dim == 0) && scale != yarn_mscale(factor, 1))
		json_object_set_new(yarn, "attention_factor", json_real(scale));
	if (a->yarn_unrounded)
		json_object_set_new(yarn, "truncate", json_false());
	return yarn;
}

static json_t *rope_scaling(const struct writer *w)
{
	if (w->features & MFS_HAS(ROPE_LLAMA3))
		return llama3_scaling(w);
	if (w->features & MFS_HAS(YARN))
		return yarn_scaling(w->args);
	if (w->features & MFS_HAS(ROPE_LINEAR))
		return json_pack("{s:s, s:f}", "rope_type", "linear", "factor",
				 w->args->rotary_seq_len_interpolation_factor);
	return json_null();
}

static json_t *rope_parameters(const struct writer *w)
{
	const struct mfs_family *f = w->model->family;
	json_t *scaling = rope_scaling(w);

	if (json_is_null(scaling))
		scaling = json_pack("{s:s}", "rope_type", "default");
	if (w->features & MFS_HAS(ROPE_TWO_BASES)) {
		json_object_set_new(scaling, "rope_theta", json_real(w->args->rotary_base));
		return json_pack("{s:o, s:{s:s, s:f}}", "full_attention", scaling,
				 "sliding_attention", "rope_type", "default", "rope_theta",
				 w->args->rotary_base_local);
	}
	json_object_set_new(scaling, "rope_theta", json_real(w->args->rotary_base));
	if ((f->required | f->optional) & MFS_HAS(ROPE_PARTIAL))
		json_object_set_new(scaling, "partial_rotary_factor",
				    json_real(w->args->rotary_percent));
	return scaling;
}

/* Appends to a list that may be NULL, for want of memory. */
static void append(json_t **list, json_t *value)
{
	if (json_array_append_new(*list, value)) {
		json_decref(*list);
		*list = NULL;
	}
}

static bool slides(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->window_size != MFS_ABSENT && (!a->window_layers || a->window_layers[layer]);
}

static json_t *layer_types(const struct writer *w)
{
	const struct mfs_megatron_args *a = w->args;
	json_t *types = json_array();

	for (int64_t i = 0; i < a->num_layers; i++)
		append(&types, json_string(slides(a, i) ? "sliding_attention" : "full_attention"));
	return types;
}

static json_t *linear_layer_types(const struct mfs_megatron_args *a)
{
	json_t *types = json_array();

	for (int64_t i = 0; i < a->num_layers; i++)
		append(&types, json_string(mfs_args_is_linear(a, i) ? "linear_attention"
								    : "full_attention"));
	return types;
}

/* Null if the layers without the window are not each Nth. If all have it, N is one that no layer
 * reaches. */
static json_t *window_interval(const struct mfs_megatron_args *a)
{
	int64_t n = 1;

	while (n <= a->num_layers && slides(a, n - 1))
		n++;
	for (int64_t i = 0; i < a->num_layers; i++)
		if (slides(a, i) != ((i + 1) % n != 0))
			return json_null();
	return json_integer(n);
}

/* Null if the layers with full attention are not each Nth. */
static json_t *full_attention_interval(const struct mfs_megatron_args *a)
{
	int64_t n = 1;

	while (n < a->num_layers && mfs_args_is_linear(a, n - 1))
		n++;
	for (int64_t i = 0; i < a->num_layers; i++)
		if (mfs_args_is_linear(a, i) != ((i + 1) % n != 0))
			return json_null();
	return json_integer(n);
}

/* Sliding, full, sliding, ... */
static json_t *alternating(const struct mfs_megatron_args *a)
{
	json_t *types = json_array();

	for (int64_t i = 0; i < a->num_layers; i++)
		append(&types, json_string(i % 2 ? "full_attention" : "sliding_attention"));
	return types;
}

/* A whole number, as transformers' classes want it. */
static json_t *query_pre_attn_scalar(const struct mfs_megatron_args *a)
{
	const double scale = a->softmax_scale;

	return json_integer(scale > 0 ? (json_int_t)llround(1 / (scale * scale)) : a->kv_channels);
}

static json_t *dense_layers(const struct mfs_megatron_args *a)
{
	json_t *numbers = json_array();

	for (int64_t i = 0; i < a->num_layers; i++)
		if (!mfs_args_is_moe(a, i))
			append(&numbers, json_integer(i));
	return numbers;
}

static json_t *mlp_layer_types(const struct mfs_megatron_args *a)
{
	json_t *types = json_array();

	for (int64_t i = 0; i < a->num_layers; i++)
		append(&types, json_string(mfs_args_is_moe(a, i) ? "sparse" : "dense"));
	return types;
}

/* transformers cannot build a model with a token id outside of the vocabulary. */
static json_t *token(const struct writer *w, int64_t id)
{
	return id >= 0 && (uint64_t)id < w->model->vocab.rows ? json_integer(id) : json_null();
}

static json_t *value_of(const struct writer *w, enum mfs_config_value value)
{
	static const struct mfs_hf_tokens none = MFS_HF_TOKENS_ABSENT;
	const struct mfs_hf_tokens *tokens = w->tokens ? w->tokens : &none;
	const struct mfs_megatron_args *a = w->args;
	const bool grouped = w->features & MFS_HAS(ROUTER_GROUPS);

	switch (value) {
	case MFS_VALUE_ARCHITECTURES:
		return json_pack("[s]", mfs_model_architecture(w->model));
	case MFS_VALUE_MODEL_TYPE:
		return json_string(w->model->model_type);
	case MFS_VALUE_DTYPE:
		return json_string(mfs_dtype_torch(w->model->dtype));
	case MFS_VALUE_VOCAB:
		return json_integer((json_int_t)w->model->vocab.rows);
	case MFS_VALUE_BOS:
		return token(w, tokens->bos);
	case MFS_VALUE_EOS:
		return token(w, tokens->eos);
	case MFS_VALUE_PAD:
		return token(w, tokens->pad);
	case MFS_VALUE_ROPE_SCALING:
		return rope_scaling(w);
	case MFS_VALUE_ROPE_PARAMETERS:
		return rope_parameters(w);
	case MFS_VALUE_LINEAR_LAYER_TYPES:
		return linear_layer_types(a);
	case MFS_VALUE_FULL_ATTENTION_INTERVAL:
		return full_attention_interval(a);
	case MFS_VALUE_HYBRID_PATTERN:
		return json_string(a->hybrid_layers);
	case MFS_VALUE_LAYER_TYPES:
		return layer_types(w);
	case MFS_VALUE_SHARED_EXPERTS:
		return json_integer(a->moe_shared_expert_intermediate_size /
				    a->moe_ffn_hidden_size);
	case MFS_VALUE_ROUTED_SCALE:
		return json_real(w->features & MFS_HAS(ROUTER_SCALE)
					 ? a->moe_router_topk_scaling_factor
					 : 1);
	case MFS_VALUE_EXPERT_GROUPS:
		return json_integer(grouped ? a->moe_router_num_groups : 1);
	case MFS_VALUE_GROUP_TOPK:
		return json_integer(grouped ? a->moe_router_group_topk : 1);
	case MFS_VALUE_DENSE_LAYERS:
		return dense_layers(a);
	case MFS_VALUE_MLP_LAYER_TYPES:
		return mlp_layer_types(a);
	case MFS_VALUE_GELU_TANH:
	case MFS_VALUE_LEGACY_GELU:
		return json_string("gelu_pytorch_tanh");
	case MFS_VALUE_QUERY_PRE_ATTN:
		return query_pre_attn_scalar(a);
	case MFS_VALUE_WINDOW_LEFT:
		return a->window_size == MFS_ABSENT ? json_null()
						    : json_integer(a->window_size - 1);
	case MFS_VALUE_ALTERNATING:
		return alternating(a);
	case MFS_VALUE_WINDOW_INTERVAL:
		return window_interval(a);
	case MFS_VALUE_ROTARY_DIM:
		return json_integer((json_int_t)((double)a->kv_channels * a->rotary_percent));
	case MFS_VALUE_NORM_TOPK:
		return json_boolean(a->moe_router_topk > 1);
	}
	return NULL;
}

/* ---- rows of the tables ---- */

static json_t *row_value(const struct writer *w, const struct mfs_config_row *row)
{
	const char *field = (const char *)w->args + row->field;
	int64_t integer;
	double real;

	switch (row->kind) {
	case MFS_CONFIG_INT:
		memcpy(&integer, field, sizeof(integer));
		return integer == MFS_ABSENT ? json_null() : json_integer(integer);
	case MFS_CONFIG_REAL:
		memcpy(&real, field, sizeof(real));
		return json_real(real);
	case MFS_CONFIG_HAS:
		return json_boolean((w->features & row->has) != 0);
	case MFS_CONFIG_LACKS:
		return json_boolean(!(w->features & row->has));
	case MFS_CONFIG_TEXT:
		return json_string(row->text);
	case MFS_CONFIG_NUMBER:
		return json_integer((json_int_t)row->number);
	case MFS_CONFIG_DECIMAL:
		return json_real(row->number);
	case MFS_CONFIG_TRUE:
		return json_true();
	case MFS_CONFIG_FALSE:
		return json_false();
	case MFS_CONFIG_NULL:
		return json_null();
	case MFS_CONFIG_VALUE:
		return value_of(w, row->value);
	}
	return NULL;
}

/* Later rows replace keys of earlier ones. -ENOMEM. */
static int write_rows(const struct writer *w, json_t *config)
{
	for (const struct mfs_config_row *row = w->model->family->config; row->key; row++)
		if (mfs_applies(row->when, row->unless, w->features) &&
		    json_object_set_new(config, row->key, row_value(w, row)))
			return -ENOMEM;
	return 0;
}

/* ---- what readers ignore and people want to know ---- */

static const char *source_name(enum mfs_vocab_source source)
{
	static const char *const names[] = {
		[MFS_VOCAB_PADDED] = "unknown, padding kept",
		[MFS_VOCAB_ARGS] = "arguments of the run",
		[MFS_VOCAB_OPTION] = "option",
		[MFS_VOCAB_REF] = "reference",
		[MFS_VOCAB_TOKENIZED] = "tokenizer",
	};

	return names[source];
}

static json_t *provenance(const struct mfs_model *m)
{
	return json_pack("{s:s, s:I, s:s}", "family", m->family->name, "padded_vocab_size",
			 (json_int_t)m->vocab.padded, "vocab_size_source",
			 source_name(m->vocab.source));
}

/* Token ids of a reference: one outside of the vocabulary crashes readers when they load the
 * model. */
static int check_tokens(struct mfs_model *m, json_t *config)
{
	static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

	for (size_t i = 0; i < 3; i++) {
		const json_t *id = json_object_get(config, keys[i]);
		const json_int_t n = json_integer_value(id);

		if (!json_is_integer(id) || (n >= 0 && (uint64_t)n < m->vocab.rows))
			continue;
		if (mfs_model_warn(
			    m,
			    "the reference's %s %lld is outside of the vocabulary of %llu rows "
			    "and was left out",
			    keys[i], (long long)n, (unsigned long long)m->vocab.rows) ||
		    json_object_set_new(config, keys[i], json_null()))
			return -ENOMEM;
	}
	return 0;
}

/* The reference's factor, or what is known without one, with a word to the person where the run's
 * arguments say another. -ENOMEM. */
static int decide_llama3(struct writer *w, const struct mfs_hf_ref *ref)
{
	const struct mfs_megatron_args *a = w->args;
	const double given =
		a->rope_scaling_ignored != 0 ? a->rope_scaling_ignored : a->rope_scaling_factor;
	const bool is_hf = mfs_ckpt_format(w->model->ckpt)->is_hf;
	const double theirs = ref && !is_hf ? mfs_hf_ref_llama3_factor(ref) : 0;

	w->llama3_factor = theirs > 0 ? theirs : a->rope_scaling_factor;
	if (!(w->features & MFS_HAS(ROPE_LLAMA3)) || w->llama3_factor == given)
		return 0;
	if (theirs > 0)
		return theirs == a->rope_scaling_factor
			       ? 0
			       : mfs_model_warn(
					 w->model,
					 "config.json has the rotary scaling's factor %g "
					 "from the reference, not %g from the run's arguments",
					 theirs, given);
	return mfs_model_warn(w->model,
			      "the run's rope_scaling_factor is %g, but config.json has %g: "
			      "releases of Megatron up to core 0.19 do not pass it to the model; "
			      "if this run did, give the model's config.json with ref=DIR",
			      given, w->llama3_factor);
}

int mfs_hf_config_json(struct mfs_model *model, const struct mfs_hf_ref *ref,
		       const struct mfs_hf_tokens *tokens, char **ret, size_t *ret_len,
		       struct mfs_error *err)
{
	struct writer w = {
		.model = model,
		.args = mfs_ckpt_args(model->ckpt),
		.tokens = tokens,
		.features = model->features,
	};
	json_t *config = json_object();
	int rc = config ? decide_llama3(&w, ref) : -ENOMEM;

	if (!rc)
		rc = write_rows(&w, config);
	if (!rc && ref)
		rc = mfs_hf_ref_merge(ref, model, config, err);
	else if (rc)
		mfs_fail_nomem(err);
	if (!rc && (check_tokens(model, config) ||
		    json_object_set_new(config, "mcorefs", provenance(model))))
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_json_text(config, ret, ret_len, err);
	json_decref(config);
	return rc;
}

/* "torch_dtype" is for transformers 4, "dtype" for 5. */
/* Writes root as the config, and drops it. rc: what became of root so far. */
static int replace_config(char **config, size_t *len, json_t *root, int rc, struct mfs_error *err)
{
	char *text;

	if (!rc)
		rc = mfs_json_text(root, &text, len, err);
	json_decref(root);
	if (rc)
		return rc;
	free(*config);
	*config = text;
	return 0;
}

int mfs_hf_config_set_dtype(char **config, size_t *len, enum mfs_dtype dtype, struct mfs_error *err)
{
	const char *name = mfs_dtype_torch(dtype);
	json_t *root;
	int rc = mfs_json_load(*config, *len, SIZE_MAX, 0, "config.json", &root, err);

	if (rc)
		return rc;
	json_object_del(root, "quantization_config");
	if (json_object_set_new(root, "dtype", json_string(name)) ||
	    json_object_set_new(root, "torch_dtype", json_string(name)))
		rc = mfs_fail_nomem(err);
	return replace_config(config, len, root, rc, err);
}

/* As DeepSeek-V3 and Qwen 3 are published. */
static json_t *fp8_config(const uint64_t *block, const char *const *kept, uint32_t kept_count)
{
	json_t *q = json_pack("{s:s, s:s, s:s}", "quant_method", "fp8", "fmt", "e4m3",
			      "activation_scheme", "dynamic");
	json_t *names = json_array();
	bool failed = !q || !names;

	if (!failed && block)
		failed = json_object_set_new(
			q, "weight_block_size",
			json_pack("[I, I]", (json_int_t)block[0], (json_int_t)block[1]));
	for (uint32_t i = 0; i < kept_count && !failed; i++)
		failed = json_array_append_new(names, json_string(kept[i]));
	/* transformers' name, and vLLM's for weights that have one scale */
	failed = failed || json_object_set(q, "modules_to_not_convert", names) ||
		 json_object_set(q, "ignored_layers", names);
	json_decref(names);
	if (!failed)
		return q;
	json_decref(q);
	return NULL;
}

int mfs_hf_config_set_fp8(char **config, size_t *len, const uint64_t *block,
			  const char *const *kept, uint32_t kept_count, struct mfs_error *err)
{
	json_t *root, *q;
	int rc = mfs_json_load(*config, *len, SIZE_MAX, 0, "config.json", &root, err);

	if (rc)
		return rc;
	q = fp8_config(block, kept, kept_count);
	if (!q || json_object_set_new(root, "quantization_config", q))
		rc = mfs_fail_nomem(err);
	return replace_config(config, len, root, rc, err);
}

int mfs_hf_generation_json(const char *config, size_t config_len, char **ret, size_t *ret_len,
			   struct mfs_error *err)
{
	static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
	json_t *root, *generation;
	int rc;

	rc = mfs_json_load(config, config_len, SIZE_MAX, 0, "config.json", &root, err);
	if (rc)
		return rc;
	generation = json_pack("{s:b}", "_from_model_config", 1);
	rc = generation ? 0 : mfs_fail_nomem(err);
	for (size_t i = 0; i < 3 && !rc; i++) {
		json_t *id = json_object_get(root, keys[i]);

		if (id && !json_is_null(id) && json_object_set(generation, keys[i], id))
			rc = mfs_fail_nomem(err);
	}
	if (!rc)
		rc = mfs_json_text(generation, ret, ret_len, err);
	json_decref(generation);
	json_decref(root);
	return rc;
}
