/* The keys of a family's tables (family.h: struct mfs_config_row), read backwards. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/model/hf_args_i.h"
#include "formats/model/hf_known.h"
#include "formats/base/str.h"
#include "formats/base/tensor.h"
#include "formats/model/features.h"
#include "formats/args/hybrid_layers.h"

#define MAX_LAYERS  100000
#define MAX_EXPERTS 100000

/* ---- keys of one type ---- */

static bool flag(struct mfs_hf_reader *r, const char *key)
{
	return mfs_hf_bool(r, key, mfs_hf_key(r, key), false);
}

static int64_t positive(struct mfs_hf_reader *r, const char *key)
{
	const json_t *found = mfs_hf_set_key(r, key);
	const int64_t n = mfs_hf_integer(r, key, found, 1, MFS_ABSENT);

	if (n == MFS_ABSENT)
		mfs_hf_refuse(r, -ENODATA, key, mfs_hf_key(r, key), "a positive number");
	return n;
}

/* ---- rows of the tables ---- */

typedef void (*each_row)(struct mfs_hf_reader *r, const struct mfs_config_row *row);

/* True if the row may count here. Rows with a condition are variants of one key, which a function
 * of its own reads below; but sizes of experts are read though dense models do not have them. */
static bool is_read(const struct mfs_config_row *row)
{
	return (!row->when && !row->unless) ||
	       (row->kind == MFS_CONFIG_INT && row->when == MFS_HAS(MOE) && !row->unless);
}

static void for_rows(struct mfs_hf_reader *r, each_row f)
{
	for (const struct mfs_config_row *row = r->family->config; row->key && !r->rc; row++)
		if (is_read(row))
			f(r, row);
}

/* The key that a field was read from before row was; NULL: none. Keys that share a field (n_ctx,
 * n_positions) must agree. */
static const char *earlier_key(const struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	for (const struct mfs_config_row *w = r->family->config; w->key && w != row; w++)
		if (w->kind == MFS_CONFIG_INT && w->field == row->field && !w->when && !w->unless &&
		    strcmp(w->key, row->key))
			return w->key;
	return NULL;
}

/* Counts of layers may be 0. Sizes that the class can compute or omit may be null. */
static bool may_be_zero(const struct mfs_config_row *row)
{
	return row->field == MFS_FIELD(first_dense_layers) ||
	       row->field == MFS_FIELD(mtp_num_layers);
}

static bool may_be_null(const struct mfs_config_row *row)
{
	return row->field == MFS_FIELD(num_query_groups) || row->field == MFS_FIELD(kv_channels) ||
	       row->field == MFS_FIELD(ffn_hidden_size) || row->field == MFS_FIELD(window_size) ||
	       row->field == MFS_FIELD(q_lora_rank) || may_be_zero(row);
}

static void read_integer(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	int64_t *field = (int64_t *)((char *)r->args + row->field);
	const json_t *found = mfs_hf_key(r, row->key);
	const char *earlier = earlier_key(r, row);
	const int64_t none = may_be_zero(row) ? 0 : MFS_ABSENT;
	char expected[96];
	int64_t n;

	if (row->kind != MFS_CONFIG_INT || !found)
		return;
	n = mfs_hf_integer(r, row->key, found, !may_be_zero(row), none);
	if (json_is_null(found) && !may_be_null(row) && !earlier)
		mfs_hf_refuse(r, -EINVAL, row->key, found, "a positive number");
	if (!earlier) {
		*field = n;
	} else if (!json_is_null(found) && n != *field) {
		snprintf(expected, sizeof(expected), "%lld like '%s'", (long long)*field, earlier);
		mfs_hf_refuse(r, -ENOTSUP, row->key, found, expected);
	}
}

static void read_real(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	double *field = (double *)((char *)r->args + row->field);
	const json_t *found = mfs_hf_key(r, row->key);

	/* These stand elsewhere in other releases: mfs_hf_read_positions() looks for them. */
	if (row->kind != MFS_CONFIG_REAL || !found || row->field == MFS_FIELD(rotary_base) ||
	    row->field == MFS_FIELD(rotary_percent) || row->field == MFS_FIELD(rotary_base_local))
		return;
	*field = mfs_hf_real(r, row->key, found, NAN);
	if (isnan(*field) || *field < 0)
		mfs_hf_refuse(r, -EINVAL, row->key, found, "a number, not negative");
}

