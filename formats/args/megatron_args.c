#include "formats/args/megatron_args.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "formats/args/field.h"
#include "formats/args/hybrid_layers.h"
#include "formats/args/megatron_foreign.h"

#define MAX_LAYERS     100000
#define MAX_MTP_LAYERS 1000
#define MAX_MTP_TEXT   65536	   /* characters of a pattern's depths */
#define MAX_NUMBER     (1ll << 31) /* of anything: products of two fit everywhere */

struct reader {
	const struct mfs_args_source *source;
	struct mfs_arena *arena;
	struct mfs_error *err;
	int rc; /* the first failure; later calls do nothing */
};

static void wrong(struct reader *r, const char *name, const char *expected)
{
	if (!r->rc)
		r->rc = mfs_fail(r->err, -EINVAL, "argument '%s' of the run: expected %s", name,
				 expected);
}

static struct mfs_arg lookup(const struct reader *r, const char *name)
{
	return mfs_args_get(r->source, name);
}

/* True also where the argument is there and None. */
static bool lookup_has(const struct reader *r, const char *name)
{
	return mfs_args_has(r->source, name);
}

static bool item_int(const struct reader *r, struct mfs_arg of, uint32_t i, int64_t *ret)
{
	return mfs_arg_int(mfs_args_item(r->source, of, i), ret);
}

static bool item_real(const struct reader *r, struct mfs_arg of, uint32_t i, double *ret)
{
	return mfs_arg_real(mfs_args_item(r->source, of, i), ret);
}

static int64_t integer(struct reader *r, const char *name, int64_t otherwise)
{
	struct mfs_arg v = lookup(r, name);
	int64_t i;

	if (mfs_arg_is_none(v))
		return otherwise;
	if (!mfs_arg_int(v, &i) || i < 0 || i > MAX_NUMBER) {
		wrong(r, name, "a natural number");
		return otherwise;
	}
	return i;
}

static int64_t positive(struct reader *r, const char *name, int64_t otherwise)
{
	int64_t i = integer(r, name, otherwise);

	if (i == 0)
		wrong(r, name, "a positive number");
	return i ? i : otherwise;
}

static int64_t required(struct reader *r, const char *name)
{
	int64_t i = positive(r, name, MFS_ABSENT);

	if (i == MFS_ABSENT && !r->rc)
		r->rc = mfs_fail(r->err, -ENODATA, "argument '%s' of the run is missing", name);
	return i;
}

static double real(struct reader *r, const char *name, double otherwise)
{
	struct mfs_arg v = lookup(r, name);
	double f;

	if (mfs_arg_is_none(v))
		return otherwise;
	if (!mfs_arg_real(v, &f) || !(fabs(f) <= FLT_MAX)) {
		wrong(r, name, "a number that fp32 holds");
		return otherwise;
	}
	return f;
}

static bool flag(struct reader *r, const char *name, bool otherwise)
{
	struct mfs_arg v = lookup(r, name);
	bool b;

	if (mfs_arg_is_none(v))
		return otherwise;
	if (!mfs_arg_bool(v, &b)) {
		wrong(r, name, "True or False");
		return otherwise;
	}
	return b;
}

static const char *copy(struct reader *r, const char *text, size_t len)
{
	const char *s = mfs_arena_strndup(r->arena, text, len);

	if (!s && !r->rc)
		r->rc = mfs_fail_nomem(r->err);
	return s;
}

/* Strings; enums come as Class(value) or getattr(Class, 'name') and are left to the default. */
static const char *string(struct reader *r, const char *name, const char *otherwise)
{
	const char *text;
	size_t len;

	if (!mfs_arg_text(lookup(r, name), &text, &len) || memchr(text, 0, len))
		return otherwise;
	return copy(r, text, len);
}

/* params_dtype is the class torch.bfloat16. */
static const char *dtype(struct reader *r, const char *name)
{
	struct mfs_arg v = lookup(r, name);

	return v.type == MFS_ARG_CLASS ? copy(r, v.text, v.len) : NULL;
}

/* ---- arguments that are read as their rows say (fields.h) ---- */

/* Of two names the first counts; without it the other. */
static int64_t row_integer(struct reader *r, const struct mfs_args_field *f)
{
	int64_t (*const read)(struct reader *, const char *, int64_t) =
		f->read == MFS_ARGS_POSITIVE ? positive : integer;
	const int64_t otherwise = f->also ? read(r, f->also, f->absent.number) : f->absent.number;

	return f->read == MFS_ARGS_REQUIRED ? required(r, mfs_args_name(f))
					    : read(r, mfs_args_name(f), otherwise);
}

