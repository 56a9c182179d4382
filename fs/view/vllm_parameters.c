#include "fs/view/vllm_parameters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/names.h"
#include "formats/model/model.h"
#include "fs/view/stacked.h"

/* Which part of an HF tensor a worker has. */
enum cut { CUT_NONE, CUT_ROWS, CUT_HEADS, CUT_COLUMNS, CUT_VOCABULARY };

/* ---- targets ---- */

struct cutter {
	const struct mfs_vllm_parameter *p;
	const struct mfs_vllm_slice *slice;
	uint64_t expert; /* of stacked ones, from the first that the worker has */
	uint64_t at;	 /* where the slice begins, along the axis */
	mfs_emit_box emit;
	void *arg;
};

/* What of a box of the HF tensor lies in the slice. */
static int cut_box(const struct mfs_box_map *m, void *arg)
{
	const struct cutter *c = arg;
	const unsigned a = c->p->axis;
	const uint64_t first = mfs_max_u64(m->lo[a], c->slice->from);
	const uint64_t end = mfs_min_u64(m->lo[a] + m->size[a], c->slice->from + c->slice->count);
	struct mfs_box_map cut = *m;

	if (first >= end)
		return 0;
	cut.lo[a] = c->at + first - c->slice->from;
	cut.size[a] = end - first;
	if (m->src)
		cut.src_lo[m->src_axis[a]] += (first - m->lo[a]) * m->step[a];
	if (c->p->parts)
		mfs_stacked_box(&cut, c->slice->of->base.ndim, c->expert);
	return c->emit(&cut, c->arg);
}

static int boxes(const struct mfs_target *t, mfs_emit_box emit, void *arg)
{
	const struct mfs_vllm_parameter *p = (const struct mfs_vllm_parameter *)t;
	struct cutter c = {.p = p, .emit = emit, .arg = arg};
	struct mfs_box_map zeros = {.src = NULL};
	int rc = 0;

	for (uint32_t i = 0; i < p->count && !rc; i++) {
		c.slice = &p->slices[i];
		if (p->parts && i % p->parts == 0) {
			c.expert = i / p->parts;
			c.at = 0;
		}
		rc = mfs_target_boxes(&c.slice->of->base, cut_box, &c);
		c.at += c.slice->count;
	}
	if (rc || (p->count && !p->padding))
		return rc;
	memcpy(zeros.size, t->shape, sizeof(zeros.size));
	zeros.lo[p->axis] = c.at;
	zeros.size[p->axis] = p->padding;
	return emit(&zeros, arg);
}

static size_t name(const struct mfs_target *t, char *text, size_t size)
{
	const struct mfs_vllm_parameter *p = (const struct mfs_vllm_parameter *)t;

	return mfs_hf_target_name_as(p->like, p->as, text, size);
}

/* A number is a zero and 1, or less 1. */
static enum mfs_op op(const struct mfs_target *t)
{
	const struct mfs_vllm_parameter *p = (const struct mfs_vllm_parameter *)t;

	if (p->count)
		return mfs_target_op(&p->slices[0].of->base);
	return p->minus_one ? MFS_OP_SUBTRACT_ONE : MFS_OP_ADD_ONE;
}

static const struct mfs_target_ops ops = {boxes, name, op};

int mfs_vllm_number(const struct mfs_hf_target *like, const char *as, bool minus_one,
		    struct mfs_vllm_parameter *ret, struct mfs_error *err)
{
	static const uint64_t none[1];

	*ret = (struct mfs_vllm_parameter){
		.base = {.ops = &ops,
			 .ckpt = like->base.ckpt,
			 .dtype = minus_one ? like->model->dtype : MFS_F32},
		.like = like,
		.as = as,
		.minus_one = minus_one};
	return mfs_target_shape(&ret->base, none, 0, err);
}

/* ---- groups ---- */

/* A tensor, and the number of the first one of its layer that has its name in vLLM. */
struct placed {
	const struct mfs_hf_target *of;
	uint32_t first;
};

static int by_place(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	if (x->of->expert != y->of->expert)
		return x->of->expert < y->of->expert ? -1 : 1;
	return x->of->row < y->of->row ? -1 : x->of->row > y->of->row;
}

/* Of two names for one parameter the loader keeps the lesser. */
static bool is_tied_embedding(const struct mfs_hf_target *t)
{
	return (t->model->features & MFS_HAS(TIED)) && mfs_global_tensor_is_vocabulary(t->src);
}

/* NULL: the engine has HF's name. */
static const struct mfs_vllm_name *renamed(const struct mfs_hf_target *t, enum mfs_engine engine)
{
	const struct mfs_vllm_name *name =
		engine == MFS_ENGINE_SGLANG && t->row->sglang ? t->row->sglang : t->row->vllm;

	return name && mfs_applies(name->when, name->unless, t->model->features) ? name : NULL;
}

