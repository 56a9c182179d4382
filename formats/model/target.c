/* The name of a tensor of the model, and the boxes that it is made of. */
#include <stdio.h>
#include <string.h>

#include "formats/model/families/family.h"
#include "formats/model/model.h"
#include "formats/model/rules.h"

struct text {
	char *at;
	size_t size, len; /* len: of the full text, even if size is less */
};

static void put(struct text *t, const char *from, size_t len)
{
	if (t->len + len < t->size)
		memcpy(t->at + t->len, from, len);
	t->len += len;
}

/* Appends a pattern, with the number in place of mark. */
static void put_pattern(struct text *t, const char *pattern, const char *mark, int32_t number)
{
	const char *hole = strstr(pattern, mark);
	char digits[16];

	if (!hole) {
		put(t, pattern, strlen(pattern));
		return;
	}
	put(t, pattern, (size_t)(hole - pattern));
	put(t, digits, (size_t)snprintf(digits, sizeof(digits), "%d", number));
	put(t, hole + strlen(mark), strlen(hole + strlen(mark)));
}

static size_t hf_name(const struct mfs_target *base, char *text, size_t size)
{
	const struct mfs_hf_target *t = (const struct mfs_hf_target *)base;
	struct text out = {text, size, 0};

	if (t->layer >= 0)
		put_pattern(&out, t->model->family->layer_prefix, "{i}", t->layer);
	put_pattern(&out, t->row->hf, "{e}", t->expert);
	if (size)
		text[out.len < size ? out.len : size - 1] = '\0';
	return out.len;
}

struct boxes {
	const struct mfs_hf_target *t;
	mfs_emit_box emit;
	void *arg;
};

/* Emits a range of rows with all columns as a box. HF's Conv1D has the rows along its last axis. */
static int emit_box(const struct mfs_row_map *map, void *arg)
{
	const struct boxes *b = arg;
	const struct mfs_hf_target *t = b->t;
	const unsigned ndim = t->base.ndim, rows = t->row->transposed ? ndim - 1u : 0;
	struct mfs_box_map m = {.src = t->src};

	for (unsigned a = 0; a < ndim; a++) {
		m.size[a] = t->base.shape[a];
		m.step[a] = 1;
		m.src_axis[a] = (uint8_t)(t->row->transposed ? ndim - 1u - a : a);
	}
	m.lo[rows] = map->to;
	m.size[rows] = map->count;
	m.step[rows] = map->step;
	m.src_lo[0] = map->from;
	return b->emit(&m, b->arg);
}

static int hf_boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	const struct mfs_hf_target *t = (const struct mfs_hf_target *)base;
	const unsigned rows = t->row->transposed ? base->ndim - 1u : 0;
	struct boxes b = {t, emit, arg};

	return mfs_rule_maps(t->row->rule, mfs_ckpt_args(base->ckpt), t->src->shape[0],
			     base->shape[rows], emit_box, &b);
}

static enum mfs_op hf_op(const struct mfs_target *base)
{
	const struct mfs_hf_target *t = (const struct mfs_hf_target *)base;

	return t->row->norm && (t->model->features & MFS_HAS(ZERO_CENTERED)) ? MFS_OP_ADD_ONE
									     : MFS_OP_COPY;
}

const struct mfs_target_kind mfs_hf_target_kind = {hf_boxes, hf_name, hf_op};