static double row_real(struct reader *r, const struct mfs_args_field *f)
{
	const double otherwise = f->also ? real(r, f->also, f->absent.real) : f->absent.real;

	return real(r, mfs_args_name(f), otherwise);
}

/* Of two names either may say it. */
static bool row_flag(struct reader *r, const struct mfs_args_field *f)
{
	const bool otherwise = f->absent.truth != f->inverted;
	const bool found = flag(r, mfs_args_name(f), otherwise);
	const bool other = f->also && flag(r, f->also, otherwise);

	return (found || other) != f->inverted;
}

static union mfs_args_value row_value(struct reader *r, const struct mfs_args_field *f)
{
	switch (f->type) {
	case MFS_ARGS_INT:
		return (union mfs_args_value){.number = row_integer(r, f)};
	case MFS_ARGS_REAL:
		return (union mfs_args_value){.real = row_real(r, f)};
	case MFS_ARGS_FLAG:
		return (union mfs_args_value){.truth = row_flag(r, f)};
	case MFS_ARGS_TEXT:
		return (union mfs_args_value){.text = string(r, mfs_args_name(f), f->absent.text)};
	case MFS_ARGS_LAYERS:
	case MFS_ARGS_TEXTS:
	case MFS_ARGS_PAIR:
	case MFS_ARGS_MUP:
		break;
	}
	return f->absent;
}

static void read_rows(struct reader *r, struct mfs_megatron_args *a)
{
	for (const struct mfs_args_field *f = mfs_args_fields; f->member && !r->rc; f++)
		if (f->read != MFS_ARGS_BY_CODE)
			mfs_args_set(a, f, row_value(r, f));
}

/* ---- arguments that follow from others, or have a form of their own ---- */

/* A size that is absent follows from others. */
static void complete(struct reader *r, const char *name, int64_t *size, int64_t otherwise)
{
	if (*size == MFS_ABSENT)
		*size = otherwise;
	if (!*size)
		wrong(r, name, "a positive number");
}

/* The letter is more exact than the argument, which runs had to set only before core 0.20. */
static void read_kind_of_attention(struct reader *r, struct mfs_megatron_args *a)
{
	const char *pattern = string(r, "hybrid_layer_pattern", NULL);

	if (pattern && strchr(pattern, MFS_HYBRID_MLA))
		a->multi_latent_attention = true;
}

static void read_sizes(struct reader *r, struct mfs_megatron_args *a)
{
	if (a->num_layers > MAX_LAYERS)
		wrong(r, "num_layers", "at most 100000");
	complete(r, "kv_channels", &a->kv_channels, a->hidden_size / a->num_attention_heads);
	/* The argument is 1 by default. It is used only with group_query_attention. */
	a->num_query_groups = flag(r, "group_query_attention", false)
				      ? positive(r, "num_query_groups", a->num_attention_heads)
				      : a->num_attention_heads;
	if (a->num_attention_heads % a->num_query_groups)
		wrong(r, "num_query_groups", "a divisor of num_attention_heads");
	complete(r, "ffn_hidden_size", &a->ffn_hidden_size,
		 a->swiglu ? 4 * a->hidden_size * 2 / 3 / 64 * 64 : 4 * a->hidden_size);
	complete(r, "max_position_embeddings", &a->max_position_embeddings, a->seq_length);
	complete(r, "moe_ffn_hidden_size", &a->moe_ffn_hidden_size, a->ffn_hidden_size);
}

/* Whether GELU is Transformer Engine's (te.pytorch.ops.GELU), which is computed by tanh, and not
 * torch's (core/extensions/transformer_engine.py: TEActivationOp, TEFusedMLP). The local spec has
 * neither activation function of Transformer Engine. */
static bool has_gelu_of_te(struct reader *r, const struct mfs_megatron_args *a)
{
	const bool activation = flag(r, "use_te_activation_func", false);
	const bool fused = flag(r, "use_transformer_engine_op_fuser", false);

	return !a->local_spec && (activation || fused);
}

/* Bridge's Gemma 2 has one over its square. */
static double softmax_scale(struct reader *r)
{
	const double scalar = real(r, "query_pre_attn_scalar", 0);

	return real(r, "softmax_scale", scalar > 0 ? 1 / sqrt(scalar) : 0);
}