/* The arguments that give a model a feature, and have no other value (features.c, backwards). */
static const struct {
	mfs_features feature;
	size_t field;
} switches[] = {
	{MFS_HAS(LAYERNORM), MFS_FIELD(layernorm)},
	{MFS_HAS(ZERO_CENTERED), MFS_FIELD(zero_centered_gamma)},
	{MFS_HAS(SWIGLU), MFS_FIELD(swiglu)},
	{MFS_HAS(QUICK_GEGLU), MFS_FIELD(quick_geglu)},
	{MFS_HAS(GEGLU), MFS_FIELD(geglu)},
	{MFS_HAS(RELU2), MFS_FIELD(squared_relu)},
	{MFS_HAS(LINEAR_BIAS), MFS_FIELD(add_bias_linear)},
	{MFS_HAS(QKV_BIAS), MFS_FIELD(add_qkv_bias)},
	{MFS_HAS(QK_NORM), MFS_FIELD(qk_layernorm)},
	{MFS_HAS(QK_NORM_WIDE), MFS_FIELD(qk_norm_wide)},
	{MFS_HAS(POST_NORMS), MFS_FIELD(post_norms)},
	{MFS_HAS(ROPE_INTERLEAVED), MFS_FIELD(rotary_interleaved)},
	{MFS_HAS(OUTPUT_GATE), MFS_FIELD(attention_output_gate)},
	{MFS_HAS(SINKS), MFS_FIELD(learnable_softmax)},
	{MFS_HAS(TIED), MFS_FIELD(tied)},
	{MFS_HAS(MLA), MFS_FIELD(multi_latent_attention)},
	{MFS_HAS(SHARED_GATE), MFS_FIELD(moe_shared_expert_gate)},
	{MFS_HAS(PRE_SOFTMAX), MFS_FIELD(moe_router_pre_softmax)},
	{MFS_HAS(EXPERT_BIAS), MFS_FIELD(moe_router_enable_expert_bias)},
};

static void switch_on(struct mfs_megatron_args *a, mfs_features features)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(switches); i++)
		if (features & switches[i].feature)
			*(bool *)((char *)a + switches[i].field) = true;
}

static bool states_features(const struct mfs_config_row *row)
{
	return row->kind == MFS_CONFIG_HAS || row->kind == MFS_CONFIG_LACKS;
}

/* True if the key says that the model has the row's features. */
static bool says_has(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	return flag(r, row->key) == (row->kind == MFS_CONFIG_HAS);
}

static void read_has(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	if (states_features(row) && says_has(r, row))
		switch_on(r->args, row->has);
}

/* A key that states a feature must agree with the arguments: several keys (attention_bias,
 * mlp_bias) may be one switch in Megatron. */
static void check_has(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	const bool has = mfs_features_of(r->args) & row->has;

	/* read_window() has read it, with the layers that it applies to. */
	if (!states_features(row) || row->has & MFS_HAS(WINDOW) || says_has(r, row) == has)
		return;
	mfs_hf_refuse(r, -ENOTSUP, row->key, mfs_hf_key(r, row->key),
		      has == (row->kind == MFS_CONFIG_HAS)
			      ? "true: Megatron has all of a model's biases or none"
			      : "false: no argument of Megatron says this");
}

/* Keys whose value is the same in all models that Megatron can train. */
static void check_constant(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	const json_t *found = mfs_hf_set_key(r, row->key);
	char expected[64];
	bool same = true;

	if (!found || row->ref != MFS_REF_AGREES)
		return;
	switch (row->kind) {
	case MFS_CONFIG_TEXT:
		same = mfs_str_is(mfs_hf_activation(json_string_value(found)), row->text);
		snprintf(expected, sizeof(expected), "\"%s\"", row->text);
		break;
	case MFS_CONFIG_NUMBER:
	case MFS_CONFIG_DECIMAL:
		same = json_is_number(found) && json_number_value(found) == row->number;
		snprintf(expected, sizeof(expected), "%g", row->number);
		break;
	case MFS_CONFIG_TRUE:
	case MFS_CONFIG_FALSE:
		same = row->kind == MFS_CONFIG_TRUE ? json_is_true(found) : json_is_false(found);
		snprintf(expected, sizeof(expected), "%s",
			 row->kind == MFS_CONFIG_TRUE ? "true" : "false");
		break;
	case MFS_CONFIG_NULL:
		same = false;
		snprintf(expected, sizeof(expected), "null");
		break;
	default:
		break;
	}
	if (!same)
		mfs_hf_refuse(r, -ENOTSUP, row->key, found, expected);
}

