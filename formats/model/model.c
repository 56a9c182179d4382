#include "formats/model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/ckpt/dims.h"
#include "formats/model/features.h"
#include "formats/model/rules/rules.h"

#define DECODER	  "decoder.layers."
#define MTP	  "mtp.layers."
#define MTP_INNER "mtp.layers.transformer_layer."

#define DTYPES (MFS_C128 + 1)

/* A row of the family's tables that this model has. */
struct bound {
	const struct mfs_family_tensor *row;
	const char *name,
		*mtp_name;   /* full canonical names in the decoder and in MTP's inner layer */
	const char *used[2]; /* the same, interned by the checkpoint; NULL: not there */
};

struct builder {
	struct mfs_model *model;
	const struct mfs_megatron_args *args;
	uint64_t dims[MFS_DIM_COUNT];
	struct bound *rows;
	uint32_t row_count;
	uint64_t elements[DTYPES];
	struct mfs_error *err;
};

/* ---- rows of the tables ---- */

static int bind_row(struct builder *b, const struct mfs_family_tensor *row, struct bound *ret)
{
	struct mfs_arena *arena = &b->model->arena;
	const bool in_layer = row->scope == MFS_SCOPE_LAYER, in_mtp = row->scope == MFS_SCOPE_MTP;

	*ret = (struct bound){.row = row, .name = row->name};
	if (in_layer)
		ret->name = mfs_arena_printf(arena, "%s%s", DECODER, row->name);
	if (in_layer || in_mtp)
		ret->mtp_name =
			mfs_arena_printf(arena, "%s%s", in_mtp ? MTP : MTP_INNER, row->name);
	return ret->name && (ret->mtp_name || !(in_layer || in_mtp)) ? 0 : mfs_fail_nomem(b->err);
}

static int bind_rows(struct builder *b)
{
	const struct mfs_family_tensor *row = b->model->family->tensors;
	uint32_t most = 0;
	int rc = 0;

	while (row[most].hf)
		most++;
	b->rows = mfs_arena_array(&b->model->arena, most, sizeof(*b->rows));
	if (!b->rows)
		return mfs_fail_nomem(b->err);
	for (; row->hf && !rc; row++)
		if (mfs_applies(row->when, row->unless, b->model->features))
			rc = bind_row(b, row, &b->rows[b->row_count++]);
	return rc;
}

/* ---- targets ---- */

static const char *dir_of(const struct builder *b)
{
	return mfs_ckpt_dir(b->model->ckpt);
}

static int missing_tensor(const struct builder *b, const char *name, int32_t layer, int32_t expert)
{
	const struct mfs_global_tensor absent = {.name = name, .layer = layer, .expert = expert};
	char text[MFS_CKPT_NAME_SIZE];

	return mfs_fail(b->err, -ENODATA,
			"%s: tensor '%s' is missing; a model of the %s family has it", dir_of(b),
			mfs_global_tensor_name(&absent, text, sizeof(text)),
			b->model->family->name);
}

static int check_source(const struct builder *b, const struct mfs_global_tensor *src)
{
	char name[MFS_CKPT_NAME_SIZE];
	int rc = mfs_dims_check(b->model->ckpt, b->dims, src, b->err);

	if (rc || mfs_dtype_is_float(src->dtype))
		return rc;
	return mfs_fail(b->err, -ENOTSUP, "%s: tensor '%s' is of %s, expected floating point",
			dir_of(b), mfs_global_tensor_name(src, name, sizeof(name)),
			mfs_dtype_torch(src->dtype));
}

static int next_target(struct builder *b, struct mfs_hf_target **ret)
{
	struct mfs_model *m = b->model;

	if (mfs_grow(&m->targets, m->target_count))
		return mfs_fail_nomem(b->err);
	*ret = &m->targets[m->target_count++];
	return 0;
}

static int count_target(struct builder *b, struct mfs_hf_target *t)
{
	struct mfs_model *m = b->model;
	uint64_t elements;
	int rc = mfs_hf_target_shape(t, m->vocab.rows, b->err);

	if (rc)
		return rc;
	if (mfs_add_overflows(m->bytes, t->base.bytes, &m->bytes))
		return mfs_fail(b->err, -EINVAL, "%s: a model of more than 2^64 bytes", dir_of(b));
	mfs_shape_count(t->base.shape, t->base.ndim, &elements);
	m->parameters += elements;
	b->elements[t->base.dtype] += elements;
	return 0;
}

/* The place of a target in the source's numbering and in HF's. */
struct numbering {
	int32_t source_layer, layer;
	int32_t like; /* the layer in the decoder whose kind it is of; -1: it is in no layer */
	uint32_t unit;
	bool mtp;
};

static int find_source(const struct builder *b, const char *name, int32_t layer, int32_t expert,
		       const struct mfs_global_tensor **ret)
{
	*ret = mfs_ckpt_find(b->model->ckpt, name, layer, expert);
	return *ret ? check_source(b, *ret) : missing_tensor(b, name, layer, expert);
}

