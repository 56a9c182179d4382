#include "trainer/config/adopt.h"

#include <math.h>
#include <string.h>

#include "formats/args/field.h"
#include "trainer/config/value.h"

struct adopt {
	struct mft_train_config *c;
	const struct mft_adopted *from;
	struct mfs_error *err;
};

/* The value's place, if it is to be taken; NULL: what was given stays. */
static struct mft_flag_value *place(struct adopt *a, const char *dest, bool force)
{
	const size_t number = mft_flag_of_dest(dest);

	if (a->c->values->from[number] != MFT_FROM_DEFAULT && (!force || !a->from->doc))
		return NULL;
	a->c->values->from[number] = MFT_FROM_CHECKPOINT;
	return &a->c->values->at[number];
}

static void put_number(struct mft_flag_value *to, int64_t number)
{
	to->type = number == MFS_ABSENT ? MFT_IS_NONE : MFT_IS_INT;
	to->number = number;
}

static int put_text(struct adopt *a, const char *dest, bool force, const char *text)
{
	struct mft_flag_value *to = text ? place(a, dest, force) : NULL;

	if (!to)
		return 0;
	to->type = MFT_IS_TEXT;
	to->text = mfs_arena_strndup(&a->c->arena, text, strlen(text));
	return to->text ? 0 : mfs_fail_nomem(a->err);
}

static void put_truth(struct adopt *a, const char *dest, bool force, bool truth)
{
	struct mft_flag_value *to = place(a, dest, force);

	if (to)
		*to = (struct mft_flag_value){.type = MFT_IS_BOOL, .truth = truth};
}

static void put_real(struct adopt *a, const char *dest, bool force, double real)
{
	struct mft_flag_value *to = place(a, dest, force);

	if (to)
		*to = (struct mft_flag_value){.type = MFT_IS_REAL, .real = real};
}

/* The flag of an argument, under either of its names. */
static const char *dest_of(const struct mfs_args_field *f)
{
	return mft_flag_of_dest(mfs_args_name(f)) != SIZE_MAX ? mfs_args_name(f) : f->also;
}

/* A few of the arguments are reals there, and integers on command lines. */
static void put_rounded(struct adopt *a, const char *dest, bool force, double value)
{
	struct mft_flag_value *to = place(a, dest, force);

	if (to)
		put_number(to, value > 0 ? (int64_t)llround(value) : MFS_ABSENT);
}

static int put_field(struct adopt *a, const struct mfs_args_field *f)
{
	const void *at = mfs_args_at(a->from->model, f);
	const char *dest = dest_of(f);
	const bool force = f->taken == MFS_ARGS_FORCED;
	struct mft_flag_value *to;

	switch (f->type) {
	case MFS_ARGS_INT:
		to = place(a, dest, force);
		if (to)
			put_number(to, *(const int64_t *)at);
		return 0;
	case MFS_ARGS_REAL:
		if (mft_flag_at(mft_flag_of_dest(dest))->kind == MFT_FLAG_INT)
			put_rounded(a, dest, force, *(const double *)at);
		else
			put_real(a, dest, force, *(const double *)at);
		return 0;
	case MFS_ARGS_FLAG:
		put_truth(a, dest, force, *(const bool *)at != f->inverted);
		return 0;
	default:
		return put_text(a, dest, force, *(const char *const *)at);
	}
}

/* True if the run is a HybridModel's, which has two layers for each of the model's. */
static bool is_hybrid(const struct adopt *a)
{
	return !mft_flag_is_none(a->c->values, "hybrid_layer_pattern");
}

/* The pattern of the checkpoint, without its stages, unless another is given. */
static int put_pattern(struct adopt *a)
{
	static const char *const names[] = {"hybrid_layer_pattern", "hybrid_override_pattern"};
	const char *found = NULL;
	char *pattern, *to;
	size_t len = 0;

	if (!a->from->model->hybrid_form || !a->from->doc || is_hybrid(a))
		return 0;
	for (size_t i = 0; i < 2 && !found; i++)
		if (!mfs_value_str(a->from->doc,
				   mfs_value_attr(a->from->doc, a->from->args, names[i]), &found,
				   &len))
			found = NULL;
	pattern = to = found ? mfs_arena_alloc(&a->c->arena, len + 1) : NULL;
	if (!pattern)
		return found ? mfs_fail_nomem(a->err) : 0;
	for (size_t i = 0; i < len; i++)
		if (found[i] != '|')
			*to++ = found[i];
	*to = '\0';
	return put_text(a, "hybrid_layer_pattern", false, pattern);
}