/* ---- values that are more than a field (enum mfs_config_value) ---- */

/* True if layer i has sliding attention: by layer_types, or else as Qwen2Config computes it. */
static bool slides(struct mfs_hf_reader *r, const json_t *types, size_t i, bool windowed)
{
	const size_t listed = json_array_size(types);
	const json_t *pattern = json_object_get(r->defaults, "sliding_window_pattern");
	const json_t *type = listed ? json_array_get(types, i % listed) : NULL;
	const char *text = json_string_value(type);

	if (!types && pattern) { /* each Nth sees all: Gemma3TextConfig */
		const int64_t n = positive(r, "sliding_window_pattern");

		return windowed && !r->rc && ((int64_t)i + 1) % n != 0;
	}
	if (!types)
		return windowed &&
		       (int64_t)i >= mfs_hf_integer(r, "max_window_layers",
						    mfs_hf_key(r, "max_window_layers"), 0, 0);
	if (text && !strcmp(text, "sliding_attention"))
		return true;
	if (!text || strcmp(text, "full_attention"))
		mfs_hf_refuse(r, -ENOTSUP, "layer_types", type,
			      "\"full_attention\" or \"sliding_attention\"");
	return false;
}

/* Qwen's classes forget their window unless a key says that they use it. */
static bool uses_window(struct mfs_hf_reader *r)
{
	for (const struct mfs_config_row *row = r->family->config; row->key; row++)
		if (!strcmp(row->key, "use_sliding_window"))
			return flag(r, row->key);
	return true;
}

/* True if the class's number is that of the tokens to the left (read_window_left()). */
static bool is_window_left(const struct mfs_hf_reader *r)
{
	for (const struct mfs_config_row *row = r->family->config; row->key; row++)
		if (row->kind == MFS_CONFIG_VALUE && row->value == MFS_VALUE_WINDOW_LEFT)
			return true;
	return false;
}

static void read_window(struct mfs_hf_reader *r)
{
	const json_t *types = mfs_hf_set_key(r, "layer_types");
	/* A default is a pattern that the layers repeat. */
	const bool is_pattern = types && types == json_object_get(r->defaults, "layer_types");
	const json_t *size = uses_window(r) ? mfs_hf_set_key(r, "sliding_window") : NULL;
	const int64_t layers = r->args->num_layers;
	uint8_t *has = mfs_arena_alloc(r->arena, (size_t)layers);
	int64_t sliding = 0;

	if (!has) {
		r->rc = mfs_fail_nomem(r->err);
		return;
	}

	if (types && !is_pattern && json_array_size(types) != (size_t)layers)
		mfs_hf_refuse(r, -EINVAL, "layer_types", types, "one text a layer");
	for (int64_t i = 0; i < layers && !r->rc; i++)
		sliding += has[i] = slides(r, types, (size_t)i, size);
	r->args->window_size = MFS_ABSENT;
	if (!sliding || r->rc)
		return;
	r->args->window_layers = sliding < layers ? has : NULL;
	if (sliding < layers && !mfs_hf_may(r, MFS_HAS(WINDOW_MIXED)))
		mfs_hf_refuse(r, -ENOTSUP, types ? "layer_types" : "max_window_layers",
			      types ? types : mfs_hf_key(r, "max_window_layers"),
			      "sliding-window attention in all layers or in none");
	r->args->window_size = mfs_hf_integer(r, "sliding_window", size, 1, MFS_ABSENT);
	if (r->args->window_size == MFS_ABSENT)
		mfs_hf_refuse(r, -EINVAL, "sliding_window", mfs_hf_key(r, "sliding_window"),
			      "a number that is in use: layer_types has sliding layers");
	else
		r->args->window_size += is_window_left(r);
}