/* transformer_config.py: __post_init__. */
static void read_mup(struct reader *r, struct mfs_megatron_args *a)
{
	const double head = real(r, "mup_base_head_dim", 1);
	const double power = real(r, "mup_attn_scale_power", 1);
	const double base = (double)positive(r, "mup_base_hidden_size", a->hidden_size);

	a->mup = (struct mfs_mup){.width = 1, .embedding = 1, .output = 1};
	if (!flag(r, "use_mup", false) || r->rc)
		return;
	a->mup.on = true;
	a->mup.width = (double)a->hidden_size / base;
	a->mup.embedding = real(r, "mup_embedding_mult", 1);
	a->mup.output = real(r, "mup_output_mult", 1);
	if (a->mup.output == 1)
		a->mup.output = 1 / a->mup.width;
	a->mup.attention = sqrt(head) / pow((double)a->kv_channels, power);
	if (!(head >= 0) || !isfinite(a->mup.attention))
		wrong(r, head >= 0 ? "mup_attn_scale_power" : "mup_base_head_dim",
		      "a number that gives attention a scale");
}

static void read_layer_kind(struct reader *r, struct mfs_megatron_args *a)
{
	a->layernorm = !mfs_str_is(string(r, "normalization", "LayerNorm"), "RMSNorm");
	a->local_spec = mfs_str_is(string(r, "transformer_impl", NULL), "local");
	a->exact_gelu = !flag(r, "bias_gelu_fusion", true) && !has_gelu_of_te(r, a);
	a->softmax_scale = softmax_scale(r);
	read_mup(r, a);
	a->learnable_softmax = mfs_str_is(string(r, "softmax_type", NULL), "learnable");
	a->params_dtype = dtype(r, "params_dtype");
}

/* Megatron counts (left, right) without the token itself; HF counts the token, too. -1: no end.
 * megatron_foreign.c looks at the right side. */
static int64_t window(struct reader *r)
{
	struct mfs_arg v = lookup(r, "window_size");
	int64_t left, right;

	if (mfs_arg_is_none(v))
		return MFS_ABSENT;
	/* Bridge's Gemma 3 makes (left, 0) of a number. */
	if (lookup_has(r, "interleaved_attn_pattern") && mfs_arg_int(v, &left) && left > 0 &&
	    left <= MAX_NUMBER)
		return left + 1;
	if (v.count != 2 || !item_int(r, v, 0, &left) || !item_int(r, v, 1, &right) || left < -1 ||
	    left > MAX_NUMBER || right < -1 || right > MAX_NUMBER) {
		wrong(r, "window_size", "a pair of numbers, (left, right)");
		return MFS_ABSENT;
	}
	return left < 0 ? MFS_ABSENT : left + 1;
}

/* An argument that is a list with 1 for each layer that has something, or a number N, 1 if absent:
 * then by_number says whether layer i has it. NULL: r->rc says why. */
static uint8_t *read_layers(struct reader *r, const char *name, int64_t layers,
			    bool (*by_number)(int64_t i, int64_t n))
{
	struct mfs_arg v = lookup(r, name);
	uint32_t listed = v.count;
	int64_t n = 1, one;
	uint8_t *has = r->rc ? NULL : mfs_arena_alloc(r->arena, (size_t)layers);

	if (!has) {
		r->rc = r->rc ? r->rc : mfs_fail_nomem(r->err);
		return NULL;
	}
	if (listed && listed != layers)
		wrong(r, name, "one number a layer");
	if (!listed && !mfs_arg_is_none(v) && (!mfs_arg_int(v, &n) || n < 1))
		wrong(r, name, "a positive number or a list");
	for (int64_t i = 0; i < layers && !r->rc; i++) {
		has[i] = by_number(i, n);
		if (!listed)
			continue;
		if (!item_int(r, v, (uint32_t)i, &one))
			wrong(r, name, "a list of 0 and 1");
		else
			has[i] = one != 0;
	}
	return r->rc ? NULL : has;
}

static bool every_nth(int64_t i, int64_t n)
{
	return i % n == 0;
}

/* Of layers counted from 1 (megatron/core/transformer/utils.py: is_layer_window_attention). */
static bool all_but_every_nth(int64_t i, int64_t n)
{
	return (i + 1) % n != 0;
}

/* Bridge's Gemma 3: so many layers with the window, then one without, and so on. */
static const uint8_t *interleaved_layers(struct reader *r, int64_t layers)
{
	struct mfs_arg v = lookup(r, "interleaved_attn_pattern");
	int64_t local, global;
	uint8_t *has;

	if (v.count != 2 || !item_int(r, v, 0, &local) || !item_int(r, v, 1, &global) ||
	    local < 1 || local > MAX_LAYERS || global != 1) {
		wrong(r, "interleaved_attn_pattern", "a pair of numbers, (local, 1)");
		return NULL;
	}
	has = mfs_arena_alloc(r->arena, (size_t)layers);
	if (!has)
		r->rc = mfs_fail_nomem(r->err);
	for (int64_t i = 0; has && i < layers; i++)
		has[i] = all_but_every_nth(i, local + 1);
	return has;
}