/* Takes the place of what a flag has: one number a layer. */
static int put_layers(struct adopt *a, struct mft_flag_value *to, const uint8_t *has)
{
	const size_t each = is_hybrid(a) ? 2 : 1;
	const size_t layers = each * (size_t)a->from->model->num_layers;
	struct mft_flag_value *items = mfs_arena_array(&a->c->arena, layers, sizeof(*items));

	if (!items)
		return mfs_fail_nomem(a->err);
	for (size_t i = 0; i < layers; i++)
		items[i] = (struct mft_flag_value){.type = MFT_IS_INT, .number = has[i / each]};
	*to = (struct mft_flag_value){.type = MFT_IS_LIST, .items = items, .count = layers};
	return 0;
}

/* moe_layer_freq: a list of the layers, unless each has experts. */
static int put_expert_layers(struct adopt *a)
{
	const struct mfs_megatron_args *m = a->from->model;
	struct mft_flag_value *to = place(a, "moe_layer_freq", true);

	if (!to)
		return 0;
	*to = (struct mft_flag_value){.type = MFT_IS_INT, .number = 1};
	if (is_hybrid(a) || !m->moe_layers ||
	    (!m->moe_layer_freq_listed && !mfs_args_layers_differ(m)))
		return 0;
	return put_layers(a, to, m->moe_layers);
}

static int put_window_layers(struct adopt *a)
{
	const uint8_t *has = a->from->model->window_layers;
	struct mft_flag_value *to = has ? place(a, "window_attn_skip_freq", false) : NULL;

	return to ? put_layers(a, to, has) : 0;
}

/* The layers that have a gated delta net. */
static int put_linear_layers(struct adopt *a)
{
	const uint8_t *has = is_hybrid(a) ? NULL : a->from->model->linear_layers;
	struct mft_flag_value *to = has ? place(a, "linear_attention_freq", false) : NULL;
	const int r =
		has ? put_text(a, "experimental_attention_variant", false, "gated_delta_net") : 0;

	return to && !r ? put_layers(a, to, has) : r;
}

static int put_window(struct adopt *a)
{
	const int64_t size = a->from->model->window_size;
	struct mft_flag_value *to = place(a, "window_size", false), *items;

	if (!to)
		return 0;
	*to = (struct mft_flag_value){.type = MFT_IS_NONE};
	if (size == MFS_ABSENT)
		return 0;
	items = mfs_arena_array(&a->c->arena, 2, sizeof(*items));
	if (!items)
		return mfs_fail_nomem(a->err);
	items[0] = (struct mft_flag_value){.type = MFT_IS_INT, .number = size - 1};
	items[1] = (struct mft_flag_value){.type = MFT_IS_INT, .number = 0};
	*to = (struct mft_flag_value){.type = MFT_IS_TUPLE, .items = items, .count = 2};
	return 0;
}

/* What has another form on command lines. */
static int put_model(struct adopt *a)
{
	const struct mfs_megatron_args *m = a->from->model;
	struct mft_flag_value *to;
	int r = put_text(a, "normalization", true, m->layernorm ? "LayerNorm" : "RMSNorm");

	put_truth(a, "group_query_attention", true,
		  !m->multi_latent_attention && m->num_query_groups != m->num_attention_heads);
	to = place(a, "moe_ffn_hidden_size", true);
	if (to)
		put_number(to, m->num_experts == MFS_ABSENT ? MFS_ABSENT : m->moe_ffn_hidden_size);
	if (m->moe_router_topk_scaling_factor != 0)
		put_real(a, "moe_router_topk_scaling_factor", true,
			 m->moe_router_topk_scaling_factor);
	if (!r)
		r = put_pattern(a);
	if (!r)
		r = put_expert_layers(a);
	if (!r)
		r = put_linear_layers(a);
	if (!r)
		r = put_window(a);
	return r ? r : put_window_layers(a);
}

/* Arguments that the model's reader does not keep, of the Namespace. */
static int put_training(struct adopt *a)
{
	static const char *const rates[] = {"attention_dropout", "hidden_dropout"};
	static const char *const scaling = "apply_query_key_layer_scaling";
	const struct mfs_pickle *doc = a->from->doc;
	int64_t length;
	double rate;
	bool truth;

	for (size_t i = 0; i < 2; i++)
		if (mfs_value_float(doc, mfs_value_attr(doc, a->from->args, rates[i]), &rate))
			put_real(a, rates[i], true, rate);
	if (mfs_value_bool(doc, mfs_value_attr(doc, a->from->args, scaling), &truth))
		put_truth(a, scaling, true, truth);
	if (mfs_value_int(doc, mfs_value_attr(doc, a->from->args, "seq_length"), &length) &&
	    !mft_flag_is_given(a->c->values, "encoder_seq_length")) {
		struct mft_flag_value *to = place(a, "seq_length", false);

		if (to)
			put_number(to, length);
	}
	return put_text(a, "transformer_impl", false,
			a->from->model->local_spec ? "local" : "transformer_engine");
}

