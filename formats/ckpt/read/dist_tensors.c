/* torch_dist: turns chunks of stacked tensors into found chunks of each layer's and expert's
 * tensor, and finds where an item's tensor lies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/ckpt/sections.h"

/* ---- one item ---- */

static bool is_promised(const struct mfs_torch_tensor *t, const struct mfs_storage *s)
{
	uint64_t stride[MFS_MAX_DIMS];

	if (t->dtype != s->dtype || t->ndim != s->ndim ||
	    memcmp(t->shape, s->shape, t->ndim * sizeof(*t->shape)))
		return false;
	mfs_ckpt_contiguous(t->shape, t->ndim, stride);
	for (unsigned d = 0; d < t->ndim; d++)
		if (t->shape[d] > 1 && t->stride[d] != stride[d])
			return false;
	return true;
}

static int locate_in(const struct mfs_torch_file *f, const struct mfs_storage *s, uint64_t *ret,
		     struct mfs_record *ret_record, struct mfs_error *err)
{
	struct mfs_torch_tensor t;
	char want[96], have[96];
	uint64_t at;
	int rc = mfs_torch_tensor(f, mfs_pickle_root(f->doc), &t, err);

	if (rc)
		return rc;
	if (!is_promised(&t, s))
		return mfs_fail(
			err, -EINVAL, "%s: item at %llu: expected contiguous %s %s, found %s %s",
			f->zip.src.name, (unsigned long long)s->at, mfs_dtype_torch(s->dtype),
			mfs_shape_text(s->shape, s->ndim, want, sizeof(want)),
			mfs_dtype_torch(t.dtype),
			mfs_shape_text(t.shape, t.ndim, have, sizeof(have)));
	rc = mfs_zip_locate(&f->zip.src, t.record, &at, err);
	if (rc)
		return rc;
	*ret = s->at + at + t.offset * mfs_dtype_size(t.dtype);
	*ret_record = (struct mfs_record){s->at + at, t.record->size, t.record->crc};
	return 0;
}

static int locate_item(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint64_t *ret,
		       struct mfs_record *ret_record, struct mfs_error *err)
{
	struct mfs_source file = mfs_source_file(ckpt->files, s->file);
	struct mfs_source item = mfs_source_range(&file, s->at, s->length), src;
	struct mfs_source_ends ends;
	struct mfs_torch_file f;
	int rc = mfs_source_ends_init(&ends, &item, &src, err);

	if (!rc)
		rc = mfs_torch_file_open(&src, &f, err);
	if (rc)
		return rc;
	rc = locate_in(&f, s, ret, ret_record, err);
	mfs_torch_file_release(&f);
	return rc;
}

/* ---- tensors ---- */

/* Copies dims to the checkpoint, which outlives the parsed index. */
static const uint64_t *keep_dims(struct mfs_dist_reader *r, const uint64_t *dims, unsigned ndim)
{
	uint64_t *copy = mfs_arena_array(&r->ckpt->arena, ndim, sizeof(*copy));

	if (copy)
		memcpy(copy, dims, ndim * sizeof(*copy));
	return copy;
}

/* _w and _v are gate and up in tensors of their own. They are the two halves of the canonical
 * tensor. */
static void place_part(struct mfs_dist_stacked *s)
{
	struct mfs_found_chunk *p = &s->found;

	if (s->name.part == MFS_PART_WHOLE)
		return;
	if (s->name.part == MFS_PART_UP)
		p->chunk.lo[0] += p->shape[0];
	p->shape[0] *= 2;
}

/* The rows of a section that is a tensor of its own. *ret_first: the row of the whole tensor that
 * they begin with; *ret_all: the rows of that. */
static uint64_t section_rows(const struct mfs_dist_reader *r, const struct mfs_name *name,
			     uint64_t *ret_first, uint64_t *ret_all)
{
	uint64_t rows[MFS_SECTIONS_MAX];
	const unsigned count = mfs_sections(&r->ckpt->args, name->canonical, rows);

	*ret_first = *ret_all = 0;
	for (unsigned i = 0; i < count; i++) {
		if (i + 1u < name->section)
			*ret_first += rows[i];
		*ret_all += rows[i];
	}
	return rows[name->section - 1];
}

static int check_section(const struct mfs_dist_reader *r, const struct mfs_dist_stacked *s)
{
	uint64_t first, all, rows;

	if (!s->name.section)
		return 0;
	rows = section_rows(r, &s->name, &first, &all);
	if (s->found.shape[0] == rows)
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: '%s': expected %llu rows by the run's arguments of such "
			"layers, found %llu",
			r->ckpt->dir, r->index, s->t->key, (unsigned long long)rows,
			(unsigned long long)s->found.shape[0]);
}