/* A text for each layer; without them every Nth layer has full attention. */
static void read_linear_layers(struct mfs_hf_reader *r, const char *key)
{
	const json_t *types = mfs_hf_set_key(r, key);
	const int64_t layers = r->args->num_layers;
	const int64_t every = types ? 0 : positive(r, "full_attention_interval");
	uint8_t *has = mfs_arena_alloc(r->arena, (size_t)layers);

	if (!has) {
		r->rc = mfs_fail_nomem(r->err);
		return;
	}
	if (types && json_array_size(types) != (size_t)layers)
		mfs_hf_refuse(r, -EINVAL, key, types, "one text a layer");
	for (int64_t i = 0; i < layers && !r->rc; i++) {
		const json_t *type = json_array_get(types, (size_t)i);
		const char *text = json_string_value(type);

		has[i] = types ? mfs_str_is(text, "linear_attention") : (i + 1) % every != 0;
		if (types && !has[i] && !mfs_str_is(text, "full_attention"))
			mfs_hf_refuse(r, -ENOTSUP, key, type,
				      "\"full_attention\" or \"linear_attention\"");
	}
	if (r->args->linear_num_value_heads % r->args->linear_num_key_heads)
		mfs_hf_refuse(r, -EINVAL, "linear_num_value_heads",
			      mfs_hf_key(r, "linear_num_value_heads"),
			      "a multiple of 'linear_num_key_heads'");
	r->args->linear_layers = has;
}

/* ---- hybrid models ---- */

static const struct mfs_config_row *hybrid_row(const struct mfs_family *f)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if (row->kind == MFS_CONFIG_VALUE && row->value == MFS_VALUE_HYBRID_PATTERN)
			return row;
	return NULL;
}

/* A layer's letter, by its type in transformers from 5.13 on, or before. '\0': it is none. */
static char letter_of(const char *type)
{
	static const struct {
		const char *type;
		enum mfs_hybrid_kind letter;
	} types[] = {
		{"linear_attention", MFS_HYBRID_MAMBA},
		{"mamba", MFS_HYBRID_MAMBA},
		{"full_attention", MFS_HYBRID_ATTENTION},
		{"attention", MFS_HYBRID_ATTENTION},
		{"mlp", MFS_HYBRID_MLP},
		{"moe", MFS_HYBRID_MOE},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++)
		if (mfs_str_is(type, types[i].type))
			return (char)types[i].letter;
	return '\0';
}

/* The letters of a list of layers' types. NULL: r->rc says why. */
static const char *letters_of(struct mfs_hf_reader *r, const char *key, const json_t *types)
{
	const size_t layers = json_array_size(types);
	char *letters = mfs_arena_alloc(r->arena, layers + 1);

	if (!letters) {
		r->rc = mfs_fail_nomem(r->err);
		return NULL;
	}
	for (size_t i = 0; i < layers && !r->rc; i++) {
		const json_t *type = json_array_get(types, i);

		letters[i] = letter_of(json_string_value(type));
		if (!letters[i])
			mfs_hf_refuse(
				r, -ENOTSUP, key, type,
				"\"linear_attention\", \"full_attention\", \"mlp\" or \"moe\"");
	}
	letters[layers] = '\0';
	return r->rc ? NULL : letters;
}

/* A key that has no row, under one of two names. NULL: it is absent or null. */
static const json_t *under_either_name(struct mfs_hf_reader *r, const char *key, const char *other)
{
	const json_t *a = mfs_hf_set_key(r, key), *b = mfs_hf_set_key(r, other);

	if (a && b && !json_equal(a, b))
		mfs_hf_refuse(r, -EINVAL, other, b, "the same under both names");
	return a ? a : b;
}

/* A text of letters, or (transformers from 5.0 on) a list of types. The number of layers may follow
 * from it. */
static void read_pattern(struct mfs_hf_reader *r)
{
	const struct mfs_config_row *row = hybrid_row(r->family);
	const json_t *types = row ? under_either_name(r, "layers_block_type", "layer_types") : NULL;
	const char *key = types || !row ? "layers_block_type" : row->key, *letters;
	const json_t *found = types || !row ? types : mfs_hf_set_key(r, key), *given;

	if (!row)
		return;
	letters = types ? letters_of(r, key, types) : json_string_value(found);
	given = json_object_get(r->config, row->key);
	if (letters && types && given && !mfs_str_is(json_string_value(given), letters))
		mfs_hf_refuse(r, -EINVAL, row->key, given, letters);
	if (r->rc)
		return;
	if (!letters || !*letters || strspn(letters, "M*-E") != strlen(letters)) {
		mfs_hf_refuse(r, -ENOTSUP, key, found, "a letter of \"M*-E\" a layer");
		return;
	}
	r->args->hybrid_layers = mfs_arena_strndup(r->arena, letters, strlen(letters));
	if (!r->args->hybrid_layers)
		r->rc = mfs_fail_nomem(r->err);
	else if (r->args->num_layers < 1)
		r->args->num_layers = (int64_t)strlen(letters);
	else if ((size_t)r->args->num_layers != strlen(letters))
		mfs_hf_refuse(r, -EINVAL, key, found, "a letter a layer");
}

