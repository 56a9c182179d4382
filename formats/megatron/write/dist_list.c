/* Which tensors a torch_dist view has, how each is cut, and where its items lie. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/sections.h"
#include "formats/megatron/write/dist_keys.h"

static int bad(const struct mfs_megatron_dist *d, const struct mfs_global_tensor *t,
	       const char *what, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	return mfs_fail(err, -ENOTSUP, "%s: tensor '%s' %s", mfs_ckpt_dir(d->options.ckpt),
			mfs_global_tensor_name(t, name, sizeof(name)), what);
}

/* ---- files ---- */

static uint32_t unit_of(const struct mfs_megatron_dist *d, const struct mfs_global_tensor *t)
{
	if (t->layer < 0)
		return 0;
	if (!strncmp(t->name, "mtp.", 4))
		return 1 + (uint32_t)d->args->num_layers + (uint32_t)t->layer;
	return 1 + (uint32_t)t->layer;
}

uint32_t mfs_dist_unit(const struct mfs_megatron_dist *d, const struct mfs_dist_tensor *t,
		       uint32_t i)
{
	return unit_of(d, t->first + i);
}

static struct mfs_dist_file *file_of(const struct mfs_megatron_dist *d, uint32_t unit,
				     enum mfs_dist_kind kind)
{
	return &d->files[unit * MFS_DIST_KINDS + kind];
}

/* Adds bytes to the end of the file of each of a tensor's layers. These files all have one size. */
static int place(const struct mfs_megatron_dist *d, const struct mfs_dist_tensor *t,
		 enum mfs_dist_kind kind, uint64_t bytes, uint64_t *ret, struct mfs_error *err)
{
	*ret = file_of(d, mfs_dist_unit(d, t, 0), kind)->size;
	for (uint32_t i = 0; i < t->count; i += mfs_dist_each(t->experts)) {
		struct mfs_dist_file *f = file_of(d, mfs_dist_unit(d, t, i), kind);

		if (f->size != *ret)
			return bad(d, t->first, "is not at one place in all layers", err);
		if (mfs_add_overflows(f->size, bytes, &f->size) || f->size > INT64_MAX)
			return bad(d, t->first, "is too large", err);
	}
	return 0;
}

/* ---- tensors ---- */

/* How a tensor is cut into chunks. Readers accept any chunks, so one that cannot be divided stays
 * whole. */
static void cut(const struct mfs_megatron_dist *d, const struct mfs_name *name,
		struct mfs_dist_tensor *t)
{
	const struct mfs_layout *p = &d->options.layout;
	const bool gated = mfs_args_gated(d->args);
	uint32_t parts = name->experts ? p->etp : p->tp;

	t->axis = name->tp == MFS_TP_COLS;
	if (name->tp == MFS_TP_GATED && gated)
		parts *= 2;
	if (name->tp == MFS_TP_NONE ||
	    (name->tp == MFS_TP_AUTO && d->options.spec == MFS_LAYER_SPEC_TE) ||
	    (name->tp == MFS_TP_HEADS && !d->args->qk_norm_wide) || t->axis >= t->first->ndim ||
	    t->shape[t->axis] % parts)
		parts = 1;
	t->parts = parts;
}

/* The archive around a chunk. Stacked axes have length 1 in it. */
static int make_item(const struct mfs_megatron_dist *d, struct mfs_dist_tensor *t,
		     struct mfs_error *err)
{
	const unsigned stacked = (t->layers > 0) + (t->experts > 0);
	uint64_t shape[MFS_MAX_DIMS];

	for (unsigned a = 0; a < stacked; a++)
		shape[a] = 1;
	for (unsigned a = 0; a < t->first->ndim; a++)
		shape[stacked + a] = a == t->axis ? t->shape[a] / t->parts : t->shape[a];
	return mfs_torch_item(d->items, mfs_run_dtype(d->options.ckpt, t->first), shape,
			      stacked + t->first->ndim, &t->item, err);
}