/* All experts are there, and of the first one's dtype: HF has them in one tensor. */
static int check_stack(const struct builder *b, const struct mfs_global_tensor *first)
{
	const struct mfs_global_tensor *src;
	char name[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	for (int32_t e = 1; e < b->args->num_experts && !rc; e++) {
		rc = find_source(b, first->name, first->layer, e, &src);
		if (!rc && src->dtype != first->dtype)
			rc = mfs_fail(b->err, -ENOTSUP,
				      "%s: tensor '%s' is of %s, expected %s as the first expert's",
				      dir_of(b), mfs_global_tensor_name(src, name, sizeof(name)),
				      mfs_dtype_torch(src->dtype), mfs_dtype_torch(first->dtype));
	}
	return rc;
}

static int add_target(struct builder *b, struct bound *row, const struct numbering *p,
		      int32_t expert)
{
	const char *name = p->mtp ? row->mtp_name : row->name;
	const bool stacked = row->row->stacked;
	const struct mfs_global_tensor *src;
	struct mfs_hf_target *t;
	int rc = find_source(b, name, p->source_layer, stacked ? 0 : expert, &src);

	if (!rc && stacked)
		rc = check_stack(b, src);
	if (!rc)
		rc = next_target(b, &t);
	if (rc)
		return rc;
	row->used[p->mtp] = src->name;
	*t = (struct mfs_hf_target){
		.base = {.ops = &mfs_hf_target_ops, .ckpt = b->model->ckpt, .dtype = src->dtype},
		.model = b->model,
		.row = row->row,
		.src = src,
		.layer = p->layer,
		.expert = expert,
		.unit = p->unit};
	return count_target(b, t);
}

static int add_rows(struct builder *b, enum mfs_scope scope, const struct numbering *p,
		    int32_t expert)
{
	int rc = 0;

	for (uint32_t i = 0; i < b->row_count && !rc; i++) {
		const struct mfs_family_tensor *row = b->rows[i].row;

		if (row->scope == scope && mfs_is_of_layer(row, b->args, p->like) &&
		    mfs_is_per_expert(row) == (expert >= 0))
			rc = add_target(b, &b->rows[i], p, expert);
	}
	return rc;
}

/* Tensors are ordered by experts, so that a shard that ends inside a layer ends after a whole
 * expert. */
static int add_scope(struct builder *b, enum mfs_scope scope, const struct numbering *p)
{
	const bool moe = p->like >= 0 && mfs_args_is_moe(b->args, p->like);
	int rc = add_rows(b, scope, p, -1);

	for (int32_t e = 0; moe && e < b->args->num_experts && !rc; e++)
		rc = add_rows(b, scope, p, e);
	return rc;
}

/* MTP layer k is HF's layer L+k, and of the same kind as the last layer. */
static int add_mtp_layers(struct builder *b, uint32_t layers)
{
	int rc = 0;

	for (int32_t k = 0; k < b->args->mtp_num_layers && !rc; k++) {
		struct numbering p = {.source_layer = k,
				      .layer = (int32_t)layers + k,
				      .like = (int32_t)layers - 1,
				      .unit = layers + (uint32_t)k + 1,
				      .mtp = true};

		rc = add_scope(b, MFS_SCOPE_MTP, &p);
		if (!rc)
			rc = add_scope(b, MFS_SCOPE_LAYER, &p);
	}
	return rc;
}

static int add_targets(struct builder *b)
{
	const uint32_t layers = (uint32_t)b->args->num_layers;
	const int64_t mtp = b->args->mtp_num_layers;
	struct numbering ends = {.source_layer = -1, .layer = -1, .like = -1};
	int rc = add_scope(b, MFS_SCOPE_BEFORE, &ends);

	for (uint32_t i = 0; i < layers && !rc; i++) {
		struct numbering p = {.source_layer = (int32_t)i,
				      .layer = (int32_t)i,
				      .like = (int32_t)i,
				      .unit = i + 1};

		rc = add_scope(b, MFS_SCOPE_LAYER, &p);
	}
	if (!rc)
		rc = add_mtp_layers(b, layers);
	ends.unit = layers + (mtp > 0 ? (uint32_t)mtp : 0) + 1;
	return rc ? rc : add_scope(b, MFS_SCOPE_AFTER, &ends);
}

/* ---- nothing left over ---- */

/* True if a target is made of t. */
static bool taken(const struct builder *b, const struct mfs_global_tensor *t)
{
	for (uint32_t i = 0; i < b->row_count; i++) {
		const struct bound *row = &b->rows[i];
		const bool mtp = t->name == row->used[1];
		const int64_t layers = mtp ? b->args->mtp_num_layers : b->args->num_layers;
		const int64_t like = mtp ? b->args->num_layers - 1 : t->layer;
		const bool ends =
			row->row->scope == MFS_SCOPE_BEFORE || row->row->scope == MFS_SCOPE_AFTER;

		if (t->name != row->used[0] && !mtp)
			continue;
		if (ends ? t->layer != -1 : t->layer < 0 || t->layer >= layers)
			continue;
		if (!ends && !mfs_is_of_layer(row->row, b->args, like))
			continue;
		if (row->row->experts ? t->expert >= 0 && t->expert < b->args->num_experts
				      : t->expert == -1)
			return true;
	}
	return false;
}

static int check_leftovers(const struct builder *b)
{
	const uint32_t count = mfs_ckpt_count(b->model->ckpt);
	char name[MFS_CKPT_NAME_SIZE], shape[128];

	for (uint32_t i = 0; i < count; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(b->model->ckpt, i);

		if (!taken(b, t))
			return mfs_fail(b->err, -ENOTSUP,
					"%s: tensor '%s' %s has no counterpart in HF's %s",
					dir_of(b), mfs_global_tensor_name(t, name, sizeof(name)),
					mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape)),
					b->model->family->architecture);
	}
	return 0;
}