static void read_window_layers(struct reader *r, struct mfs_megatron_args *a)
{
	const uint8_t *has;
	int64_t count = 0;

	if (a->window_size == MFS_ABSENT || r->rc)
		return;
	if (!mfs_arg_is_none(lookup(r, "interleaved_attn_pattern")))
		has = interleaved_layers(r, a->num_layers);
	else if (!mfs_arg_is_none(lookup(r, "window_attn_skip_freq")))
		has = read_layers(r, "window_attn_skip_freq", a->num_layers, all_but_every_nth);
	else
		return;
	for (int64_t i = 0; has && i < a->num_layers; i++)
		count += has[i];
	if (!count)
		a->window_size = MFS_ABSENT;
	else if (count < a->num_layers)
		a->window_layers = has;
}

/* Megatron-Bridge and NeMo pass the factor to the model (model_config.h). */
static void read_rope_scaling(struct reader *r, struct mfs_megatron_args *a)
{
	const double given = real(r, "rope_scaling_factor", MFS_ROPE_SCALING_FACTOR);

	if (lookup_has(r, "model_provider")) {
		a->rope_scaling_factor = given;
		return;
	}
	a->rope_scaling_factor = MFS_ROPE_SCALING_FACTOR;
	a->rope_scaling_ignored =
		a->use_rope_scaling && given != MFS_ROPE_SCALING_FACTOR ? given : 0;
}

/*
 * GPTModel's own YaRN. Megatron-LM's main branch has arguments for it and takes two of MLA's
 * (training/argument_utils.py: _apply_yarn_config_from_args); Megatron-Bridge's providers have
 * fields. cos and sin are scaled by mscale only if both of its halves are there
 * (yarn_rotary_pos_embedding.py: _yarn_get_concentration_factor).
 */
static void read_yarn(struct reader *r, struct mfs_megatron_args *a)
{
	const bool bridge = lookup_has(r, "yarn_rotary_scaling_factor");
	const char *const mscales[] = {bridge ? "yarn_mscale" : "mscale",
				       bridge ? "yarn_mscale_all_dim" : "mscale_all_dim"};
	const bool scaled =
		!mfs_arg_is_none(lookup(r, mscales[0])) && !mfs_arg_is_none(lookup(r, mscales[1]));

	if (a->multi_latent_attention || !mfs_str_is(a->position_embedding_type, "yarn"))
		return;
	a->rotary_scaling_factor =
		real(r, bridge ? "yarn_rotary_scaling_factor" : "rotary_scaling_factor", 1.0);
	a->mscale = scaled ? real(r, mscales[0], 1.0) : 1.0;
	a->mscale_all_dim = scaled ? real(r, mscales[1], 0.0) : 0.0;
	a->beta_fast = real(r, "yarn_beta_fast", 32.0);
	a->beta_slow = real(r, "yarn_beta_slow", 1.0);
	a->original_max_position_embeddings =
		positive(r, "yarn_original_max_position_embeddings", 4096);
	a->yarn_unrounded = !flag(r, "yarn_correction_range_round_to_int", true);
}

/* Bridge's Gemma 3 has a pair, (local, global), and divides the global frequencies by
 * rope_scaling_factor. */
static void read_bases(struct reader *r, struct mfs_megatron_args *a)
{
	struct mfs_arg v = lookup(r, "rotary_base");

	if (v.count != 2) {
		a->rotary_base = real(r, "rotary_base", 10000);
		a->rotary_base_local = real(r, "rotary_base_local", 0);
		return;
	}
	if (!item_real(r, v, 0, &a->rotary_base_local) || !item_real(r, v, 1, &a->rotary_base) ||
	    !(a->rotary_base_local > 0 && a->rotary_base_local <= FLT_MAX) ||
	    !(a->rotary_base > 0 && a->rotary_base <= FLT_MAX))
		wrong(r, "rotary_base", "a positive number, or (local, global)");
	a->rotary_seq_len_interpolation_factor = real(r, "rope_scaling_factor", 0);
}