uint64_t mfs_dist_place_section(const struct mfs_dist_reader *r, const struct mfs_name *name,
				struct mfs_found_chunk *p)
{
	uint64_t first;

	if (!name->section)
		return 0;
	section_rows(r, name, &first, &p->shape[0]);
	return first;
}

static int add_slice(struct mfs_dist_reader *r, const struct mfs_dist_stacked *s,
		     const struct mfs_dcp_chunk *c, uint32_t storage, uint64_t layer,
		     uint64_t expert)
{
	struct mfs_dist_stacked slice = *s;
	struct mfs_found_chunk *p = &slice.found;
	uint64_t stride[MFS_MAX_DIMS];

	mfs_ckpt_contiguous(c->stored ? c->stored : c->size, s->t->ndim, stride);
	p->chunk.storage = storage;
	if (s->layer_axis < MFS_MAX_DIMS) {
		p->layer = (int32_t)layer;
		p->chunk.origin += (layer - c->lo[s->layer_axis]) * stride[s->layer_axis];
	}
	if (s->expert_axis < MFS_MAX_DIMS) {
		p->expert = (int32_t)expert;
		p->chunk.origin += (expert - c->lo[s->expert_axis]) * stride[s->expert_axis];
	}
	for (unsigned d = 0; d < p->ndim; d++) {
		p->chunk.lo[d] = c->lo[d + s->skip];
		p->chunk.size[d] = c->size[d + s->skip];
		p->chunk.stride[d] = stride[d + s->skip];
	}
	place_part(&slice);
	if (s->name.section)
		p->chunk.lo[0] += mfs_dist_place_section(r, &s->name, p);
	return mfs_ckpt_add_found(r->ckpt, p, r->err);
}

/* [first, last) of a stacked axis that a chunk covers; one step if the axis is not stacked. */
static void axis_range(const struct mfs_dcp_chunk *c, unsigned axis, uint64_t *first,
		       uint64_t *last)
{
	*first = axis < MFS_MAX_DIMS ? c->lo[axis] : 0;
	*last = axis < MFS_MAX_DIMS ? c->lo[axis] + c->size[axis] : 1;
}

int mfs_dist_storage(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t,
		     const struct mfs_dcp_chunk *c, uint32_t *ret)
{
	struct mfs_storage storage = {.locate = r->arrays ? NULL : locate_item,
				      .file = r->files[c->item.file],
				      .dtype = t->dtype,
				      .at = c->item.offset,
				      .length = c->item.length,
				      .shape = keep_dims(r, c->size, t->ndim),
				      .ndim = t->ndim};
	uint64_t elements;

	/* An item cannot hold more elements than bytes. This is checked before sizes are
	 * computed. */
	if (!mfs_shape_count(c->size, t->ndim, &elements) || !elements || elements > c->item.length)
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: '%s': a chunk is empty or larger than its item",
				r->ckpt->dir, r->index, t->key);
	if (!storage.shape)
		return mfs_fail_nomem(r->err);
	return mfs_ckpt_add_storage(r->ckpt, &storage, ret, r->err);
}

static int spend_slices(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, uint64_t layers,
			uint64_t experts)
{
	uint64_t slices;

	if (!mfs_mul_overflows(layers, experts, &slices) && slices <= r->slices) {
		r->slices -= slices;
		return 0;
	}
	return mfs_fail(
		r->err, -ENOTSUP,
		"%s/%s: '%s': %llu layers of %llu experts need more bytes than its files have on "
		"the disk",
		r->ckpt->dir, r->index, t->key, (unsigned long long)layers,
		(unsigned long long)experts);
}

static int add_chunk(struct mfs_dist_reader *r, const struct mfs_dist_stacked *s,
		     const struct mfs_dcp_chunk *c)
{
	uint64_t layer, last_layer, expert, last_expert, first_expert;
	uint32_t id;
	int rc = mfs_dist_storage(r, s->t, c, &id);

	axis_range(c, s->layer_axis, &layer, &last_layer);
	axis_range(c, s->expert_axis, &first_expert, &last_expert);
	if (!rc)
		rc = spend_slices(r, s->t, last_layer - layer, last_expert - first_expert);
	for (; layer < last_layer && !rc; layer++)
		for (expert = first_expert; expert < last_expert && !rc; expert++)
			rc = add_slice(r, s, c, id, layer, expert);
	return rc;
}

static int check_stack(struct mfs_dist_reader *r, const struct mfs_dist_stacked *s, unsigned axis,
		       const char *what, int64_t expected)
{
	if (axis == MFS_MAX_DIMS || (expected >= 0 && s->t->shape[axis] == (uint64_t)expected))
		return 0;
	return mfs_fail(r->err, -EINVAL, "%s/%s: '%s': expected %lld stacked %s, found %llu",
			r->ckpt->dir, r->index, s->t->key, (long long)expected, what,
			(unsigned long long)s->t->shape[axis]);
}

