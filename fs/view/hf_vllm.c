/*
 * A model as workers of vLLM or SGLang hold it, for load_format="sharded_state"
 * (vllm/model_executor/model_loader/sharded_state_loader.py, sglang/srt/model_loader/loader.py).
 * Worker r of N reads "model-rank-r-part-0.safetensors": its part of each parameter.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/fp8_target.h"
#include "formats/ckpt/target.h"
#include "formats/model/features.h"
#include "formats/model/hf_weights.h"
#include "formats/model/model.h"
#include "fs/view/build.h"
#include "fs/view/hf.h"
#include "fs/view/hf_fp8.h"
#include "fs/view/vllm_layout.h"
#include "fs/view/vllm_parameters.h"

#define FILE_FORMAT "model-rank-%u-part-0.safetensors"

/* A parameter of 8-bit floats, and its scales. */
struct quantised {
	struct mfs_fp8_target weight, scale;
	struct mfs_fp8_scales known; /* where it does not have those of other matrices */
	struct quantised *next;
};

/* What the files point into. */
struct made {
	struct mfs_arena arena;
	struct quantised *quantised;
	struct quantised **wholes; /* of HF tensors, by their numbers; NULL: not made yet */
	struct mfs_vllm_group *groups;
	uint32_t group_count;
};

/* ---- workers ---- */

/* A worker whose file is made. */
struct worker {
	struct made *made;
	const struct mfs_model *model;
	const struct mfs_fp8_form *form; /* NULL: weights are not quantised */
	struct mfs_vllm_layout layout;
	uint32_t rank;
	struct mfs_hf_weights weights;
	struct mfs_error *err;
};

/* What each attention of vLLM registers for an 8-bit cache. Where weights are quantised, one that
 * is not latent also registers what a file could say of them. */
static const struct {
	const char *name;
	bool if_quantised;
} numbers[] = {{"_k_scale", false},    {"_v_scale", false}, {"_q_scale", false},
	       {"_prob_scale", false}, {"k_scale", true},   {"v_scale", true},
	       {"q_scale", true},      {"prob_scale", true}};

static int add_target(struct worker *w, const struct mfs_target *t, uint32_t unit)
{
	return mfs_hf_weights_add(&w->weights, t, unit, w->err);
}

static struct mfs_vllm_parameter *new_parameter(const struct worker *w)
{
	return mfs_arena_alloc(&w->made->arena, sizeof(struct mfs_vllm_parameter));
}

static bool has_number(const struct worker *w, size_t i)
{
	const bool latent = mfs_ckpt_args(w->model->ckpt)->multi_latent_attention;

	if (w->layout.engine != MFS_ENGINE_VLLM)
		return false;
	return !numbers[i].if_quantised || (w->form && !latent);
}

static int add_number(struct worker *w, const struct mfs_hf_target *like, size_t i)
{
	struct mfs_vllm_parameter *p = new_parameter(w);
	const char *as = mfs_arena_printf(&w->made->arena, "%s.%s", w->model->family->vllm_cache,
					  numbers[i].name);
	int rc = p && as ? mfs_vllm_number(like, as, numbers[i].if_quantised, p, w->err)
			 : mfs_fail_nomem(w->err);

	return rc ? rc : add_target(w, &p->base, like->unit);
}

static int no_blocks(const struct worker *w, const struct mfs_vllm_parameter *p)
{
	char name[MFS_CKPT_NAME_SIZE];

	mfs_target_name(&p->base, name, sizeof(name));
	return mfs_fail(w->err, -EINVAL,
			"%s: of '%s' %u workers have parts that begin inside of a block of %llu",
			mfs_ckpt_dir(p->base.ckpt), name, w->layout.tp,
			(unsigned long long)w->form->block[0]);
}

static struct quantised *new_quantised(const struct worker *w)
{
	struct quantised *q = mfs_arena_alloc(&w->made->arena, sizeof(*q));

	if (!q)
		return NULL;
	*q = (struct quantised){.next = w->made->quantised};
	w->made->quantised = q;
	return q;
}