/* ---- warnings ---- */

int mfs_model_warn(struct mfs_model *model, const char *fmt, ...)
{
	const uint32_t count = model->warning_count;
	const char **all = mfs_arena_array(&model->arena, count + 1, sizeof(*all));
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!all || !(all[count] = mfs_arena_strndup(&model->arena, text, strlen(text))))
		return -ENOMEM;
	if (count)
		memcpy(all, model->warnings, count * sizeof(*all));
	model->warnings = all;
	model->warning_count++;
	return 0;
}

static int warn(struct builder *b)
{
	const struct mfs_family_note *note = b->model->family->notes;
	const char *const *remark = mfs_ckpt_args(b->model->ckpt)->hf_remarks;
	int rc = 0;

	for (; remark && *remark && !rc; remark++)
		rc = mfs_model_warn(b->model, "%s", *remark);
	for (; note && note->text && !rc; note++)
		if ((b->model->features & note->when) == note->when)
			rc = mfs_model_warn(b->model, "%s", note->text);
	if (!rc && b->model->vocab.source == MFS_VOCAB_PADDED)
		rc = mfs_model_warn(
			b->model,
			"the true size of the vocabulary is not recorded: all %llu padded rows "
			"are shown; give it with -o vocab_size=N, vocab_size=tokenizer or ref=DIR",
			(unsigned long long)b->model->vocab.rows);
	return rc ? mfs_fail_nomem(b->err) : 0;
}

/* ---- life ---- */

static enum mfs_dtype most_common(const uint64_t *elements)
{
	enum mfs_dtype best = MFS_DTYPE_NONE;

	for (unsigned t = 0; t < DTYPES; t++)
		if (elements[t] > elements[best])
			best = (enum mfs_dtype)t;
	return best;
}

/* A family's other names are kept, since loaders choose their own code by them. */
static const char *kept(const struct mfs_family *f, const char *came_with, const char *own)
{
	return came_with && mfs_family_list_has(f->also, came_with) ? came_with : own;
}

static void name_class(struct mfs_model *m, const struct mfs_megatron_args *a, const char *arch)
{
	const struct mfs_family *f = m->family;

	m->architecture = kept(f, arch ? NULL : a->hf_architecture, f->architecture);
	m->model_type = kept(f, arch ? NULL : a->hf_model_type, f->model_type);
}

static int build(struct builder *b, const char *arch, const struct mfs_vocab *vocab)
{
	struct mfs_model *m = b->model;
	int rc;

	rc = mfs_family_choose(b->args, arch, &m->family, b->err);
	if (rc) {
		mfs_fail_in(b->err, "%s", dir_of(b));
		return rc;
	}
	name_class(m, b->args, arch);
	m->features = mfs_features_of(b->args);
	if (vocab)
		m->vocab = *vocab;
	else if ((rc = mfs_vocab_decide(m->ckpt, NULL, &m->vocab, b->err)))
		return rc;
	mfs_dims(b->args, m->vocab.padded, b->dims);
	rc = bind_rows(b);
	if (!rc)
		rc = add_targets(b);
	if (!rc)
		rc = check_leftovers(b);
	if (!rc)
		rc = warn(b);
	m->dtype = most_common(b->elements);
	return rc;
}

int mfs_model_new(struct mfs_ckpt *ckpt, const char *arch, const struct mfs_vocab *vocab,
		  struct mfs_model **ret, struct mfs_error *err)
{
	struct mfs_model *model = calloc(1, sizeof(*model));
	struct builder b = {.model = model, .args = mfs_ckpt_args(ckpt), .err = err};
	int rc;

	if (!model)
		return mfs_fail_nomem(err);
	model->ckpt = ckpt;
	rc = build(&b, arch, vocab);
	if (rc) {
		mfs_model_free(model);
		return rc;
	}
	*ret = model;
	return 0;
}

void mfs_model_free(struct mfs_model *model)
{
	if (!model)
		return;
	free(model->targets);
	mfs_arena_release(&model->arena);
	free(model);
}

const char *mfs_model_family(const struct mfs_model *model)
{
	return model->family->name;
}

const char *mfs_model_architecture(const struct mfs_model *model)
{
	return model->architecture;
}