/* MambaMixer does not clamp its time steps. Infinity is no JSON: transformers writes it as an
 * object, and hf_json.c reads Python's as null. */
static void check_time_steps(struct mfs_hf_reader *r)
{
	const json_t *limit = under_either_name(r, "time_step_limit", "mamba_dt_limit");
	const json_t *least = json_array_get(limit, 0), *most = json_array_get(limit, 1);

	if (limit &&
	    (json_array_size(limit) != 2 || json_number_value(least) > 0 || json_is_number(most)))
		mfs_hf_refuse(r, -ENOTSUP, "time_step_limit", limit, "[0.0, Infinity]");
}

/* Which layers have experts follows from the pattern. */
static void read_hybrid_experts(struct mfs_hf_reader *r)
{
	struct mfs_megatron_args *a = r->args;

	check_time_steps(r);
	if (a->mamba_num_heads % a->mamba_num_groups)
		mfs_hf_refuse(r, -EINVAL, "mamba_num_heads", mfs_hf_key(r, "mamba_num_heads"),
			      "a multiple of the mixer's groups");
	if (!strchr(a->hybrid_layers, MFS_HYBRID_MOE)) {
		a->num_experts = a->moe_shared_expert_intermediate_size = MFS_ABSENT;
		a->moe_layers = NULL;
	} else if (a->num_experts == MFS_ABSENT) {
		r->rc = mfs_fail(r->err, -ENOTSUP,
				 "%s: the pattern of layers has experts, but "
				 "there is no number of them",
				 r->name);
	} else if (!(a->moe_layers = mfs_hybrid_layers_of(a->hybrid_layers, MFS_HYBRID_MOE, 0, 1,
							  r->arena))) {
		r->rc = mfs_fail_nomem(r->err);
	}
}

static void read_dtype(struct mfs_hf_reader *r, const json_t *found)
{
	const char *text = json_string_value(found);
	enum mfs_dtype type;

	if (text && !strncmp(text, "torch.", 6))
		text += 6;
	type = text ? mfs_dtype_from_torch(text) : MFS_DTYPE_NONE;
	if (type)
		r->args->params_dtype = mfs_dtype_torch(type);
}

/* One group means no groups, which is MFS_ABSENT in the arguments. */
static void read_groups(struct mfs_hf_reader *r)
{
	struct mfs_megatron_args *a = r->args;
	const int64_t groups = positive(r, "n_group"), chosen = positive(r, "topk_group");

	if (groups <= 1 || r->rc)
		return;
	if (chosen > groups)
		mfs_hf_refuse(r, -EINVAL, "topk_group", mfs_hf_key(r, "topk_group"),
			      "at most 'n_group'");
	if (a->num_experts % groups)
		mfs_hf_refuse(r, -EINVAL, "n_group", mfs_hf_key(r, "n_group"),
			      "a divisor of 'n_routed_experts'");
	if (a->moe_router_topk != 2 * chosen)
		mfs_hf_refuse(r, -ENOTSUP, "topk_group", mfs_hf_key(r, "topk_group"),
			      "half of 'num_experts_per_tok': Megatron then scores a group by its "
			      "two best experts, as this model does");
	a->moe_router_num_groups = groups;
	a->moe_router_group_topk = chosen;
}

/* Megatron normalises sigmoid scores if several experts are chosen, and not if one is. */
static void check_norm_topk(struct mfs_hf_reader *r)
{
	const bool several = r->args->moe_router_topk > 1;

	if (flag(r, "norm_topk_prob") != several)
		mfs_hf_refuse(r, -ENOTSUP, "norm_topk_prob", mfs_hf_key(r, "norm_topk_prob"),
			      several ? "true, as there are several experts per token"
				      : "false, as there is one expert per token");
}

/* ---- which layers have experts ---- */

static void no_experts(struct mfs_hf_reader *r, int64_t layer)
{
	((uint8_t *)r->args->moe_layers)[layer] = 0;
}

/* The count of leading dense layers, which follows from the list. */
static void count_dense(struct mfs_megatron_args *a)
{
	a->first_dense_layers = 0;
	while (a->first_dense_layers < a->num_layers && !a->moe_layers[a->first_dense_layers])
		a->first_dense_layers++;
}