/* Blocks of a part are those of the whole, whose scales they have. */
static int init_blocks(const struct worker *w, const struct mfs_vllm_parameter *p,
		       struct quantised *q)
{
	if (!mfs_vllm_is_of_blocks(p, w->form->block[p->axis]))
		return no_blocks(w, p);
	return mfs_fp8_targets_init(&q->weight, &q->scale, &q->known, &p->base, w->form->block[0],
				    w->form->block[1], w->form->suffix, w->err);
}

/* The scale of a whole HF tensor: one for all workers, since each would find out the same. */
static int whole_of(const struct worker *w, const struct mfs_hf_target *t,
		    const struct mfs_fp8_target **ret)
{
	struct quantised **at = &w->made->wholes[t - w->model->targets];
	int rc = 0;

	if (!*at) {
		*at = new_quantised(w);
		rc = *at ? mfs_fp8_targets_init(&(*at)->weight, &(*at)->scale, &(*at)->known,
						&t->base, 0, 0, w->form->suffix, w->err)
			 : mfs_fail_nomem(w->err);
	}
	*ret = *at ? &(*at)->scale : NULL;
	return rc;
}

/* Slices have the scales of their HF tensors. The experts of all models that are known are gated:
 * of each there are two scales in w13, and one, which has no axis, in w2. */
static int init_parts(const struct worker *w, const struct mfs_vllm_parameter *p,
		      struct quantised *q)
{
	struct mfs_fp8_part *at = mfs_arena_array(&w->made->arena, p->count + 1, sizeof(*at));
	const struct mfs_fp8_parts parts = {at, p->count};
	uint64_t row = 0;
	int rc = at ? 0 : mfs_fail_nomem(w->err);

	for (uint32_t i = 0; i < p->count && !rc; i++) {
		const struct mfs_vllm_slice *s = &p->slices[i];

		at[i].row = row;
		row += p->axis ? s->of->base.shape[0] : s->count;
		rc = whole_of(w, s->of, &at[i].scale);
	}
	return rc ? rc
		  : mfs_fp8_part_targets_init(&q->weight, &q->scale, &p->base, &parts,
					      p->parts ? p->count / p->parts : 0, w->form->suffix,
					      w->err);
}

static int add_quantised(struct worker *w, const struct mfs_vllm_parameter *p)
{
	struct quantised *q = new_quantised(w);
	int rc;

	if (!q)
		return mfs_fail_nomem(w->err);
	rc = w->form->block[0] ? init_blocks(w, p, q) : init_parts(w, p, q);
	if (!rc)
		rc = add_target(w, &q->weight.base, p->like->unit);
	return rc ? rc : add_target(w, &q->scale.base, p->like->unit);
}

/* One tensor of each layer that attends. */
static bool ends_attention(const struct mfs_hf_target *t)
{
	return !strcmp(t->row->name, "self_attention.linear_proj.weight");
}

static int add_group(struct worker *w, const struct mfs_vllm_group *g)
{
	struct mfs_vllm_parameter *p = new_parameter(w);
	int rc = p ? mfs_vllm_parameter(g, &w->layout, w->rank, &w->made->arena, p, w->err)
		   : mfs_fail_nomem(w->err);

	if (!rc)
		rc = w->form && mfs_fp8_is_shown(g->of[0]) ? add_quantised(w, p)
							   : add_target(w, &p->base, p->like->unit);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(numbers) && ends_attention(g->of[0]) && !rc; i++)
		if (has_number(w, i))
			rc = add_number(w, g->of[0], i);
	return rc;
}

static int add_worker(struct mfs_view *v, struct worker *w)
{
	struct mfs_vfile *f;
	char file[64];
	int rc = 0;

	for (uint32_t i = 0; i < w->made->group_count && !rc; i++)
		rc = add_group(w, &w->made->groups[i]);
	if (!rc) {
		const struct mfs_hf_shard all = {.count = w->weights.count,
						 .bytes = w->weights.bytes};

		rc = mfs_hf_safetensors.file(&w->weights, &all, &f, w->err);
	}
	snprintf(file, sizeof(file), FILE_FORMAT, w->rank);
	if (!rc)
		rc = mfs_view_add(v, file, f, w->err);
	v->tensor_count += w->weights.count;
	mfs_hf_weights_release(&w->weights);
	return rc;
}

/* ---- the rows ---- */

