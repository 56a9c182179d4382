#include "fs/view/stacked.h"

#include <errno.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/model/model.h"

void mfs_stacked_box(struct mfs_box_map *m, unsigned ndim, uint64_t expert)
{
	for (unsigned a = ndim; a > 0; a--) {
		m->lo[a] = m->lo[a - 1];
		m->size[a] = m->size[a - 1];
		m->step[a] = m->step[a - 1];
		m->src_axis[a] = m->src_axis[a - 1];
	}
	m->lo[0] = expert;
	m->size[0] = 1;
	m->src_axis[0] = MFS_AXIS_NONE;
}

/* ---- targets ---- */

struct stack {
	struct mfs_target base;
	const struct mfs_fused *row;
	/* the parts of the first expert, then those of the second */
	const struct mfs_hf_target **of;
	uint32_t count;
};

struct stacker {
	const struct stack *stack;
	uint32_t i; /* of the tensor whose boxes these are */
	mfs_emit_box emit;
	void *arg;
};

static int stack_box(const struct mfs_box_map *m, void *arg)
{
	const struct stacker *s = arg;
	const uint32_t parts = s->stack->row->count;
	struct mfs_box_map box = *m;

	box.lo[0] += s->i % parts * s->stack->of[s->i]->base.shape[0];
	mfs_stacked_box(&box, 2, s->i / parts);
	return s->emit(&box, s->arg);
}

static int boxes(const struct mfs_target *t, mfs_emit_box emit, void *arg)
{
	struct stacker s = {.stack = (const struct stack *)t, .emit = emit, .arg = arg};
	int rc = 0;

	for (; s.i < s.stack->count && !rc; s.i++)
		rc = mfs_target_boxes(&s.stack->of[s.i]->base, stack_box, &s);
	return rc;
}

static size_t name(const struct mfs_target *t, char *text, size_t size)
{
	const struct stack *s = (const struct stack *)t;

	return mfs_hf_target_name_as(s->of[0], s->row->from, text, size);
}

static const struct mfs_target_ops ops = {.boxes = boxes, .name = name};

/* ---- which ones ---- */

/* The row that a tensor of an expert is a part of, and which. NULL: there is none. */
static const struct mfs_fused *row_of(const struct mfs_family *f, const char *hf,
				      uint32_t *ret_part)
{
	for (const struct mfs_fused *row = f->fused; row->from; row++)
		for (*ret_part = 0; *ret_part < row->count; ++*ret_part)
			if (!strcmp(row->to[*ret_part], hf))
				return row;
	return NULL;
}

int mfs_stacked_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			 struct mfs_error *err)
{
	uint32_t part;

	for (const struct mfs_family_tensor *row = family->tensors; row->hf; row++)
		if (mfs_is_per_expert(row) && mfs_ckpt_args(ckpt)->moe_layers &&
		    !row_of(family, row->hf, &part))
			return mfs_fail(err, -ENOTSUP,
					"%s: stack_experts: what a %s calls its stacked experts is "
					"not known here",
					mfs_ckpt_dir(ckpt), family->name);
	return 0;
}

/* Finds the parts of all experts of the layer of tensor i, which is the first. */
static int gather(const struct mfs_model *m, uint32_t i, struct stack *s, struct mfs_error *err)
{
	const struct mfs_hf_target *first = &m->targets[i];
	const uint64_t experts = s->count / s->row->count;
	const uint64_t shape[] = {experts, s->row->count * first->base.shape[0],
				  first->base.shape[1]};
	uint32_t part;

	for (; i < m->target_count && m->targets[i].unit == first->unit; i++) {
		const struct mfs_hf_target *t = &m->targets[i];

		if (t->expert >= 0 && row_of(m->family, t->row->hf, &part) == s->row)
			s->of[(uint32_t)t->expert * s->row->count + part] = t;
	}
	return mfs_target_shape(&s->base, shape, 3, err);
}

/* *ret is NULL where the tensor is in a stack that is there already. */
static int stack(const struct mfs_model *m, uint32_t i, struct mfs_arena *arena,
		 const struct mfs_target **ret, struct mfs_error *err)
{
	const struct mfs_hf_target *t = &m->targets[i];
	uint32_t part = 0;
	const struct mfs_fused *row = row_of(m->family, t->row->hf, &part);
	struct stack *s;
	int rc;

	*ret = NULL;
	if (t->expert || part)
		return 0;
	s = mfs_arena_alloc(arena, sizeof(*s));
	if (!s)
		return mfs_fail_nomem(err);
	*s = (struct stack){.base = {.ops = &ops, .ckpt = m->ckpt, .dtype = t->base.dtype},
			    .row = row,
			    .count = row->count * (uint32_t)mfs_ckpt_args(m->ckpt)->num_experts};
	s->of = mfs_arena_array(arena, s->count, sizeof(*s->of));
	rc = s->of ? gather(m, i, s, err) : mfs_fail_nomem(err);
	*ret = &s->base;
	return rc;
}

int mfs_stacked_list(const struct mfs_model *m, struct mfs_arena *arena, struct mfs_stacked **ret,
		     uint32_t *ret_count, struct mfs_error *err)
{
	struct mfs_stacked *list = mfs_arena_array(arena, m->target_count + 1, sizeof(*list));
	int rc = mfs_stacked_possible(m->ckpt, m->family, err);

	if (!rc && !list)
		rc = mfs_fail_nomem(err);
	*ret = list;
	*ret_count = 0;
	for (uint32_t i = 0; i < m->target_count && !rc; i++) {
		const struct mfs_target *t = &m->targets[i].base;

		if (m->targets[i].expert >= 0)
			rc = stack(m, i, arena, &t, err);
		if (!rc && t)
			list[(*ret_count)++] = (struct mfs_stacked){t, &m->targets[i]};
	}
	return rc;
}