/* A list of the layers that have none. */
static void read_dense_layers(struct mfs_hf_reader *r, const char *key)
{
	const json_t *list = mfs_hf_set_key(r, key), *number;
	size_t i;

	if (list && !json_is_array(list))
		mfs_hf_refuse(r, -EINVAL, key, list, "a list of layers");
	json_array_foreach(list, i, number)
	{
		const json_int_t layer = json_integer_value(number);

		if (!json_is_integer(number) || layer < 0 || layer >= r->args->num_layers)
			mfs_hf_refuse(r, -EINVAL, key, number, "the number of a layer");
		if (r->rc)
			return;
		no_experts(r, layer);
	}
	count_dense(r->args);
}

/* A text for each layer. Another key may count the leading dense ones; both must agree. Without
 * either the first layer is dense (Glm4MoeLiteConfig). */
static void read_mlp_layer_types(struct mfs_hf_reader *r, const char *key)
{
	const json_t *types = mfs_hf_set_key(r, key);
	struct mfs_megatron_args *a = r->args;

	if (!types && !a->first_dense_layers)
		no_experts(r, 0);
	if (types && json_array_size(types) != (size_t)a->num_layers)
		mfs_hf_refuse(r, -EINVAL, key, types, "one text a layer");
	for (int64_t i = 0; types && i < a->num_layers && !r->rc; i++) {
		const json_t *type = json_array_get(types, (size_t)i);
		const char *text = json_string_value(type);
		const bool sparse = text && !strcmp(text, "sparse");

		if (!text || (!sparse && strcmp(text, "dense")))
			mfs_hf_refuse(r, -ENOTSUP, key, type, "\"dense\" or \"sparse\"");
		else if (!sparse)
			no_experts(r, i);
		else if (!a->moe_layers[i])
			mfs_hf_refuse(r, -EINVAL, key, types,
				      "as many leading dense layers as 'first_k_dense_replace'");
	}
	if (!r->rc)
		count_dense(a);
}

/* GELU by tanh. The first release of Gemma wrote "gelu" and meant this one, as GemmaConfig does
 * (legacy); in its other classes "gelu" is GELU by erf. */
static void check_gelu_tanh(struct mfs_hf_reader *r, const char *key, bool legacy)
{
	static const char tanh[] = "gelu_pytorch_tanh";
	const json_t *found = mfs_hf_set_key(r, key);
	const char *text = mfs_hf_activation(json_string_value(found));

	if (found && !mfs_str_is(text, tanh) &&
	    !(legacy && mfs_str_is(json_string_value(found), "gelu")))
		mfs_hf_refuse(r, -ENOTSUP, key, found, "\"gelu_pytorch_tanh\"");
}

static void read_query_pre_attn(struct mfs_hf_reader *r, const char *key)
{
	const double scalar = mfs_hf_real(r, key, mfs_hf_set_key(r, key), 0);

	if (!(scalar > 0) || scalar > 1e9 || scalar != floor(scalar))
		mfs_hf_refuse(r, -EINVAL, key, mfs_hf_key(r, key), "a whole number above 0");
	else
		r->args->softmax_scale = 1 / sqrt(scalar);
}

/* Layers 0, 2, ... have the window, whatever a run's arguments say: the class decides. */
static void check_alternating(struct mfs_hf_reader *r, const char *key)
{
	const json_t *types = mfs_hf_set_key(r, key);
	const size_t layers = (size_t)r->args->num_layers;

	if (types && json_array_size(types) != layers)
		mfs_hf_refuse(r, -EINVAL, key, types, "one text a layer");
	for (size_t i = 0; types && i < layers && !r->rc; i++)
		if (slides(r, types, i, true) == i % 2)
			mfs_hf_refuse(
				r, -ENOTSUP, key, types,
				"sliding and full attention in turns, from the first layer on");
}

static void read_window_left(struct mfs_hf_reader *r, const char *key)
{
	const int64_t left = positive(r, key);

	if (!r->rc)
		r->args->window_size = left + 1;
}

