/*
 * A model as vLLM's workers hold it, for load_format="sharded_state"
 * (vllm/model_executor/model_loader/sharded_state_loader.py). Worker r of N reads
 * "model-rank-r-part-0.safetensors": its part of each parameter, after vLLM has put queries, keys
 * and values into one, and gates and ups. How a worker cuts is written in
 * vllm/model_executor/layers/linear.py and vocab_parallel_embedding.py.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/target.h"
#include "formats/model/hf_weights.h"
#include "formats/model/model.h"
#include "fs/view/build.h"
#include "fs/view/hf.h"

#define PADDING	    64 /* of the vocabulary: DEFAULT_VOCAB_PADDING_SIZE */
#define MAX_PARTS   3
#define FILE_FORMAT "model-rank-%u-part-0.safetensors"

/* Which part of an HF tensor a worker has. */
enum cut { CUT_NONE, CUT_ROWS, CUT_HEADS, CUT_COLUMNS, CUT_VOCABULARY };

/* A range of an HF tensor along an axis. */
struct slice {
	const struct mfs_hf_target *of;
	uint64_t from, count;
};

/* A parameter of a worker: slices of HF tensors, one after the other along an axis. A parameter
 * without slices is a scale of 1, which Attention registers for an 8-bit cache. */
struct parameter {
	struct mfs_target base;
	const struct mfs_model *model;
	const char *suffix; /* of a scale */
	uint8_t axis, count;
	struct slice slices[MAX_PARTS];
	uint64_t padding; /* zeros after them, along the axis */
};

struct made {
	struct parameter *parameters;
	uint32_t count;
};

/* ---- targets ---- */

struct cutter {
	const struct parameter *p;
	const struct slice *slice;
	uint64_t at; /* where the slice begins, along the axis */
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
	return c->emit(&cut, c->arg);
}

