/*
 * --hybrid-layer-pattern: a HybridModel whose layers are those of a GPTModel, attention and an MLP
 * in turns (formats/args/hybrid_layers.h). It is trained as the GPTModel that it is, and saved as a
 * HybridModel. The flags keep what Megatron's own run has: --num-layers counts sublayers.
 *
 * Sources: megatron/training/arguments.py: validate_args; megatron/core/models/hybrid/
 * hybrid_layer_allocation.py: select_pipeline_segment.
 */
#include <string.h>

#include "formats/args/hybrid_layers.h"
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/settle/settle_i.h"

/* ---- the pattern ---- */

/* Megatron's own stack of layers, under its names of before and since core 0.17. */
static bool is_own_stack(const struct mft_flag_value *spec)
{
	static const char *const modules[] = {"megatron.core.models.hybrid.hybrid_layer_specs",
					      "megatron.core.models.mamba.mamba_layer_specs"};
	bool known = false;

	if (spec->type != MFT_IS_LIST || spec->count != 2)
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(modules); i++)
		known |= mfs_str_is(spec->items[0].text, modules[i]);
	return known && (mfs_str_is(spec->items[1].text, "hybrid_stack_spec") ||
			 mfs_str_is(spec->items[1].text, "mamba_stack_spec"));
}

static int check_spec(struct settle *s)
{
	if (!has(s, SPEC) ||
	    (has(s, HYBRID_LAYER_PATTERN) && is_own_stack(mft_flag_get(s->v, name_of(SPEC)))))
		return 0;
	return mfs_fail(s->err, -ENOTSUP,
			"--spec is not supported; the layers trained here follow from other "
			"arguments: where they are Megatron's own attention and MLPs, leave it "
			"out. With --hybrid-layer-pattern it may be "
			"megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec");
}

/* The names that came before. */
static int take_older(struct settle *s)
{
	const char *mtp = text(s, MTP_HYBRID_OVERRIDE_PATTERN), *pattern;
	int64_t depths = has(s, MTP_NUM_LAYERS) ? number(s, MTP_NUM_LAYERS) : 0;
	int r = exclude(s, HYBRID_LAYER_PATTERN, HYBRID_OVERRIDE_PATTERN);

	if (r)
		return r;
	if (has(s, HYBRID_OVERRIDE_PATTERN)) {
		mft_flag_set_text(s->v, name_of(HYBRID_LAYER_PATTERN),
				  text(s, HYBRID_OVERRIDE_PATTERN));
		mft_flag_set_none(s->v, name_of(HYBRID_OVERRIDE_PATTERN));
	}
	pattern = text(s, HYBRID_LAYER_PATTERN);
	if (!pattern || !mtp || strchr(pattern, '/'))
		return 0;
	for (; depths > 0 && pattern; depths--)
		pattern = mfs_arena_printf(&s->c->arena, "%s/%s", pattern, mtp);
	if (!pattern)
		return mfs_fail_nomem(s->err);
	mft_flag_set_text(s->v, name_of(HYBRID_LAYER_PATTERN), pattern);
	mft_flag_set_none(s->v, name_of(MTP_HYBRID_OVERRIDE_PATTERN));
	return 0;
}

static int parse(struct settle *s, struct mfs_hybrid_pattern *ret)
{
	const char *pattern = text(s, HYBRID_LAYER_PATTERN);
	int r = mfs_hybrid_parse(pattern, &s->c->arena, ret, s->err);

	if (r) {
		mfs_fail_in(s->err, "--hybrid-layer-pattern");
		return r;
	}
	if (mfs_hybrid_is_blocks(ret))
		return 0;
	return mfs_fail(s->err, -ENOTSUP,
			"--hybrid-layer-pattern %.200s is not supported; use a pattern in which "
			"attention (*, + or G) and an MLP or experts (- or E) take turns, and "
			"after each / the last two of them",
			pattern);
}