static void read_value(struct mfs_hf_reader *r, const struct mfs_config_row *row)
{
	struct mfs_megatron_args *a = r->args;

	if (row->kind != MFS_CONFIG_VALUE)
		return;
	switch (row->value) {
	case MFS_VALUE_DTYPE:
		read_dtype(r, json_object_get(r->config, row->key));
		break;
	case MFS_VALUE_VOCAB:
		a->vocab_size = a->padded_vocab_size = positive(r, row->key);
		break;
	case MFS_VALUE_LAYER_TYPES:
		read_window(r);
		break;
	case MFS_VALUE_LINEAR_LAYER_TYPES:
		read_linear_layers(r, row->key);
		break;
	case MFS_VALUE_SHARED_EXPERTS:
		a->moe_shared_expert_intermediate_size =
			positive(r, row->key) * a->moe_ffn_hidden_size;
		break;
	case MFS_VALUE_ROUTED_SCALE:
		a->moe_router_topk_scaling_factor =
			mfs_hf_real(r, row->key, mfs_hf_key(r, row->key), 1);
		break;
	case MFS_VALUE_EXPERT_GROUPS:
		read_groups(r);
		break;
	case MFS_VALUE_DENSE_LAYERS:
		read_dense_layers(r, row->key);
		break;
	case MFS_VALUE_MLP_LAYER_TYPES:
		read_mlp_layer_types(r, row->key);
		break;
	case MFS_VALUE_GELU_TANH:
	case MFS_VALUE_LEGACY_GELU:
		check_gelu_tanh(r, row->key, row->value == MFS_VALUE_LEGACY_GELU);
		break;
	case MFS_VALUE_QUERY_PRE_ATTN:
		read_query_pre_attn(r, row->key);
		break;
	case MFS_VALUE_WINDOW_LEFT:
		read_window_left(r, row->key);
		break;
	case MFS_VALUE_ALTERNATING:
		check_alternating(r, row->key);
		break;
	case MFS_VALUE_NORM_TOPK:
		check_norm_topk(r);
		break;
	case MFS_VALUE_ARCHITECTURES: /* it chose the family */
	case MFS_VALUE_MODEL_TYPE:
	case MFS_VALUE_GROUP_TOPK:		/* read with the groups */
	case MFS_VALUE_WINDOW_INTERVAL:		/* read with the types of layers */
	case MFS_VALUE_FULL_ATTENTION_INTERVAL: /* read with the types of layers */
	case MFS_VALUE_HYBRID_PATTERN:		/* read_pattern() */
	case MFS_VALUE_ROPE_SCALING:		/* mfs_hf_read_positions() */
	case MFS_VALUE_ROPE_PARAMETERS:
	case MFS_VALUE_ROTARY_DIM:
	case MFS_VALUE_BOS: /* not about weights */
	case MFS_VALUE_EOS:
	case MFS_VALUE_PAD:
		break;
	}
}

/* ---- what depends on several keys ---- */

/* The class whose modules the family has: the first of its providers, without a size. */
static void name_provider(struct mfs_hf_reader *r)
{
	const char *first = r->family->providers ? r->family->providers : "";

	r->args->provider =
		mfs_arena_printf(r->arena, "%.*sModelProvider", (int)strcspn(first, " ,\t"), first);
	if (!r->args->provider)
		r->rc = mfs_fail_nomem(r->err);
}

/* Sets the arguments that give the features which the family requires. */
static void read_family(struct mfs_hf_reader *r)
{
	const mfs_features has = r->family->required;
	struct mfs_megatron_args *a = r->args;

	switch_on(a, has);
	a->position_embedding_type = has & MFS_HAS(ROPE)	   ? "rope"
				     : has & MFS_HAS(NO_POSITIONS) ? "none"
								   : "learned_absolute";
	if (has & MFS_HAS(SIGMOID_ROUTER))
		a->moe_router_score_function = "sigmoid";
	if (has & MFS_HAS(GLU_OFFSET))
		a->glu_linear_offset = 1;
	if (has & (MFS_HAS(OWN_MODULES) | MFS_HAS(POST_NORMS)))
		name_provider(r);
}

/* The key that says which GELU it is. NULL: the family has none. */
static const char *gelu_key(const struct mfs_family *f)
{
	for (const struct mfs_config_row *row = f->config; row->key; row++)
		if ((row->when | row->unless) & MFS_HAS(GELU_EXACT))
			return row->key;
	return NULL;
}

/* GELU: by tanh, or by erf. */
static void read_gelu(struct mfs_hf_reader *r)
{
	const char *key = gelu_key(r->family);
	const json_t *found = key ? mfs_hf_key(r, key) : NULL;
	const char *text = mfs_hf_activation(json_string_value(found));

	if (!key || mfs_str_is(text, "gelu_pytorch_tanh"))
		return;
	r->args->exact_gelu = true;
	if (!mfs_str_is(text, "gelu"))
		mfs_hf_refuse(r, -ENOTSUP, key, found, "\"gelu_new\" or \"gelu\"");
}