static const char *name_of(const struct mfs_hf_target *t, enum mfs_engine engine)
{
	const struct mfs_vllm_name *as = renamed(t, engine);

	if (as)
		return as->name;
	return is_tied_embedding(t) ? "lm_head.weight" : t->row->hf;
}

/* Numbers of tensors that begin a name, of one layer. */
struct firsts {
	enum mfs_engine engine;
	uint32_t *at, count, unit;
};

static uint32_t first_of(const struct mfs_model *m, uint32_t i, struct firsts *seen)
{
	const char *const text = name_of(&m->targets[i], seen->engine);

	if (seen->unit != m->targets[i].unit)
		seen->count = 0;
	seen->unit = m->targets[i].unit;
	for (uint32_t k = 0; k < seen->count; k++)
		if (!strcmp(name_of(&m->targets[seen->at[k]], seen->engine), text))
			return seen->at[k];
	seen->at[seen->count++] = i;
	return i;
}

static bool is_ahead(const struct mfs_model *m, const struct mfs_hf_target *t)
{
	return t->layer >= mfs_ckpt_args(m->ckpt)->num_layers;
}

/* Orders the tensors by groups; *ret_count: of those that are in any. */
static int place(const struct mfs_model *m, enum mfs_engine engine, struct mfs_arena *arena,
		 struct placed **ret, uint32_t *ret_count, struct mfs_error *err)
{
	struct placed *placed = mfs_arena_array(arena, m->target_count + 1, sizeof(*placed));
	struct firsts seen = {.engine = engine,
			      .at = mfs_arena_array(arena, m->target_count + 1, sizeof(*seen.at))};

	if (!placed || !seen.at)
		return mfs_fail_nomem(err);
	*ret_count = 0;
	for (uint32_t i = 0; i < m->target_count; i++)
		if (!is_ahead(m, &m->targets[i]))
			placed[(*ret_count)++] =
				(struct placed){&m->targets[i], first_of(m, i, &seen)};
	qsort(placed, *ret_count, sizeof(*placed), by_place);
	*ret = placed;
	return 0;
}

int mfs_vllm_groups(const struct mfs_model *m, enum mfs_engine engine, struct mfs_arena *arena,
		    struct mfs_vllm_group **ret, uint32_t *ret_count, struct mfs_error *err)
{
	struct mfs_vllm_group *groups =
		mfs_arena_array(arena, m->target_count + 1, sizeof(*groups));
	const struct mfs_hf_target **of = mfs_arena_array(arena, m->target_count + 1, sizeof(*of));
	struct placed *placed;
	uint32_t count, n = 0;
	int rc = groups && of ? place(m, engine, arena, &placed, &count, err) : mfs_fail_nomem(err);

	for (uint32_t i = 0; !rc && i < count; i++) {
		if (!i || placed[i].first != placed[i - 1].first)
			groups[n++] = (struct mfs_vllm_group){&of[i], 0};
		of[i] = placed[i].of;
		groups[n - 1].count++;
	}
	*ret = groups;
	*ret_count = n;
	return rc;
}

/* ---- which parts ---- */

/* vLLM cuts modules as Megatron does, but for the padding of the vocabulary. */
static enum cut cut_of(const struct mfs_hf_target *t, const struct mfs_vllm_layout *layout)
{
	const struct mfs_vllm_name *as = renamed(t, layout->engine);
	struct mfs_name name;

	if (t->expert >= 0 && layout->ep)
		return CUT_NONE;
	if (as && (as->rows || as->heads))
		return as->rows ? CUT_ROWS : CUT_HEADS;
	if (mfs_global_tensor_is_vocabulary(t->src))
		return CUT_VOCABULARY;
	if (t->row->rule == MFS_RULE_K || t->row->rule == MFS_RULE_V)
		return CUT_HEADS;
	mfs_name_parse(t->src->name, &name);
	switch (name.tp) {
	case MFS_TP_ROWS:
	case MFS_TP_GATED:
		return CUT_ROWS;
	case MFS_TP_COLS:
		return CUT_COLUMNS;
	default:
		return CUT_NONE;
	}
}

static int no_share(const struct mfs_hf_target *t, uint64_t size, uint32_t tp,
		    struct mfs_error *err)
{
	char text[MFS_CKPT_NAME_SIZE];

	mfs_target_name(&t->base, text, sizeof(text));
	return mfs_fail(err, -EINVAL, "%s: tensor '%s' has %llu, which %u workers cannot share",
			mfs_ckpt_dir(t->base.ckpt), text, (unsigned long long)size, tp);
}

