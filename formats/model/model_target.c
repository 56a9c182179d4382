/* The name of a tensor of the model, and the boxes that it is made of. */
#include <stdio.h>
#include <string.h>

#include "formats/model/families/family.h"
#include "formats/model/model.h"
#include "formats/model/rules/rules.h"

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

/* MTP layers continue the numbers of the others, or have a prefix of their own. */
static void put_layer(struct text *out, const struct mfs_hf_target *t)
{
	const struct mfs_family *f = t->model->family;
	const int64_t layers = f->mtp_prefix ? mfs_ckpt_args(t->base.ckpt)->num_layers : 0;

	if (f->mtp_prefix && t->layer >= layers)
		put_pattern(out, f->mtp_prefix, "{i}", (int32_t)(t->layer - layers));
	else
		put_pattern(out, f->layer_prefix, "{i}", t->layer);
}

size_t mfs_hf_target_name_as(const struct mfs_hf_target *t, const char *as, char *text, size_t size)
{
	struct text out = {text, size, 0};

	if (t->layer >= 0)
		put_layer(&out, t);
	put_pattern(&out, as, "{e}", t->expert);
	if (size)
		text[out.len < size ? out.len : size - 1] = '\0';
	return out.len;
}

static size_t hf_name(const struct mfs_target *base, char *text, size_t size)
{
	const struct mfs_hf_target *t = (const struct mfs_hf_target *)base;

	return mfs_hf_target_name_as(t, t->row->hf, text, size);
}

struct boxes {
	const struct mfs_hf_target *t;
	const struct mfs_global_tensor *src;
	int32_t expert; /* of stacked ones; else 0 */
	mfs_emit_box emit;
	void *arg;
};

/* The source's axis that the rule is about. */
static unsigned source_axis(const struct mfs_hf_target *t)
{
	return mfs_rule_is_of_columns(t->row->rule);
}

/* The target's axis along which it lies. HF's Conv1D has rows along its last axis. */
static unsigned rows_axis(const struct mfs_hf_target *t)
{
	const unsigned axis = source_axis(t);

	return t->row->transposed ? t->base.ndim - 1u - axis : t->row->stacked + axis;
}

/* Emits a range of rows with all columns as a box. */
static int emit_box(const struct mfs_row_map *map, void *arg)
{
	const struct boxes *b = arg;
	const struct mfs_hf_target *t = b->t;
	const unsigned ndim = t->base.ndim, rows = rows_axis(t), stacked = t->row->stacked;
	struct mfs_box_map m = {.src = b->src, .lane = map->lane, .lanes = map->lanes};

	for (unsigned a = 0; a < ndim; a++) {
		m.size[a] = t->base.shape[a];
		m.step[a] = 1;
		m.src_axis[a] = (uint8_t)(t->row->transposed ? ndim - 1u - a : a - stacked);
	}
	if (stacked) {
		m.lo[0] = (uint64_t)b->expert;
		m.size[0] = 1;
		m.src_axis[0] = MFS_AXIS_NONE;
	}
	m.lo[rows] = map->to;
	m.size[rows] = map->count;
	m.step[rows] = map->step;
	m.src_lo[source_axis(t)] = map->from;
	return b->emit(&m, b->arg);
}

int mfs_hf_target_expert_boxes(const struct mfs_hf_target *t, int32_t expert,
			       const struct mfs_global_tensor *src, mfs_emit_box emit, void *arg)
{
	struct boxes b = {t, src, expert, emit, arg};

	return mfs_rule_maps(t->row->rule, mfs_ckpt_args(t->base.ckpt), src->shape[source_axis(t)],
			     t->base.shape[rows_axis(t)], emit_box, &b);
}

static int hf_boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	const struct mfs_hf_target *t = (const struct mfs_hf_target *)base;
	int rc = 0;

	if (!t->row->stacked)
		return mfs_hf_target_expert_boxes(t, 0, t->src, emit, arg);
	/* mfs_model_new() has found all of them. */
	for (int32_t e = 0; (uint64_t)e < base->shape[0] && !rc; e++)
		rc = mfs_hf_target_expert_boxes(
			t, e, mfs_ckpt_find(base->ckpt, t->src->name, t->src->layer, e), emit, arg);
	return rc;
}

int mfs_hf_target_shape(struct mfs_hf_target *t, uint64_t vocab, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(t->base.ckpt);
	const unsigned stacked = t->row->stacked;
	uint64_t shape[MFS_PARAM_AXES + 1], *each = shape + stacked;

	shape[0] = (uint64_t)a->num_experts;
	each[0] = mfs_rule_rows(t->row->rule, a, t->src->shape[0], vocab);
	for (unsigned i = 1; i < t->src->ndim; i++)
		each[i] = t->src->shape[i];
	if (t->src->ndim == 2 && t->row->transposed) {
		each[1] = each[0];
		each[0] = t->src->shape[1];
	}
	return mfs_target_shape(&t->base, shape, t->src->ndim + stacked, err);
}

static enum mfs_op hf_op(const struct mfs_target *base)
{
	const struct mfs_hf_target *t = (const struct mfs_hf_target *)base;

	if (t->src->whole_norm || !t->row->norm)
		return MFS_OP_COPY;
	return t->model->features & MFS_HAS(ZERO_CENTERED) ? MFS_OP_ADD_ONE : MFS_OP_COPY;
}

const struct mfs_target_ops mfs_hf_target_ops = {hf_boxes, hf_name, hf_op};