int mft_settle_pattern(struct settle *s)
{
	struct mfs_hybrid_pattern p;
	int r = take_older(s);

	if (!r)
		r = check_spec(s);
	if (!r && !has(s, HYBRID_LAYER_PATTERN) && is(s, IS_HYBRID_MODEL))
		r = mfs_fail(s->err, -EINVAL, "--is-hybrid-model needs --hybrid-layer-pattern");
	if (r || !has(s, HYBRID_LAYER_PATTERN))
		return r;
	r = parse(s, &p);
	if (r)
		return r;
	/* So it is in Megatron: the pattern counts, whatever else is given. */
	mft_flag_set_number(s->v, name_of(NUM_LAYERS), p.layers);
	mft_flag_set_none(s->v, name_of(ENCODER_NUM_LAYERS));
	mft_flag_set_number(s->v, name_of(MOE_LAYER_FREQ), 1);
	mft_flag_set_text(s->v, name_of(TRANSFORMER_IMPL), "transformer_engine");
	if (p.mtp_depths)
		mft_flag_set_number(s->v, name_of(MTP_NUM_LAYERS), p.mtp_depths);
	else
		mft_flag_set_none(s->v, name_of(MTP_NUM_LAYERS));
	if (strchr(p.letters, '+'))
		mft_flag_set_truth(s->v, name_of(MULTI_LATENT_ATTENTION), true);
	return 0;
}

/* ---- stages ---- */

static int inside(struct settle *s)
{
	return mfs_fail(s->err, -ENOTSUP,
			"--hybrid-layer-pattern %.200s: a pipeline stage would end between "
			"attention and its MLP, which is not supported; use stages of whole pairs, "
			"as in '*-*-|*-*-'",
			text(s, HYBRID_LAYER_PATTERN));
}

/* Stages that the pattern has, and the chunks of each. */
static int take_parts(struct settle *s, const struct mfs_hybrid_pattern *p)
{
	static const enum mft_dest ends[] = {DECODER_FIRST_PIPELINE_NUM_LAYERS,
					     DECODER_LAST_PIPELINE_NUM_LAYERS};
	const int64_t pp = number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	uint32_t *layers = mfs_arena_array(&s->c->arena, p->stage_count, sizeof(*layers));
	char a[MFT_FLAG_SPELLING];

	if (!layers)
		return mfs_fail_nomem(s->err);
	for (int i = 0; i < 2; i++)
		if (has(s, ends[i]))
			return mfs_fail(s->err, -EINVAL,
					"%s and a | in --hybrid-layer-pattern exclude each other",
					flag(ends[i], a));
	if (p->stage_count % pp)
		return mfs_fail(s->err, -EINVAL,
				"--hybrid-layer-pattern: expected a multiple of "
				"--pipeline-model-parallel-size %lld parts between |, found %u",
				(long long)pp, p->stage_count);
	for (uint32_t i = 0; i < p->stage_count; i++) {
		if (p->stages[i] % 2)
			return inside(s);
		if (!p->stages[i])
			return mfs_fail(s->err, -EINVAL,
					"--hybrid-layer-pattern: expected layers in each part, "
					"found none in part %u",
					i);
		layers[i] = p->stages[i] / 2;
	}
	if (p->stage_count > pp)
		mft_flag_set_number(s->v, name_of(VIRTUAL_PIPELINE_MODEL_PARALLEL_SIZE),
				    p->stage_count / pp);
	s->c->chunk_layers = layers;
	return 0;
}

/* Equal shares, but maybe the first and the last. What cannot be divided is refused by the
 * layout. */
static int check_shares(struct settle *s, const struct mfs_hybrid_pattern *p)
{
	const int64_t pp = number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	const bool first = has(s, DECODER_FIRST_PIPELINE_NUM_LAYERS),
		   last = has(s, DECODER_LAST_PIPELINE_NUM_LAYERS);
	const int64_t at_first = first ? number(s, DECODER_FIRST_PIPELINE_NUM_LAYERS) : 0,
		      at_last = last ? number(s, DECODER_LAST_PIPELINE_NUM_LAYERS) : 0,
		      stages = pp - first - last, rest = p->layers - at_first - at_last;

	if (at_first % 2 || at_last % 2 || (stages > 0 && rest > 0 && rest / stages % 2))
		return inside(s);
	return 0;
}

int mft_settle_pattern_stages(struct settle *s)
{
	static const enum mft_dest others[] = {
		NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE, NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK,
		PIPELINE_MODEL_PARALLEL_LAYOUT, ACCOUNT_FOR_EMBEDDING_IN_PIPELINE_SPLIT,
		ACCOUNT_FOR_LOSS_IN_PIPELINE_SPLIT};
	struct mfs_hybrid_pattern p;
	char a[MFT_FLAG_SPELLING];
	int r = parse(s, &p);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(others) && !r; i++)
		if (i < 3 ? has(s, others[i]) : is(s, others[i]))
			r = mfs_fail(s->err, -EINVAL,
				     "--hybrid-layer-pattern and %s exclude each other; use | in "
				     "the pattern",
				     flag(others[i], a));
	if (r)
		return r;
	return p.stage_count > 1 ? take_parts(s, &p) : check_shares(s, &p);
}