static bool has_names(const struct mfs_family *f)
{
	const struct mfs_family_tensor *row = f->tensors;

	while (row->hf && !row->stacked && !row->transposed)
		row++;
	return f->vllm && f->vllm_cache && !row->hf;
}

/* -ENOTSUP: it is not known how vLLM holds models of the family. */
static int possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
		    struct mfs_error *err)
{
	if (has_names(family))
		return 0;
	return mfs_fail(err, -ENOTSUP, "%s: how vLLM's workers hold a %s is not known here",
			mfs_ckpt_dir(ckpt), family->name);
}

/* -ENOTSUP: nor how SGLang does. */
static int known_to_sglang(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			   struct mfs_error *err)
{
	const mfs_features unlike = mfs_features_of(mfs_ckpt_args(ckpt)) & family->sglang_unless;

	if (!has_names(family) || !family->sglang)
		return mfs_fail(err, -ENOTSUP,
				"%s: how SGLang's workers hold a %s is not known here",
				mfs_ckpt_dir(ckpt), family->name);
	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		if (unlike & ((mfs_features)1 << i))
			return mfs_fail(err, -ENOTSUP, "%s: SGLang %s does not know a %s with %s",
					mfs_ckpt_dir(ckpt), family->sglang, family->name,
					mfs_feature_text(i));
	return 0;
}

static int possible_quantised(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			      struct mfs_error *err)
{
	int rc = possible(ckpt, family, err);

	return rc ? rc : mfs_fp8_possible(ckpt, family, err);
}

/* -ENOENT: spec has another form; -EINVAL: the model cannot be cut so. */
static int parse(const struct mfs_ckpt *ckpt, const char *spec, enum mfs_engine engine,
		 const struct mfs_fp8_form *form, struct mfs_vllm_layout *ret,
		 struct mfs_error *err)
{
	int rc;

	ret->engine = engine;
	rc = mfs_vllm_layout_parse(ckpt, spec, ret, err);
	return rc || !form || !form->block[0]
		       ? rc
		       : mfs_vllm_layout_blocks(ckpt, ret, form->block[0], err);
}

static int find_groups(struct made *made, const struct mfs_model *m, enum mfs_engine engine,
		       struct mfs_error *err)
{
	made->wholes = mfs_arena_array(&made->arena, m->target_count + 1, sizeof(*made->wholes));
	return made->wholes ? mfs_vllm_groups(m, engine, &made->arena, &made->groups,
					      &made->group_count, err)
			    : mfs_fail_nomem(err);
}

static int add_workers(struct mfs_hf_builder *b, enum mfs_engine engine)
{
	struct mfs_view *v = &b->view->public;
	struct made *made = calloc(1, sizeof(*made));
	struct worker w = {
		.made = made, .model = v->model, .form = b->flavour->form, .err = b->err};
	int rc = parse(b->ckpt, b->spec, engine, w.form, &w.layout, b->err);

	b->view->made = made;
	v->cast |= w.form != NULL;
	if (!rc)
		rc = made ? find_groups(made, v->model, engine, b->err) : mfs_fail_nomem(b->err);
	for (w.rank = 0; w.rank < w.layout.tp && !rc; w.rank++)
		rc = add_worker(v, &w);
	return rc;
}

static int add_vllm(struct mfs_hf_builder *b)
{
	return add_workers(b, MFS_ENGINE_VLLM);
}

static int add_sglang(struct mfs_hf_builder *b)
{
	return add_workers(b, MFS_ENGINE_SGLANG);
}

static void release(void *of)
{
	struct made *made = of;

	for (struct quantised *q = made->quantised; q; q = q->next)
		mfs_fp8_scales_release(&q->known);
	mfs_arena_release(&made->arena);
	free(made);
}

#define MAX_LISTED 4 /* powers of two, without and with experts at one worker each */

static int list_specs(const struct mfs_ckpt *ckpt, enum mfs_engine engine,
		      const struct mfs_fp8_form *form, struct mfs_arena *arena, const char **names,
		      uint32_t *ret_count)
{
	struct mfs_vllm_layout layout;

	*ret_count = 0;
	for (unsigned i = 0; i < 2 * MAX_LISTED; i++) {
		const unsigned n = 1u << i % MAX_LISTED;
		char *name = i < MAX_LISTED ? mfs_arena_printf(arena, "tp%u", n)
					    : mfs_arena_printf(arena, "tp%u-ep%u", n, n);

		if (!name)
			return -ENOMEM;
		if ((n > 1 || !i) && !parse(ckpt, name, engine, form, &layout, NULL))
			names[(*ret_count)++] = name;
	}
	return 0;
}