/* Stacked leading axes are first the layer's, then the expert's. Either is absent if the key has
 * the number. */
int mfs_dist_unstack(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, const char *key,
		     struct mfs_dist_stacked *s)
{
	struct mfs_found_chunk *p = &s->found;
	int rc;

	*s = (struct mfs_dist_stacked){
		.t = t, .layer_axis = MFS_MAX_DIMS, .expert_axis = MFS_MAX_DIMS};
	mfs_name_parse(key, &s->name);
	if (s->name.layered && s->name.layer < 0)
		s->layer_axis = s->skip++;
	if (s->name.experts && s->name.expert < 0)
		s->expert_axis = s->skip++;
	if (t->ndim < s->skip || t->ndim - s->skip > MFS_CKPT_DIMS ||
	    ((s->name.part != MFS_PART_WHOLE || s->name.section) && t->ndim == s->skip))
		return mfs_fail(r->err, -EINVAL, "%s/%s: '%s' has %u axes", r->ckpt->dir, r->index,
				t->key, t->ndim);
	rc = check_stack(r, s, s->layer_axis, "layers", r->ckpt->args.num_layers);
	if (!rc)
		rc = check_stack(r, s, s->expert_axis, "experts", r->ckpt->args.num_experts);
	if (rc)
		return rc;
	p->name = mfs_ckpt_intern(r->ckpt, s->name.canonical);
	if (!p->name)
		return mfs_fail_nomem(r->err);
	p->layer = s->name.layer;
	p->expert = s->name.expert;
	p->dtype = t->dtype;
	p->ndim = (uint8_t)(t->ndim - s->skip);
	memcpy(p->shape, t->shape + s->skip, p->ndim * sizeof(*p->shape));
	rc = mfs_ckpt_block(r->ckpt, &s->name, r->index, t->key, &p->layer, r->err);
	return rc ? rc : check_section(r, s);
}

/* FSDP leaves the last ranks without rows of a small tensor, and torch saves these chunks, too. */
static bool is_empty(const struct mfs_dcp_chunk *c, unsigned ndim)
{
	for (unsigned d = 0; d < ndim; d++)
		if (!c->size[d])
			return true;
	return false;
}

int mfs_dist_add_tensor(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t, const char *key,
			enum mfs_state state)
{
	struct mfs_dist_stacked s;
	const char *refused = mfs_name_refused(key);
	int rc = mfs_dcp_check(t, r->index, r->err);

	if (rc) {
		mfs_fail_in(r->err, "%s", r->ckpt->dir);
		return rc;
	}
	if (refused && !(r->ckpt->what & MFS_CKPT_ADAPTER))
		return mfs_fail(r->err, -ENOTSUP,
				"%s/%s: '%s' is of %s, and its model is not shown "
				"without it",
				r->ckpt->dir, r->index, key, refused);
	rc = mfs_dist_unstack(r, t, key, &s);
	s.found.state = (uint8_t)state;
	for (uint32_t i = 0; i < t->chunk_count && !rc; i++)
		if (!r->ckpt->format->is_plain || !is_empty(&t->chunks[i], t->ndim))
			rc = add_chunk(r, &s, &t->chunks[i]);
	return rc;
}

const char *mfs_dist_model_key(const struct mfs_dist_reader *r, const char *key)
{
	return r->maker->model_key(key);
}

bool mfs_dist_has_model(const struct mfs_dist_reader *r)
{
	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		if (mfs_dist_model_key(r, r->dcp.tensors[i].key))
			return true;
	return false;
}

/* The key of a model tensor. NULL: it is none. */
static const char *tensor_key(const struct mfs_dist_reader *r, uint32_t i)
{
	const char *key = mfs_dist_model_key(r, r->dcp.tensors[i].key);

	return key && !strstr(key, "._extra_state") ? key : NULL;
}

static int choose_part(struct mfs_dist_reader *r)
{
	const char **names = calloc(r->dcp.tensor_count + 1u, sizeof(*names));
	uint32_t count = 0;
	int rc;

	if (!names)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		if (tensor_key(r, i))
			names[count++] = tensor_key(r, i);
	rc = mfs_ckpt_choose_part(r->ckpt, names, count, r->err);
	free(names);
	return rc;
}

int mfs_dist_add_tensors(struct mfs_dist_reader *r)
{
	int rc = choose_part(r);

	for (uint32_t i = 0; i < r->dcp.tensor_count && !rc; i++) {
		const char *key = tensor_key(r, i);
		char text[MFS_NAME_MAX];

		if (key)
			key = mfs_ckpt_part_name(r->ckpt, key, text, sizeof(text));
		if (key)
			rc = mfs_dist_add_tensor(r, &r->dcp.tensors[i], key, MFS_STATE_MODEL);
	}
	return rc;
}