static int boxes(const struct mfs_target *t, mfs_emit_box emit, void *arg)
{
	const struct parameter *p = (const struct parameter *)t;
	struct cutter c = {.p = p, .emit = emit, .arg = arg};
	struct mfs_box_map zeros = {.src = NULL};
	int rc = 0;

	for (unsigned i = 0; i < p->count && !rc; i++) {
		c.slice = &p->slices[i];
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

/* The end of HF's name, and vLLM's in its place. */
static const struct {
	const char *hf, *vllm;
} renamed[] = {
	{"q_proj.weight", "qkv_proj.weight"},
	{"q_proj.bias", "qkv_proj.bias"},
	{"gate_proj.weight", "gate_up_proj.weight"},
	{"gate_proj.bias", "gate_up_proj.bias"},
};

/* Of two names for one parameter the loader keeps the lesser. */
static bool is_tied_embedding(const struct mfs_model *m, const struct mfs_hf_target *t)
{
	return (m->features & MFS_HAS(TIED)) && mfs_global_tensor_is_vocabulary(t->src);
}

/* name with another end, which it must have. */
static size_t put_with_end(const char *name, const char *end, const char *other, char *text,
			   size_t size)
{
	return (size_t)snprintf(text, size, "%.*s%s", (int)(strlen(name) - strlen(end)), name,
				other);
}

static size_t name(const struct mfs_target *t, char *text, size_t size)
{
	const struct parameter *p = (const struct parameter *)t;
	const char *const queries = renamed[0].hf;
	char hf[MFS_CKPT_NAME_SIZE];

	mfs_target_name(&p->slices[0].of->base, hf, sizeof(hf));
	if (p->suffix && mfs_str_ends(hf, queries))
		return put_with_end(hf, queries, p->suffix, text, size);
	if (is_tied_embedding(p->model, p->slices[0].of))
		return (size_t)snprintf(text, size, "lm_head.weight");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(renamed) && p->count > 1; i++)
		if (mfs_str_ends(hf, renamed[i].hf))
			return put_with_end(hf, renamed[i].hf, renamed[i].vllm, text, size);
	return (size_t)snprintf(text, size, "%s", hf);
}

/* Zeros and 1. */
static enum mfs_op op(const struct mfs_target *t)
{
	const struct parameter *p = (const struct parameter *)t;

	return p->suffix ? MFS_OP_ADD_ONE : mfs_target_op(&p->slices[0].of->base);
}

static const struct mfs_target_ops target_ops = {boxes, name, op};

/* ---- which parts ---- */

/* vLLM cuts modules as Megatron does, but for the padding of the vocabulary. */
static enum cut cut_of(const struct mfs_hf_target *t)
{
	struct mfs_name name;

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

/* The keys' and values' heads are at more than one worker where these are more. */
static struct slice slice_of(const struct mfs_hf_target *t, uint32_t tp, uint32_t rank)
{
	const uint64_t groups = (uint64_t)mfs_ckpt_args(t->model->ckpt)->num_query_groups;
	const enum cut cut = cut_of(t);
	struct slice s = {.of = t, .count = t->base.shape[cut == CUT_COLUMNS]};

	if (cut == CUT_VOCABULARY) {
		const uint64_t each = (s.count + PADDING - 1) / PADDING * PADDING / tp;

		s.from = mfs_min_u64(each * rank, s.count);
		s.count = mfs_min_u64(each, s.count - s.from);
	} else if (cut == CUT_HEADS && groups < tp) {
		s.count /= groups;
		s.from = rank / (tp / groups) * s.count;
	} else if (cut != CUT_NONE) {
		s.count /= tp;
		s.from = rank * s.count;
	}
	return s;
}

/* Queries begin a parameter that their keys and values belong to, and gates one of their ups. */
static bool is_follower(const struct mfs_hf_target *t)
{
	return t->row->rule == MFS_RULE_K || t->row->rule == MFS_RULE_V ||
	       t->row->rule == MFS_RULE_UP;
}

static int shape_parameter(struct parameter *p, uint32_t tp, struct mfs_error *err)
{
	const struct mfs_hf_target *first = p->slices[0].of;
	uint64_t shape[MFS_CKPT_DIMS], along = 0;

	memcpy(shape, first->base.shape, sizeof(shape));
	for (unsigned i = 0; i < p->count; i++)
		along += p->slices[i].count;
	if (cut_of(first) == CUT_VOCABULARY)
		p->padding = (shape[0] + PADDING - 1) / PADDING * PADDING / tp - along;
	shape[p->axis] = along + p->padding;
	return mfs_target_shape(&p->base, shape, first->base.ndim, err);
}

/* The parameter that the i-th of the model's tensors begins. */
static int make_parameter(const struct mfs_model *m, uint32_t i, uint32_t tp, uint32_t rank,
			  struct parameter *p, struct mfs_error *err)
{
	const struct mfs_hf_target *t = &m->targets[i];

	*p = (struct parameter){
		.base = {.ops = &target_ops, .ckpt = m->ckpt, .dtype = t->base.dtype},
		.model = m,
		.axis = cut_of(t) == CUT_COLUMNS,
		.count = 1,
		.slices = {slice_of(t, tp, rank)}};
	for (i++; i < m->target_count && p->count < MAX_PARTS; i++)
		if (m->targets[i].src == t->src && is_follower(&m->targets[i]))
			p->slices[p->count++] = slice_of(&m->targets[i], tp, rank);
	return shape_parameter(p, tp, err);
}

static int make_scale(const struct parameter *queries, const char *suffix, struct parameter *p,
		      struct mfs_error *err)
{
	static const uint64_t none[1];

	*p = *queries;
	p->base.dtype = MFS_F32;
	p->suffix = suffix;
	p->count = 0;
	p->padding = 0;
	return mfs_target_shape(&p->base, none, 0, err);
}

/* ---- workers ---- */

static const char *const scales[] = {"attn._k_scale", "attn._v_scale", "attn._q_scale",
				     "attn._prob_scale"};

#define SCALES MFS_ARRAY_SIZE(scales)

/* The attention registers its scales with the weights of its queries. */
static bool has_scales(const struct mfs_hf_target *t)
{
	return t->row->rule == MFS_RULE_Q && t->base.ndim == 2;
}

static int add(struct made *vllm, struct mfs_hf_weights *w, uint32_t unit, struct mfs_error *err)
{
	return mfs_hf_weights_add(w, &vllm->parameters[vllm->count++].base, unit, err);
}

static int list_parameters(struct made *vllm, const struct mfs_model *m, uint32_t tp, uint32_t rank,
			   struct mfs_hf_weights *w, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < m->target_count && !rc; i++) {
		const struct mfs_hf_target *t = &m->targets[i];
		struct parameter *p = &vllm->parameters[vllm->count];

		if (is_follower(t))
			continue;
		rc = make_parameter(m, i, tp, rank, p, err);
		if (!rc)
			rc = add(vllm, w, t->unit, err);
		for (size_t k = 0; k < SCALES && has_scales(t) && !rc; k++) {
			rc = make_scale(p, scales[k], &vllm->parameters[vllm->count], err);
			if (!rc)
				rc = add(vllm, w, t->unit, err);
		}
	}
	return rc;
}

/* What list_parameters() adds. */
static size_t count_parameters(const struct mfs_model *m)
{
	size_t count = 0;

	for (uint32_t i = 0; i < m->target_count; i++)
		count += (is_follower(&m->targets[i]) ? 0 : 1) +
			 (has_scales(&m->targets[i]) ? SCALES : 0);
	return count;
}

static int add_worker(struct mfs_view *v, struct made *vllm, const struct mfs_model *m, uint32_t tp,
		      uint32_t rank, struct mfs_error *err)
{
	struct mfs_hf_weights w = {0};
	struct mfs_vfile *f;
	char file[64];
	int rc = list_parameters(vllm, m, tp, rank, &w, err);

	if (!rc) {
		const struct mfs_hf_shard all = {.count = w.count, .bytes = w.bytes};

		rc = mfs_hf_safetensors.file(&w, &all, &f, err);
	}
	snprintf(file, sizeof(file), FILE_FORMAT, rank);
	if (!rc)
		rc = mfs_view_add(v, file, f, err);
	v->tensor_count += w.count;
	mfs_hf_weights_release(&w);
	return rc;
}

/* ---- possible ones ---- */

/* -ENOTSUP: it is not known how vLLM holds models of the family. */
static int possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
		    struct mfs_error *err)
{
	if (family->vllm)
		return 0;
	return mfs_fail(err, -ENOTSUP, "%s: how vLLM's workers hold a %s is not known here",
			mfs_ckpt_dir(ckpt), family->name);
}