static void read_positions(struct reader *r, struct mfs_megatron_args *a)
{
	/* Until core 0.10 there were no such arguments, and MLATransformerConfig's own defaults
	 * held. */
	const bool before_rope_type = !lookup_has(r, "rope_type");

	a->position_embedding_type = string(
		r, "position_embedding_type",
		flag(r, "use_rotary_position_embeddings", false) ? "rope" : "learned_absolute");
	read_bases(r, a);
	if (a->rotary_percent < 0 || a->rotary_percent > 1)
		wrong(r, "rotary_percent", "a number from 0 to 1");
	read_rope_scaling(r, a);
	a->rotary_scaling_factor = real(r, "rotary_scaling_factor", before_rope_type ? 40.0 : 1.0);
	a->mscale = real(r, "mscale", before_rope_type ? 0.707 : 1.0);
	a->mscale_all_dim = real(r, "mscale_all_dim", before_rope_type ? 0.707 : 0.0);
	read_yarn(r, a);
	a->window_size = window(r);
	read_window_layers(r, a);
}

/* True if a pattern gives the kind of each layer; other arguments do not count then. */
static bool has_pattern(const struct reader *r)
{
	return !mfs_arg_is_none(lookup(r, "hybrid_layer_pattern")) ||
	       !mfs_arg_is_none(lookup(r, "hybrid_override_pattern"));
}

static void count_dense(struct mfs_megatron_args *a)
{
	while (a->moe_layers && a->first_dense_layers < a->num_layers &&
	       !a->moe_layers[a->first_dense_layers])
		a->first_dense_layers++;
}

/* moe_layer_freq: every Nth layer is MoE, from the first on. */
static void read_moe_layers(struct reader *r, struct mfs_megatron_args *a)
{
	if (a->num_experts == MFS_ABSENT || has_pattern(r))
		return;
	a->moe_layers = read_layers(r, "moe_layer_freq", a->num_layers, every_nth);
	count_dense(a);
}

static bool is_freq_listed(struct reader *r)
{
	struct mfs_arg v = lookup(r, "moe_layer_freq");
	int64_t every = 1;

	return v.type == MFS_ARG_LIST || (mfs_arg_int(v, &every) && every > 1);
}

static void read_moe(struct reader *r, struct mfs_megatron_args *a)
{
	/* A list with several load balancing types; cosmetic for a reader. */
	if (lookup(r, "moe_aux_loss_coeff").type != MFS_ARG_LIST)
		a->moe_aux_loss_coeff = real(r, "moe_aux_loss_coeff", 0);
	a->moe_layer_freq_listed = is_freq_listed(r);
	read_moe_layers(r, a);
}

static void read_mtp(struct reader *r, struct mfs_megatron_args *a)
{
	if (a->mtp_num_layers > MAX_MTP_LAYERS)
		wrong(r, "mtp_num_layers", "at most 1000");
	/* An argument that is as old as the new name (core 0.17). */
	a->mtp_model_layer = lookup_has(r, "hybrid_layer_pattern");
}

/* Of layers counted from 1, every Nth has none (experimental_attention_variant_module_specs.py:
 * get_linear_attention_pattern). megatron_foreign.c names the other variants. */
static void read_linear_attention(struct reader *r, struct mfs_megatron_args *a)
{
	const char *variant = string(r, "experimental_attention_variant", NULL);

	if (!mfs_args_is_delta_net(variant) || has_pattern(r))
		return;
	if (mfs_arg_is_none(lookup(r, "linear_attention_freq")))
		wrong(r, "linear_attention_freq", "a positive number or a list");
	if (a->linear_num_value_heads % a->linear_num_key_heads)
		wrong(r, "linear_num_value_heads", "a multiple of linear_num_key_heads");
	a->linear_layers =
		read_layers(r, "linear_attention_freq", a->num_layers, all_but_every_nth);
}

/* The pattern, under its newer name or its older one. Runs of core 0.7 to 0.16 may have none, and
 * ratios in its place. */
static const char *hybrid_pattern(struct reader *r, const struct mfs_megatron_args *a)
{
	const char *newer = string(r, "hybrid_layer_pattern", NULL);
	const char *pattern = newer ? newer : string(r, "hybrid_override_pattern", NULL);
	const double attention = real(r, "hybrid_attention_ratio", 0);
	const double mlp = real(r, "hybrid_mlp_ratio", 0);

	if (pattern || r->rc || (attention == 0 && mlp == 0))
		return pattern;
	if (!(attention >= 0 && mlp >= 0 && attention + mlp <= 1)) {
		wrong(r, "hybrid_attention_ratio",
		      "ratios of 0 to 1, and with that of MLPs at "
		      "most 1");
		return NULL;
	}
	pattern = mfs_hybrid_from_ratios(a->num_layers, attention, mlp, r->arena);
	if (!pattern)
		r->rc = mfs_fail_nomem(r->err);
	return pattern;
}

/* Layers of multi-token prediction that are named apart (until core 0.16) follow a "/" since, once
 * for each depth. */