static int list_of(const struct mfs_view_origin *s, enum mfs_engine engine,
		   const struct mfs_fp8_form *form, struct mfs_arena *arena,
		   const char *const **ret, uint32_t *ret_count, struct mfs_error *err)
{
	const char **names = mfs_arena_array(arena, 2 * MAX_LISTED, sizeof(*names));

	*ret = names;
	return names && !list_specs(s->ckpt, engine, form, arena, names, ret_count)
		       ? 0
		       : mfs_fail_nomem(err);
}

/* What follows HELP is the flavour. */
#define RANKS_VIEW(NAME, ENGINE, PATH, HELP, ...)                                                  \
	static const struct mfs_hf_flavour flavour_##NAME = {                                      \
		.container = &mfs_hf_safetensors, .release = release, __VA_ARGS__};                \
                                                                                                   \
	static int possible_##NAME(const struct mfs_view_origin *s, struct mfs_error *err)         \
	{                                                                                          \
		return mfs_hf_possible(s, &flavour_##NAME, err);                                   \
	}                                                                                          \
                                                                                                   \
	static int check_##NAME(const struct mfs_view_origin *s, const char *spec,                 \
				struct mfs_error *err)                                             \
	{                                                                                          \
		struct mfs_vllm_layout layout;                                                     \
                                                                                                   \
		return parse(s->ckpt, spec, ENGINE, flavour_##NAME.form, &layout, err);            \
	}                                                                                          \
                                                                                                   \
	static int list_##NAME(const struct mfs_view_origin *s, struct mfs_arena *arena,           \
			       const char *const **ret, uint32_t *ret_count,                       \
			       struct mfs_error *err)                                              \
	{                                                                                          \
		return list_of(s, ENGINE, flavour_##NAME.form, arena, ret, ret_count, err);        \
	}                                                                                          \
                                                                                                   \
	static int open_##NAME(const struct mfs_view_origin *s, const char *spec,                  \
			       struct mfs_view **ret, struct mfs_error *err)                       \
	{                                                                                          \
		int rc = possible_##NAME(s, err);                                                  \
                                                                                                   \
		if (!rc)                                                                           \
			rc = check_##NAME(s, spec, err);                                           \
		return rc ? rc : mfs_hf_open(s, &flavour_##NAME, spec, ret, err);                  \
	}                                                                                          \
                                                                                                   \
	const struct mfs_view_kind mfs_view_kind_##NAME = {                                        \
		.name = PATH,                                                                      \
		.spec = "tp2",                                                                     \
		.help = HELP,                                                                      \
		.of = MFS_VIEW_OF_MODEL,                                                           \
		.is_extra = true,                                                                  \
		.possible = possible_##NAME,                                                       \
		.check = check_##NAME,                                                             \
		.list = list_##NAME,                                                               \
		.open = open_##NAME,                                                               \
	};

RANKS_VIEW(vllm, MFS_ENGINE_VLLM, "vllm", "the same as vLLM's workers hold it (sharded_state)",
	   .weights = add_vllm, .possible = possible)
RANKS_VIEW(vllm_fp8, MFS_ENGINE_VLLM, "vllm-fp8", "hf-fp8 as they hold it", .weights = add_vllm,
	   .form = &mfs_fp8_blocks, .possible = possible_quantised, .config = mfs_fp8_set_config)
RANKS_VIEW(vllm_fp8_tensor, MFS_ENGINE_VLLM, "vllm-fp8-tensor", "hf-fp8-tensor as they hold it",
	   .weights = add_vllm, .form = &mfs_fp8_whole, .possible = possible_quantised,
	   .config = mfs_fp8_set_config)
RANKS_VIEW(sglang, MFS_ENGINE_SGLANG, "sglang", "hf as SGLang's workers hold it (sharded_state)",
	   .weights = add_sglang, .possible = known_to_sglang)
