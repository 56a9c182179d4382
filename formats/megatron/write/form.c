#include "formats/megatron/write/form.h"

#include <string.h>

#include "formats/args/hybrid_layers.h"
#include "formats/base/array.h"

/* ---- the pattern ---- */

static void put_block(const struct mfs_megatron_args *a, int64_t block, struct mfs_buf *out)
{
	const enum mfs_hybrid_kind mixer = mfs_args_is_linear(a, block) ? MFS_HYBRID_DELTA_NET
					   : a->multi_latent_attention	? MFS_HYBRID_MLA
									: MFS_HYBRID_ATTENTION;
	const enum mfs_hybrid_kind mlp =
		mfs_args_is_moe(a, block) ? MFS_HYBRID_MOE : MFS_HYBRID_MLP;

	mfs_buf_printf(out, "%c%c", (char)mixer, (char)mlp);
}

static void put_stages(const struct mfs_megatron_args *a, const struct mfs_layout *p,
		       struct mfs_buf *out)
{
	for (uint32_t i = 0; i < p->vpp * p->pp; i++) {
		uint32_t first;
		const uint32_t count = mfs_layout_layers(p, a, i / p->pp, i % p->pp, &first);

		if (i)
			mfs_buf_adds(out, "|");
		for (uint32_t k = 0; k < count; k++)
			put_block(a, first + k, out);
	}
}

void mfs_form_pattern(const struct mfs_megatron_args *a, const struct mfs_layout *layout,
		      struct mfs_buf *out)
{
	if (layout)
		put_stages(a, layout, out);
	for (int64_t i = 0; !layout && i < a->num_layers; i++)
		put_block(a, i, out);
	for (int64_t k = 0; k < a->mtp_num_layers; k++) {
		mfs_buf_adds(out, "/");
		put_block(a, a->num_layers - 1, out);
	}
}

/* ---- arguments ---- */

enum value {
	LAYERS,
	PATTERN,
	LETTERS,
	NOTHING,
	ZERO,
	IS_HYBRID,
	SPEC,
	MOE_FREQ,
	MLA,
	WINDOWS,
	VARIANT,
	LINEAR_FREQ,
	ENGINE,
	GROUPED,
	PROVIDER,
	FIRST,
	LAST,
	STAGES,
};

/* When a row is written though the source does not have it. */
enum need { NEVER, IF_HYBRID, IF_MOE, IF_LINEAR, IF_WINDOWS, ALWAYS };

static const struct row {
	const char *name;
	enum value value;
	enum need need;
	bool moved; /* only where the form is not the source's */
} rows[] = {
	{"num_layers", LAYERS, ALWAYS, true},
	{"encoder_num_layers", LAYERS, NEVER, true},
	{"hybrid_layer_pattern", PATTERN, IF_HYBRID, false},
	{"hybrid_override_pattern", LETTERS, IF_HYBRID, false},
	{"mtp_hybrid_override_pattern", NOTHING, NEVER, false},
	{"hybrid_attention_ratio", ZERO, NEVER, false},
	{"hybrid_mlp_ratio", ZERO, NEVER, false},
	{"is_hybrid_model", IS_HYBRID, IF_HYBRID, true},
	{"spec", SPEC, IF_HYBRID, true},
	{"moe_layer_freq", MOE_FREQ, IF_MOE, true},
	{"multi_latent_attention", MLA, ALWAYS, true},
	{"window_attn_skip_freq", WINDOWS, IF_WINDOWS, true},
	{"experimental_attention_variant", VARIANT, IF_LINEAR, true},
	{"linear_attention_freq", LINEAR_FREQ, IF_LINEAR, true},
	{"transformer_impl", ENGINE, ALWAYS, true},
	{"moe_grouped_gemm", GROUPED, IF_MOE, false},
	{"model_provider", PROVIDER, NEVER, true},
	{"decoder_first_pipeline_num_layers", FIRST, NEVER, false},
	{"decoder_last_pipeline_num_layers", LAST, NEVER, false},
	{"num_layers_per_virtual_pipeline_stage", STAGES, NEVER, false},
	{"num_virtual_stages_per_pipeline_rank", STAGES, NEVER, false},
	{"pipeline_model_parallel_layout", STAGES, NEVER, false},
};

static void write_text(struct mfs_pickle_writer *w, const char *text)
{
	if (text)
		mfs_pickle_str(w, text);
	else
		mfs_pickle_none(w);
}

static void write_pattern(const struct mfs_form *f, struct mfs_pickle_writer *w,
			  const struct mfs_layout *layout, bool mtp)
{
	struct mfs_buf text = {0};

	mfs_form_pattern(f->args, layout, &text);
	if (text.failed)
		w->out->failed = true;
	else
		mfs_pickle_strn(w, text.data, mtp ? text.len : strcspn(text.data, "/"));
	mfs_buf_release(&text);
}

/* repeat: elements of a layer. Of a HybridModel those after the first are 0. */
static void write_list(struct mfs_pickle_writer *w, const uint8_t *has, int64_t layers,
		       unsigned repeat)
{
	mfs_pickle_list_begin(w);
	for (int64_t i = 0; i < layers; i++)
		for (unsigned k = 0; k < repeat; k++)
			mfs_pickle_int(w, k ? 0 : has[i]);
	mfs_pickle_list_end(w);
}