static const char *with_mtp(struct reader *r, const char *pattern, int64_t depths)
{
	const char *mtp = string(r, "mtp_hybrid_override_pattern", NULL), *ret = NULL;
	struct mfs_buf text = {0};

	if (!mtp || strchr(pattern, '/') || depths <= 0 || r->rc)
		return pattern;
	if ((uint64_t)depths * (strlen(mtp) + 1) > MAX_MTP_TEXT) {
		wrong(r, "mtp_hybrid_override_pattern", "at most 65536 characters in all depths");
		return NULL;
	}
	mfs_buf_adds(&text, pattern);
	for (int64_t i = 0; i < depths; i++)
		mfs_buf_printf(&text, "/%s", mtp);
	if (!text.failed)
		ret = mfs_arena_strndup(r->arena, text.data, text.len);
	mfs_buf_release(&text);
	if (!ret)
		r->rc = mfs_fail_nomem(r->err);
	return ret;
}

/* Which of the layers have experts follows from the pattern; moe_layer_freq does not count. step:
 * letters of a layer, of which the last counts. */
static void read_hybrid_experts(struct reader *r, struct mfs_megatron_args *a, const char *letters,
				size_t step)
{
	a->moe_layers = NULL;
	a->first_dense_layers = 0;
	a->moe_layer_freq_listed = false;
	if (!strchr(letters, MFS_HYBRID_MOE)) {
		a->num_experts = MFS_ABSENT;
		return;
	}
	if (a->num_experts == MFS_ABSENT)
		wrong(r, "num_experts", "a positive number: the pattern of layers has experts");
	if (r->rc)
		return;
	a->moe_layers = mfs_hybrid_layers_of(letters, MFS_HYBRID_MOE, step - 1, step, r->arena);
	if (!a->moe_layers)
		r->rc = mfs_fail_nomem(r->err);
	if (step > 1)
		count_dense(a);
}

/* Megatron counts a window's layers as it numbers them: the attention of a block is every second
 * one. */
static void halve_window(struct mfs_megatron_args *a, uint8_t *has)
{
	int64_t count = 0;

	for (int64_t i = 0; i < a->num_layers; i++)
		count += has[i] = a->window_layers[2 * i];
	a->window_layers = count && count < a->num_layers ? has : NULL;
	if (!count)
		a->window_size = MFS_ABSENT;
}

static int64_t half(int64_t layers)
{
	return layers == MFS_ABSENT ? layers : layers / 2;
}

/* Without "|" stages have equal shares, but maybe the first and the last. */
static bool splits_blocks(const struct mfs_megatron_args *a, const struct mfs_hybrid_pattern *p)
{
	const int64_t first = a->first_stage_layers, last = a->last_stage_layers;
	const int64_t stages =
		a->pipeline_model_parallel_size - (first != MFS_ABSENT) - (last != MFS_ABSENT);
	const int64_t given = (first != MFS_ABSENT ? first : 0) + (last != MFS_ABSENT ? last : 0);
	bool odd = false;

	for (uint32_t i = 0; i < p->stage_count; i++)
		odd |= p->stages[i] % 2;
	if (p->stage_count > 1 || a->pipeline_model_parallel_size == 1)
		return odd;
	return (first != MFS_ABSENT && first % 2) || (last != MFS_ABSENT && last % 2) ||
	       (stages > 0 && (p->layers - given) / stages % 2);
}

static void read_delta_nets(struct reader *r, struct mfs_megatron_args *a, const char *letters)
{
	if (a->linear_num_value_heads % a->linear_num_key_heads)
		wrong(r, "linear_num_value_heads", "a multiple of linear_num_key_heads");
	a->linear_layers = mfs_hybrid_layers_of(letters, MFS_HYBRID_DELTA_NET, 0, 2, r->arena);
	if (!a->linear_layers)
		r->rc = mfs_fail_nomem(r->err);
}

/* The GPTModel that the layers are in pairs. */
static void read_blocks(struct reader *r, struct mfs_megatron_args *a,
			const struct mfs_hybrid_pattern *p)
{
	uint8_t *has = mfs_arena_alloc(r->arena, (size_t)p->layers);

	if (!has) {
		r->rc = mfs_fail_nomem(r->err);
		return;
	}
	a->hybrid_form = true;
	a->local_spec = false; /* a HybridModel has no other modules than Transformer Engine's */
	a->splits_blocks = splits_blocks(a, p);
	a->num_layers = p->layers / 2;
	a->mtp_num_layers = p->mtp_depths;
	a->first_stage_layers = half(a->first_stage_layers);
	a->last_stage_layers = half(a->last_stage_layers);
	if (a->window_layers)
		halve_window(a, has);
	if (strchr(p->letters, MFS_HYBRID_DELTA_NET))
		read_delta_nets(r, a, p->letters);
	if (!r->rc)
		read_hybrid_experts(r, a, p->letters, 2);
}