/* Checks that every layer and expert is there, with the first one's shape and dtype. */
static int check_stack(const struct mfs_megatron_dist *d, const struct mfs_dist_tensor *t,
		       struct mfs_error *err)
{
	const uint32_t experts = mfs_dist_each(t->experts);

	if (t->count != (uint64_t)mfs_dist_each(t->layers) * experts)
		return bad(d, t->first, "is not in every layer and expert", err);
	for (uint32_t i = 0; i < t->count; i++) {
		const struct mfs_global_tensor *g = t->first + i;

		if ((t->layers && g->layer != (int32_t)(i / experts)) ||
		    (t->experts && g->expert != (int32_t)(i % experts)))
			return bad(d, g, "is not of the layer or expert that is expected next",
				   err);
		if (g->dtype != t->first->dtype || g->ndim != t->first->ndim ||
		    memcmp(g->shape, t->first->shape, sizeof(g->shape)) != 0)
			return bad(d, g, "differs in type or shape from other layers", err);
	}
	return 0;
}

/* A section of the rows is a tensor of .metadata. mfs_rank_check() has found all of them there. */
static void take_section(const struct mfs_megatron_dist *d, struct mfs_dist_tensor *t)
{
	uint64_t rows[MFS_SECTIONS_MAX];

	if (!t->section)
		return;
	mfs_sections(d->args, t->first->name, rows);
	for (unsigned i = 0; i + 1u < t->section; i++)
		t->first_row += rows[i];
	t->shape[0] = rows[t->section - 1];
}

static int describe(const struct mfs_megatron_dist *d, struct mfs_dist_tensor *t,
		    struct mfs_error *err)
{
	struct mfs_name name;
	int rc;

	mfs_name_parse(t->first->name, &name);
	if (name.experts)
		t->experts = d->args->num_experts > 0 ? (uint32_t)d->args->num_experts : 0;
	if (unit_of(d, t->first + t->count - 1) >= d->units)
		return bad(d, t->first, "is of a layer that the model does not have", err);
	rc = check_stack(d, t, err);
	if (rc)
		return rc;
	memcpy(t->shape, t->first->shape, sizeof(t->shape));
	if (mfs_global_tensor_is_vocabulary(t->first))
		t->shape[0] = d->vocab;
	take_section(d, t);
	cut(d, &name, t);
	return make_item(d, t, err);
}

/* True if global tensors a and b belong to one key. */
static bool same_key(const struct mfs_megatron_dist *d, const struct mfs_global_tensor *a,
		     const struct mfs_global_tensor *b)
{
	const bool stacked = !d->numbered && !strncmp(a->name, "decoder.", 8);

	return a->state == b->state && a->name == b->name && (stacked || a->layer == b->layer);
}

/* Tensors of .metadata, at most. */
static size_t count_tensors(const struct mfs_megatron_dist *d, uint32_t count)
{
	uint64_t rows[MFS_SECTIONS_MAX];
	size_t all = count;

	for (uint32_t i = 0; i < count; i++)
		all += mfs_sections(d->args, mfs_ckpt_at(d->options.ckpt, i)->name, rows);
	return all;
}

/* A key for global tensors that differ in layer and expert, or one for each section of them. */
static int add_keys(struct mfs_megatron_dist *d, const struct mfs_global_tensor *first,
		    uint32_t count, struct mfs_error *err)
{
	uint64_t rows[MFS_SECTIONS_MAX];
	const unsigned sections = mfs_sections(d->args, first->name, rows);
	int rc = 0;

	for (unsigned s = sections ? 1 : 0; s <= sections && !rc; s++) {
		struct mfs_dist_tensor *t = &d->tensors[d->tensor_count++];

		*t = (struct mfs_dist_tensor){
			.first = first, .count = count, .section = (uint8_t)s};
		if (!d->numbered && !strncmp(first->name, "decoder.layers.", 15))
			t->layers = (uint32_t)d->args->num_layers;
		rc = describe(d, t, err);
	}
	return rc;
}