/* Computes sizes that are absent or null. */
static void complete_sizes(struct mfs_hf_reader *r)
{
	struct mfs_megatron_args *a = r->args;
	const bool mla = a->multi_latent_attention;

	if (a->num_layers < 1 || a->hidden_size < 1 || a->num_attention_heads < 1) {
		r->rc = mfs_fail(r->err, -ENODATA,
				 "%s: a number of layers, heads or the hidden size is missing",
				 r->name);
		return;
	}
	if (a->num_query_groups == MFS_ABSENT)
		a->num_query_groups = a->num_attention_heads;
	if (a->kv_channels == MFS_ABSENT)
		a->kv_channels = a->hidden_size / a->num_attention_heads;
	if (mla && !a->kv_channels)
		a->kv_channels = 1; /* not used there */
	if (a->ffn_hidden_size == MFS_ABSENT)
		a->ffn_hidden_size = 4 * a->hidden_size;
	if (a->moe_ffn_hidden_size == MFS_ABSENT)
		a->moe_ffn_hidden_size = a->ffn_hidden_size;
	if (!a->kv_channels)
		r->rc = mfs_fail(r->err, -EINVAL,
				 "%s: %lld attention heads, expected at most the hidden size %lld",
				 r->name, (long long)a->num_attention_heads,
				 (long long)a->hidden_size);
	else if (a->num_attention_heads % a->num_query_groups)
		mfs_hf_refuse(r, -EINVAL, "num_key_value_heads",
			      mfs_hf_key(r, "num_key_value_heads"),
			      "a divisor of 'num_attention_heads'");
	else if (a->num_layers > MAX_LAYERS || a->mtp_num_layers > MAX_LAYERS)
		r->rc = mfs_fail(r->err, -ENOTSUP, "%s: %lld layers, expected at most %d", r->name,
				 (long long)(a->num_layers + a->mtp_num_layers), MAX_LAYERS);
}

static void read_moe_layers(struct mfs_hf_reader *r)
{
	struct mfs_megatron_args *a = r->args;
	uint8_t *moe;

	if (a->num_experts == MFS_ABSENT)
		return;
	if (a->num_experts > MAX_EXPERTS)
		r->rc = mfs_fail(r->err, -ENOTSUP, "%s: %lld experts, expected at most %d", r->name,
				 (long long)a->num_experts, MAX_EXPERTS);
	if (a->moe_router_topk > a->num_experts)
		mfs_hf_refuse(r, -EINVAL, "num_experts_per_tok",
			      mfs_hf_key(r, "num_experts_per_tok"),
			      "at most the number of experts");
	if (a->hybrid_layers)
		return;
	moe = mfs_arena_alloc(r->arena, (size_t)a->num_layers);
	if (!moe) {
		r->rc = mfs_fail_nomem(r->err);
		return;
	}
	if (a->first_dense_layers > a->num_layers)
		a->first_dense_layers = a->num_layers;
	memset(moe + a->first_dense_layers, 1, (size_t)(a->num_layers - a->first_dense_layers));
	a->moe_layers = moe;
}

static void check_weights(struct mfs_hf_reader *r)
{
	if (!r->rc && mfs_megatron_args_weights(r->args) > MFS_MAX_WEIGHTS)
		r->rc = mfs_fail(r->err, -ENOTSUP,
				 "%s: %lld layers and %lld experts: a model of more than %d "
				 "weights, which is too large",
				 r->name, (long long)r->args->num_layers,
				 (long long)(r->args->num_experts > 0 ? r->args->num_experts : 0),
				 MFS_MAX_WEIGHTS);
}

/* ---- all of them ---- */

/* The order matters: later steps use what earlier ones have found. */
void mfs_hf_read_keys(struct mfs_hf_reader *r)
{
	read_family(r);
	read_gelu(r);
	for_rows(r, read_integer);
	if (!r->rc)
		read_pattern(r);
	if (!r->rc)
		complete_sizes(r);
	if (!r->rc && r->args->hybrid_layers)
		read_hybrid_experts(r);
	if (!r->rc)
		read_moe_layers(r);
	check_weights(r);
	for_rows(r, read_real);
	for_rows(r, read_has);
	for_rows(r, read_value);
	if (!r->rc)
		mfs_hf_read_positions(r);
	for_rows(r, check_constant);
	for_rows(r, check_has);
}