/* megatron/core/ssm/mamba_mixer.py */
static void read_mixers(struct reader *r, struct mfs_megatron_args *a)
{
	if (a->mamba_num_heads == MFS_ABSENT && 2 * a->hidden_size % a->mamba_head_dim)
		wrong(r, "mamba_head_dim", "a divisor of twice the hidden_size");
	else if (a->mamba_num_heads == MFS_ABSENT)
		a->mamba_num_heads = 2 * a->hidden_size / a->mamba_head_dim;
	if (!r->rc && a->mamba_num_heads % a->mamba_num_groups)
		wrong(r, "mamba_num_heads", "a multiple of mamba_num_groups");
}

/* megatron/core/models/hybrid/hybrid_layer_allocation.py. What a pattern has that is not known here
 * is named by megatron_foreign.c. */
static void read_hybrid(struct reader *r, struct mfs_megatron_args *a)
{
	const char *pattern = hybrid_pattern(r, a);
	struct mfs_hybrid_pattern p;

	/* An argument as old as the change. */
	a->mamba_conv_params = lookup_has(r, "freeze_all_layers");
	if (pattern)
		pattern = with_mtp(r, pattern, a->mtp_num_layers);
	if (!pattern || r->rc)
		return;
	r->rc = mfs_hybrid_parse(pattern, r->arena, &p, r->err);
	if (!r->rc && p.layers != a->num_layers)
		r->rc = mfs_fail(r->err, -EINVAL,
				 "the run's pattern of layers '%.200s' is of %lld layers, expected "
				 "num_layers, %lld",
				 pattern, (long long)p.layers, (long long)a->num_layers);
	if (r->rc)
		return;
	a->other_stages |= !mfs_hybrid_is_even(&p);
	if (mfs_hybrid_is_blocks(&p)) {
		read_blocks(r, a, &p);
		return;
	}
	if (p.mtp_depths || strspn(p.letters, "M*-E") != (size_t)p.layers)
		return;
	if (strchr(p.letters, MFS_HYBRID_MAMBA))
		read_mixers(r, a);
	a->hybrid_layers = p.letters;
	if (!r->rc)
		read_hybrid_experts(r, a, p.letters, 1);
}

/* The name of a folder in one that is known. NULL: there is none, or it leads elsewhere. A name
 * with a slash is that of a model on the HuggingFace Hub, of which NeMo copies nothing. */
static const char *folder(struct reader *r, const char *name)
{
	const char *s = string(r, name, NULL);

	return s && *s && !strchr(s, '/') && strcmp(s, ".") && strcmp(s, "..") ? s : NULL;
}

/* arguments.py: --optimizer. Each has states of its own. */
static const char *unread(struct reader *r, const char *name)
{
	static const char *const names[] = {"soap", "adaptive_muon"};
	const bool none = flag(r, "no_save_optim", false);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names) && !none; i++)
		if (mfs_str_is(name, names[i]))
			return names[i];
	return NULL;
}

/* arguments.py: validate_args: "dist_muon" is the old word for Muon with the distributed
 * optimizer. */
static void read_optimizer(struct reader *r, struct mfs_megatron_args *a)
{
	const char *name = string(r, "optimizer", NULL);

	a->sgd = mfs_str_is(name, "sgd");
	a->unread_optimizer = unread(r, name);
	a->muon = mfs_str_is(name, "muon") || mfs_str_is(name, "dist_muon");
	a->lion = mfs_str_is(a->muon ? string(r, "muon_scalar_optimizer", NULL) : name, "lion");
}

static void read_layout(struct reader *r, struct mfs_megatron_args *a)
{
	int64_t per_chunk;

	complete(r, "expert_tensor_parallel_size", &a->expert_tensor_parallel_size,
		 a->tensor_model_parallel_size);
	per_chunk = positive(r, "num_layers_per_virtual_pipeline_stage", MFS_ABSENT);
	if (a->virtual_pipeline_model_parallel_size == MFS_ABSENT && per_chunk != MFS_ABSENT &&
	    !r->rc)
		a->virtual_pipeline_model_parallel_size =
			a->num_layers / a->pipeline_model_parallel_size / per_chunk;
	if (a->virtual_pipeline_model_parallel_size < 1)
		a->virtual_pipeline_model_parallel_size = 1;
	a->other_stages = !mfs_arg_is_none(lookup(r, "pipeline_model_parallel_layout")) ||
			  a->account_for_embedding || a->account_for_loss;
	read_optimizer(r, a);
	a->nemo_tokenizer = folder(r, "nemo_tokenizer");
	/* An argument as old as the change (core 0.18). */
	a->null_tokenizer_counts_eod = lookup_has(r, "null_tokenizer_eod_id");
}