static int add_tensors(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	const struct mfs_ckpt *ckpt = d->options.ckpt;
	const uint32_t count =
		d->options.optimizer ? mfs_ckpt_count_all(ckpt) : mfs_ckpt_count(ckpt);
	int rc = 0;

	d->tensors = calloc(count_tensors(d, count) + 1u, sizeof(*d->tensors));
	if (!d->tensors)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0, end; i < count && !rc; i = end) {
		const struct mfs_global_tensor *first = mfs_ckpt_at(ckpt, i);

		for (end = i + 1; end < count && same_key(d, first, mfs_ckpt_at(ckpt, end));)
			end++;
		rc = add_keys(d, first, end - i, err);
	}
	return rc;
}

/* ---- _extra_state ---- */

static void add_extra(struct mfs_megatron_dist *d, struct mfs_dist_extra extra)
{
	extra.first = d->extra_items;
	d->extras[d->extra_count++] = extra;
	d->extra_items += extra.owner->count;
}

/* GPTModel drops that of its head (gpt_model.py: sharded_state_dict), MambaModel does not. */
static bool owns_head(const struct mfs_megatron_dist *d, const struct mfs_global_tensor *t)
{
	return (d->args->hybrid_layers || d->options.layout.hybrid) &&
	       t->state == MFS_STATE_MODEL &&
	       !strcmp(t->name,
		       d->args->tied ? "embedding.word_embeddings.weight" : "output_layer.weight");
}

static int add_extras(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	d->extras = calloc(2 * (size_t)d->tensor_count + 1, sizeof(*d->extras));
	if (!d->extras)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < d->tensor_count; i++) {
		const struct mfs_dist_tensor *t = &d->tensors[i];

		if (owns_head(d, t->first))
			add_extra(d, (struct mfs_dist_extra){.owner = t, .head = true});
		if (!mfs_dist_has_extra(t->first) || t->section > 1)
			continue;
		add_extra(d, (struct mfs_dist_extra){.owner = t});
		if (strstr(t->first->name, ".self_attention.linear_proj."))
			add_extra(d, (struct mfs_dist_extra){.owner = t, .core_attention = true});
	}
	return 0;
}

/* ---- places ---- */

int mfs_dist_place(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	uint64_t bytes;
	int rc = 0;

	for (uint32_t i = 0; i < d->rng_count; i++) {
		d->rng[i].offset = file_of(d, 0, MFS_DIST_WEIGHTS)->size;
		file_of(d, 0, MFS_DIST_WEIGHTS)->size += d->rng[i].item->len;
	}
	for (uint32_t i = 0; i < d->extra_count && !rc; i++) {
		struct mfs_dist_extra *e = &d->extras[i];

		rc = place(d, e->owner, MFS_DIST_WEIGHTS,
			   (uint64_t)mfs_dist_each(e->owner->experts) * e->length, &e->offset, err);
	}
	for (uint32_t i = 0; i < d->tensor_count && !rc; i++) {
		struct mfs_dist_tensor *t = &d->tensors[i];

		if (mfs_mul_overflows((uint64_t)mfs_dist_each(t->experts) * t->parts,
				      mfs_torch_item_size(&t->item), &bytes))
			return bad(d, t->first, "is too large", err);
		rc = place(d, t, mfs_dist_kind_of(t), bytes, &t->offset, err);
	}
	return rc;
}

int mfs_dist_tensors(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	int rc;

	d->units = 1 + (uint32_t)d->args->num_layers +
		   (d->args->mtp_num_layers > 0 ? (uint32_t)d->args->mtp_num_layers : 0);
	d->files = calloc((size_t)d->units * MFS_DIST_KINDS, sizeof(*d->files));
	if (!d->files)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < d->units * MFS_DIST_KINDS; i++)
		d->files[i] = (struct mfs_dist_file){
			.dist = d, .unit = i / MFS_DIST_KINDS, .kind = i % MFS_DIST_KINDS};
	rc = add_tensors(d, err);
	return rc ? rc : add_extras(d, err);
}