static void write_spec(const struct mfs_form *f, struct mfs_pickle_writer *w)
{
	if (!f->hybrid) {
		mfs_pickle_none(w);
		return;
	}
	mfs_pickle_list_begin(w);
	mfs_pickle_str(w, "megatron.core.models.hybrid.hybrid_layer_specs");
	mfs_pickle_str(w, "hybrid_stack_spec");
	mfs_pickle_list_end(w);
}

/* Which blocks have experts; of a HybridModel, by the pattern. */
static void write_freq(const struct mfs_form *f, struct mfs_pickle_writer *w)
{
	if (f->hybrid || !mfs_args_layers_differ(f->args))
		mfs_pickle_int(w, 1);
	else
		write_list(w, f->args->moe_layers, f->args->num_layers, 1);
}

static void write_layers(const struct mfs_form *f, struct mfs_pickle_writer *w, const uint8_t *has,
			 unsigned repeat)
{
	if (has)
		write_list(w, has, f->args->num_layers, repeat);
	else
		mfs_pickle_none(w);
}

/* Megatron takes None as all layers, where the run has a window. */
static void write_windows(const struct mfs_form *f, struct mfs_pickle_writer *w)
{
	const struct mfs_megatron_args *a = f->args;

	if (!a->window_layers && a->window_size == MFS_ABSENT)
		mfs_pickle_int(w, 1);
	else
		write_layers(f, w, a->window_layers, f->hybrid ? 2 : 1);
}

/* Of the first or last stage. A GPTModel's stages cannot begin in the middle of a block. */
static void write_count(const struct mfs_form *f, struct mfs_pickle_writer *w, int64_t count)
{
	if (f->hybrid || f->args->splits_blocks || count == MFS_ABSENT)
		mfs_pickle_none(w);
	else
		mfs_pickle_int(w, count);
}

static void write_value(const struct mfs_form *f, struct mfs_pickle_writer *w, enum value value)
{
	const struct mfs_megatron_args *a = f->args;
	const uint8_t *linear = f->hybrid ? NULL : a->linear_layers;

	switch (value) {
	case LAYERS:
		mfs_pickle_int(w, f->hybrid ? 2 * a->num_layers : a->num_layers);
		break;
	case PATTERN:
		write_pattern(f, w, f->layout, true);
		break;
	case LETTERS:
		write_pattern(f, w, NULL, false);
		break;
	case ZERO:
		mfs_pickle_float(w, 0);
		break;
	case IS_HYBRID:
		mfs_pickle_bool(w, f->hybrid);
		break;
	case SPEC:
		write_spec(f, w);
		break;
	case MOE_FREQ:
		write_freq(f, w);
		break;
	case MLA:
		mfs_pickle_bool(w, a->multi_latent_attention);
		break;
	case WINDOWS:
		write_windows(f, w);
		break;
	case VARIANT:
		write_text(w, linear ? "gated_delta_net" : NULL);
		break;
	case LINEAR_FREQ:
		write_layers(f, w, linear, 1);
		break;
	case ENGINE:
		mfs_pickle_str(w, "transformer_engine");
		break;
	case GROUPED:
		mfs_pickle_bool(w, f->hybrid || a->moe_grouped_gemm);
		break;
	case PROVIDER:
		mfs_pickle_str(w, f->hybrid ? "HybridModelProvider" : "GPTModelProvider");
		break;
	case FIRST:
		write_count(f, w, a->first_stage_layers);
		break;
	case LAST:
		write_count(f, w, a->last_stage_layers);
		break;
	case NOTHING:
	case STAGES:
		mfs_pickle_none(w);
	}
}

/* A GPTModel's stages are written by those who know layouts. */
static bool is_mine(const struct mfs_form *f, const struct row *r)
{
	const bool moves = f->hybrid != f->args->hybrid_form;

	if (r->moved && !moves)
		return false;
	if (f->hybrid)
		return true;
	if (r->value == FIRST || r->value == LAST)
		return !f->layout;
	return r->value != STAGES && (moves || r->value != GROUPED);
}

static void write_row(const struct mfs_form *f, struct mfs_pickle_writer *w, const struct row *r)
{
	mfs_pickle_name(w, r->name);
	if (!f->hybrid && (r->value == PATTERN || r->value == LETTERS))
		mfs_pickle_none(w);
	else
		write_value(f, w, r->value);
}

int mfs_form_replace(struct mfs_form *f, struct mfs_pickle_writer *w, const char *key,
		     size_t key_len)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++) {
		if (strlen(rows[i].name) != key_len || memcmp(rows[i].name, key, key_len) != 0 ||
		    !is_mine(f, &rows[i]))
			continue;
		f->written |= 1u << i;
		write_row(f, w, &rows[i]);
		return 1;
	}
	return 0;
}

static bool is_needed(const struct mfs_form *f, enum need need)
{
	switch (need) {
	case NEVER:
		return false;
	case IF_HYBRID:
		return f->hybrid;
	case IF_MOE:
		return f->args->moe_layers;
	case IF_LINEAR:
		return f->args->linear_layers && !f->hybrid;
	case IF_WINDOWS:
		return f->args->window_layers;
	case ALWAYS:
		break;
	}
	return true;
}

void mfs_form_complete(struct mfs_form *f, struct mfs_pickle_writer *w)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++)
		if (is_needed(f, rows[i].need) && !(f->written & 1u << i) && is_mine(f, &rows[i]))
			write_row(f, w, &rows[i]);
}