bool mfs_args_is_delta_net(const char *variant)
{
	return mfs_str_is(variant, "gated_delta_net") || mfs_str_is(variant, "gdn");
}

int64_t mfs_megatron_args_weights(const struct mfs_megatron_args *a)
{
	const int64_t mtp = a->mtp_num_layers > 0 ? a->mtp_num_layers : 0;
	int64_t with_experts = mtp;

	for (int64_t i = 0; i < a->num_layers && a->moe_layers; i++)
		with_experts += a->moe_layers[i] != 0;
	return 16 * (a->num_layers + mtp) +
	       3 * with_experts * (a->num_experts > 0 ? a->num_experts : 0);
}

static void check_weights(struct reader *r, const struct mfs_megatron_args *a)
{
	if (!r->rc && mfs_megatron_args_weights(a) > MFS_MAX_WEIGHTS)
		r->rc = mfs_fail(r->err, -EINVAL,
				 "%lld layers and %lld experts: a model of more than %d weights, "
				 "which is too large",
				 (long long)a->num_layers,
				 (long long)(a->num_experts > 0 ? a->num_experts : 0),
				 MFS_MAX_WEIGHTS);
}

int mfs_args_read(const struct mfs_args_source *source, struct mfs_arena *arena,
		  struct mfs_megatron_args *ret, struct mfs_error *err)
{
	struct reader r = {.source = source, .arena = arena, .err = err};
	struct mfs_megatron_args a = {0};

	read_rows(&r, &a);
	if (!r.rc)
		read_kind_of_attention(&r, &a);
	if (!r.rc)
		read_sizes(&r, &a);
	if (!r.rc)
		read_layer_kind(&r, &a);
	if (!r.rc)
		read_positions(&r, &a);
	if (!r.rc)
		read_moe(&r, &a);
	if (!r.rc)
		read_mtp(&r, &a);
	if (!r.rc)
		read_linear_attention(&r, &a);
	if (!r.rc)
		read_layout(&r, &a);
	if (!r.rc)
		read_hybrid(&r, &a);
	if (!r.rc)
		r.rc = mfs_megatron_foreign(source, arena, &a, err);
	check_weights(&r, &a);
	if (r.rc)
		return r.rc;
	/* Runs of dense models record an expert parallelism of 1 with any size of tensor
	 * parallelism. */
	if (!a.moe_layers) {
		a.expert_model_parallel_size = 1;
		a.expert_tensor_parallel_size = a.tensor_model_parallel_size;
	}
	*ret = a;
	return 0;
}

int mfs_megatron_args_read(const struct mfs_pickle *doc, mfs_value args, struct mfs_arena *arena,
			   struct mfs_megatron_args *ret, struct mfs_error *err)
{
	const struct mfs_args_source source = mfs_args_of_pickle(doc, args);

	if (!mfs_value_pairs(doc, mfs_value_state(doc, args)))
		return mfs_fail(err, -EINVAL, "'args' is not an argparse.Namespace");
	return mfs_args_read(&source, arena, ret, err);
}

void mfs_megatron_args_before_core(const struct mfs_pickle *doc, mfs_value args,
				   struct mfs_megatron_args *a)
{
	bool fused = false;

	mfs_value_bool(doc, mfs_value_attr(doc, args, "bias_gelu_fusion"), &fused);
	a->exact_gelu = !fused && !a->openai_gelu;
	a->before_core = true;
}

uint64_t mfs_args_true_vocab(const struct mfs_megatron_args *a, uint64_t padded)
{
	const uint64_t divisor =
		a->make_vocab_size_divisible_by > 0 ? (uint64_t)a->make_vocab_size_divisible_by : 0;
	const uint64_t tp =
		a->tensor_model_parallel_size > 0 ? (uint64_t)a->tensor_model_parallel_size : 0;
	uint64_t rows = a->vocab_size > 0 ? (uint64_t)a->vocab_size : 0;

	/* Both factors are below 2^32: numbers of arguments are (read()). */
	if (rows && mfs_str_is(a->tokenizer_type, "NullTokenizer") && !a->null_tokenizer_counts_eod)
		rows++;
	return rows && rows <= padded && padded - rows < divisor * tp ? rows : 0;
}