static int put_tokenizer(struct adopt *a)
{
	const bool take = mft_flag_truth(a->c->values, "use_tokenizer_model_from_checkpoint_args");
	int r;

	if (!a->from->doc) {
		r = put_text(a, "tokenizer_type", false, "HuggingFaceTokenizer");
		return r ? r : put_text(a, "tokenizer_model", false, a->from->dir);
	}
	r = take ? put_text(a, "tokenizer_type", true, a->from->model->tokenizer_type) : 0;
	return take && !r ? put_text(a, "tokenizer_model", true, a->from->model->tokenizer_model)
			  : r;
}

/* ---- what was given, and does not count ---- */

/* What somebody has set, before the checkpoint is asked. */
static struct mft_flag_values *copy_of(struct mft_train_config *c)
{
	const size_t count = mft_flag_count();
	struct mft_flag_values *v = mfs_arena_alloc(&c->arena, sizeof(*v));

	if (!v)
		return NULL;
	v->at = mfs_arena_array(&c->arena, count, sizeof(*v->at));
	v->from = mfs_arena_alloc(&c->arena, count);
	if (!v->at || !v->from)
		return NULL;
	memcpy(v->at, c->values->at, count * sizeof(*v->at));
	memcpy(v->from, c->values->from, count);
	return v;
}

/* Whether layer i has experts by moe_layer_freq, N or a list. */
static bool has_experts(const struct mft_flag_value *v, size_t i)
{
	if (v->type == MFT_IS_LIST)
		return i < v->count && v->items[i].number;
	return v->type == MFT_IS_INT && v->number > 0 && i % (size_t)v->number == 0;
}

/* A list of layers may be written in two ways. */
static bool is_same(const struct adopt *a, size_t number, const struct mft_flag_value *x,
		    const struct mft_flag_value *y)
{
	if (strcmp(mft_flag_at(number)->dest, "moe_layer_freq") != 0)
		return mft_flag_value_same(x, y);
	for (size_t i = 0; i < (size_t)a->from->model->num_layers; i++)
		if (has_experts(x, i) != has_experts(y, i))
			return false;
	return true;
}

static int overrule(struct adopt *a, size_t number, const struct mft_flag_value *given)
{
	struct mft_flag_other *o = mfs_arena_alloc(&a->c->arena, sizeof(*o)),
			      **at = &a->c->values->overruled;
	struct mfs_buf was = {0}, is = {0};
	char spelling[MFT_FLAG_SPELLING];
	bool on;

	if (!o)
		return mfs_fail_nomem(a->err);
	while (*at)
		at = &(*at)->next;
	mft_flag_spelling(mft_flag_at(number), 0, spelling, &on);
	mft_flag_value_show(given, &was);
	mft_flag_value_show(&a->c->values->at[number], &is);
	if (!was.failed && !is.failed)
		o->name = mfs_arena_printf(&a->c->arena,
					   "%s: %s was given, and %s is taken from the checkpoint "
					   "(--use-checkpoint-args)",
					   spelling, was.data, is.data);
	mfs_buf_release(&was);
	mfs_buf_release(&is);
	*at = o;
	return o->name ? 0 : mfs_fail_nomem(a->err);
}

static int tell_overruled(struct adopt *a, const struct mft_flag_values *given)
{
	const struct mft_flag_values *v = a->c->values;
	int r = 0;

	for (size_t i = 0; i < mft_flag_count() && !r; i++)
		if (given->from[i] != MFT_FROM_DEFAULT && v->from[i] == MFT_FROM_CHECKPOINT &&
		    !is_same(a, i, &given->at[i], &v->at[i]))
			r = overrule(a, i, &given->at[i]);
	return r;
}

int mft_train_config_adopt(struct mft_train_config *config, const struct mft_adopted *from,
			   struct mfs_error *err)
{
	struct adopt a = {config, from, err};
	const struct mfs_megatron_args *m = from->model;
	const struct mft_flag_values *given;
	int r = 0;

	if (!config->values) {
		config->model = *m;
		return 0;
	}
	given = copy_of(config);
	if (!given)
		return mfs_fail_nomem(err);
	for (const struct mfs_args_field *f = mfs_args_fields; f->member && !r; f++)
		if (f->taken != MFS_ARGS_LEFT)
			r = put_field(&a, f);
	if (!r)
		r = put_model(&a);
	if (!r && from->doc)
		r = put_training(&a);
	if (!r)
		r = put_tokenizer(&a);
	if (!r)
		r = tell_overruled(&a, given);
	/* No flag says these (YaRN of MLA). */
	config->adopted = (struct mft_adopted_yarn){true, m->beta_fast, m->beta_slow,
						    m->original_max_position_embeddings};
	return r;
}