/* The keys' and values' heads are at more than one worker where these are more. */
static int slice_of(const struct mfs_hf_target *t, const struct mfs_vllm_layout *layout,
		    uint32_t rank, struct mfs_vllm_slice *ret, struct mfs_error *err)
{
	const uint64_t groups = (uint64_t)mfs_ckpt_args(t->base.ckpt)->num_query_groups;
	const enum cut cut = cut_of(t, layout);
	const uint64_t size = t->base.shape[cut == CUT_COLUMNS];
	const uint32_t tp = layout->tp;

	*ret = (struct mfs_vllm_slice){.of = t, .count = size};
	if (cut == CUT_VOCABULARY) {
		const uint64_t each = mfs_round_up(size, MFS_VLLM_PADDING) / tp;

		ret->from = mfs_min_u64(each * rank, size);
		ret->count = mfs_min_u64(each, size - ret->from);
	} else if (cut == CUT_HEADS && groups < tp) {
		ret->count = size / groups;
		ret->from = rank / (tp / groups) * ret->count;
	} else if (cut != CUT_NONE) {
		if (size % tp)
			return no_share(t, size, tp, err);
		ret->count = size / tp;
		ret->from = rank * ret->count;
	}
	return 0;
}

/* The experts that a worker has: [*first, *first + *count). The first workers have one more where
 * they cannot have as many (vllm/.../fused_moe/expert_map_manager.py). */
static void experts_of(uint32_t all, const struct mfs_vllm_layout *layout, uint32_t rank,
		       uint32_t *first, uint32_t *count)
{
	const uint32_t workers = layout->ep ? layout->tp : 1, more = all % workers;
	const uint32_t at = layout->ep ? rank : 0;

	*count = all / workers + (at < more);
	*first = at * (all / workers) + (at < more ? at : more);
}

static int shape_parameter(struct mfs_vllm_parameter *p, uint32_t experts,
			   const struct mfs_vllm_layout *layout, struct mfs_error *err)
{
	const struct mfs_hf_target *t = p->like;
	const uint32_t stacked = p->parts != 0, parts = stacked ? p->parts : p->count;
	uint64_t shape[MFS_CKPT_DIMS] = {experts}, along = 0;

	memcpy(shape + stacked, t->base.shape, t->base.ndim * sizeof(*shape));
	for (uint32_t i = 0; i < parts; i++)
		along += p->slices[i].count;
	if (cut_of(t, layout) == CUT_VOCABULARY)
		p->padding = mfs_round_up(t->base.shape[0], MFS_VLLM_PADDING) / layout->tp - along;
	shape[stacked + p->axis] = along + p->padding;
	return mfs_target_shape(&p->base, shape, t->base.ndim + stacked, err);
}

int mfs_vllm_parameter(const struct mfs_vllm_group *g, const struct mfs_vllm_layout *layout,
		       uint32_t rank, struct mfs_arena *arena, struct mfs_vllm_parameter *ret,
		       struct mfs_error *err)
{
	const struct mfs_hf_target *t = g->of[0];
	const struct mfs_vllm_name *as = renamed(t, layout->engine);
	const bool stacked = t->expert >= 0;
	const uint32_t all = stacked ? (uint32_t)mfs_ckpt_args(t->base.ckpt)->num_experts : 1;
	struct mfs_vllm_slice *slices;
	uint32_t first = 0, experts = 1;
	int rc = 0;

	if (stacked)
		experts_of(all, layout, rank, &first, &experts);
	*ret = (struct mfs_vllm_parameter){
		.base = {.ops = &ops,
			 .ckpt = t->base.ckpt,
			 .dtype = as && as->f32 ? MFS_F32 : t->base.dtype},
		.like = t,
		.as = name_of(t, layout->engine),
		.axis = cut_of(t, layout) == CUT_COLUMNS,
		.count = g->count / all * experts,
		.parts = stacked ? g->count / all : 0};
	slices = mfs_arena_array(arena, ret->count + 1, sizeof(*slices));
	if (!slices)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < ret->count && !rc; i++)
		rc = slice_of(g->of[first * ret->parts + i], layout, rank, &slices[i], err);
	ret->slices = slices;
	return rc ? rc : shape_parameter(ret, experts, layout, err);
}

bool mfs_vllm_is_of_blocks(const struct mfs_vllm_parameter *p, uint64_t block)
{
	for (uint32_t i = 0; i < p->count; i++) {
		const struct mfs_vllm_slice *s = &p->slices[i];
		const bool whole = s->count == s->of->base.shape[p->axis];

		if (s->from % block || (s->count % block && !(whole && i + 1 == p->count)))
			return false;
	}
	return true;
}