static int not_divisible(const struct mfs_ckpt *ckpt, const char *what, int64_t n, uint32_t tp,
			 struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: %s is %lld, which %u workers cannot share",
			mfs_ckpt_dir(ckpt), what, (long long)n, tp);
}

/* Parses "tpN". -ENOENT: spec has another form; -EINVAL: the model cannot be cut so. */
static int parse(const struct mfs_ckpt *ckpt, const char *spec, uint32_t *ret_tp,
		 struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const int64_t groups = a->num_query_groups;
	uint32_t tp = 0;

	if (!strncmp(spec, "tp", 2) && spec[2] != '0' && strlen(spec) < 8 &&
	    spec[2 + strspn(spec + 2, "0123456789")] == '\0')
		tp = (uint32_t)strtoul(spec + 2, NULL, 10);
	if (!tp)
		return mfs_fail(err, -ENOENT, "no view vllm/%s: name vllm/tpN", spec);
	if (PADDING % tp)
		return not_divisible(ckpt, "the padding of the vocabulary", PADDING, tp, err);
	if (a->num_attention_heads % tp)
		return not_divisible(ckpt, "num_attention_heads", a->num_attention_heads, tp, err);
	if (groups <= 0 || (groups % tp && tp % groups))
		return not_divisible(ckpt, "num_query_groups", groups, tp, err);
	if (a->ffn_hidden_size % tp)
		return not_divisible(ckpt, "ffn_hidden_size", a->ffn_hidden_size, tp, err);
	*ret_tp = tp;
	return 0;
}

/* ---- the row ---- */

static int add_workers(struct mfs_hf_builder *b)
{
	struct mfs_view *v = &b->view->public;
	struct made *vllm = calloc(1, sizeof(*vllm));
	uint32_t tp;
	int rc = parse(b->ckpt, b->spec, &tp, b->err);

	b->view->made = vllm;
	if (rc)
		return rc;
	if (vllm)
		vllm->parameters =
			calloc(tp * count_parameters(v->model) + 1, sizeof(*vllm->parameters));
	if (!vllm || !vllm->parameters)
		return mfs_fail_nomem(b->err);
	for (uint32_t rank = 0; rank < tp && !rc; rank++)
		rc = add_worker(v, vllm, v->model, tp, rank, b->err);
	return rc;
}

static void release(void *made)
{
	free(((struct made *)made)->parameters);
	free(made);
}

static const struct mfs_hf_flavour flavour = {.container = &mfs_hf_safetensors,
					      .possible = possible,
					      .weights = add_workers,
					      .release = release};

static int possible_vllm(const struct mfs_view_origin *s, struct mfs_error *err)
{
	return mfs_hf_possible(s, &flavour, err);
}

static int check_vllm(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err)
{
	uint32_t tp;

	return parse(s->ckpt, spec, &tp, err);
}

#define MAX_LISTED 4 /* powers of two */

static int list_vllm(const struct mfs_view_origin *s, struct mfs_arena *arena,
		     const char *const **ret, uint32_t *ret_count, struct mfs_error *err)
{
	const char **names = mfs_arena_array(arena, MAX_LISTED, sizeof(*names));

	*ret_count = 0;
	for (unsigned i = 0; i < MAX_LISTED && names; i++) {
		char *name = mfs_arena_printf(arena, "tp%u", 1u << i);

		if (!name)
			return mfs_fail_nomem(err);
		if (!check_vllm(s, name, NULL))
			names[(*ret_count)++] = name;
	}
	*ret = names;
	return names ? 0 : mfs_fail_nomem(err);
}

static int open_vllm(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	int rc = possible_vllm(s, err);

	if (!rc)
		rc = check_vllm(s, spec, err);
	return rc ? rc : mfs_hf_open(s, &flavour, spec, ret, err);
}

const struct mfs_view_kind mfs_view_kind_vllm = {
	.name = "vllm",
	.spec = "tp2",
	.help = "the same as vLLM's workers hold it (sharded_state)",
	.of = MFS_VIEW_OF_MODEL,
	.is_extra = true,
	.possible = possible_vllm,
	.check = check_vllm,
	.list = list_vllm,
	.open = open_vllm,
};
