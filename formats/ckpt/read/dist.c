/* torch_dist: `.metadata` says where every chunk of every global tensor lies in `__R_W.distcp`. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/dist_i.h"

#define COMMON_FILE	  "common.pt"		   /* core <= 0.18 */
#define COMMON_ITEM	  "common_state/shard_0_1" /* core >= 0.19 */
#define MAX_METADATA	  (8ull << 30)
#define MAX_METADATA_JSON (1u << 20)
#define FREE_SLICES	  (1u << 20) /* 61 layers x 384 experts with their optimizer: 190 000 */
#define SLICE_BYTES	  512

/* ---- non-tensor state ---- */

/* src is what begins at base in file id. */
static int read_state_of(struct mfs_ckpt *ckpt, const struct mfs_source *src, const char *file,
			 uint32_t id, uint64_t base, struct mfs_error *err)
{
	struct mfs_torch_file f;
	mfs_value state;
	int rc = mfs_torch_file_open(src, &f, err);

	if (rc) {
		mfs_fail_in(err, "%s/%s", ckpt->dir, file);
		return rc;
	}
	state = mfs_pickle_root(f.doc);
	if (mfs_value_type(f.doc, state) == MFS_V_LIST)
		state = mfs_value_at(f.doc, state, 0); /* a byte item is a list of one object */
	rc = mfs_ckpt_read_state(ckpt, f.doc, state, file, err);
	if (rc || !(ckpt->what & MFS_CKPT_COMMON)) {
		mfs_torch_file_release(&f);
		return rc;
	}
	ckpt->state =
		(struct mfs_ckpt_common){.archive = f, .root = state, .file = id, .base = base};
	ckpt->has_state = true;
	return 0;
}

/* rng_state/shard_{pp}.{tp}_{P}.{T}; core 0.16 with EP > 1 has data-parallel ranks behind tp, of which the
 * first stands for all. */
static bool parse_rng_key(const char *key, struct mfs_ckpt_rng *ret)
{
	unsigned pp, tp, dp = 0, all_pp, all_tp, all_dp = 1;
	int used = 0;

	if (sscanf(key, "rng_state/shard_%u.%u_%u.%u%n", &pp, &tp, &all_pp, &all_tp, &used) != 4 &&
	    sscanf(key, "rng_state/shard_%u.%u.%u_%u.%u.%u%n", &pp, &tp, &dp, &all_pp, &all_tp,
		   &all_dp, &used) != 6)
		return false;
	if (key[used] || pp >= all_pp || tp >= all_tp || dp >= all_dp || dp)
		return false;
	ret->tp = tp;
	ret->pp = pp;
	return true;
}

static int note_rng(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
		    struct mfs_error *err)
{
	struct mfs_ckpt_rng r = {0};

	if (!(ckpt->what & MFS_CKPT_COMMON))
		return 0;
	ckpt->rng = mfs_arena_array(&ckpt->arena, dcp->bytes_count, sizeof(*ckpt->rng));
	if (!ckpt->rng)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < dcp->bytes_count; i++) {
		const struct mfs_dcp_bytes *b = &dcp->bytes[i];

		if (b->item.file == MFS_DCP_NO_FILE || !parse_rng_key(b->key, &r))
			continue;
		r.file = files[b->item.file];
		r.at = b->item.offset;
		r.length = b->item.length;
		ckpt->rng[ckpt->rng_count++] = r;
	}
	mfs_ckpt_sort_rng(ckpt);
	return 0;
}

static int read_common(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
		       struct mfs_error *err)
{
	const struct mfs_dcp_bytes *item = mfs_dcp_bytes(dcp, COMMON_ITEM);
	struct mfs_source src;
	uint32_t file;
	int rc = mfs_fileset_add(ckpt->files, COMMON_FILE, &file, NULL);

	if (!rc) {
		src = mfs_source_file(ckpt->files, file);
		return read_state_of(ckpt, &src, COMMON_FILE, file, 0, err);
	}
	if (!item || item->item.file == MFS_DCP_NO_FILE)
		return mfs_fail(err, -ENODATA,
				"%s: neither %s nor the item '%s': the arguments are missing",
				ckpt->dir, COMMON_FILE, COMMON_ITEM);
	src = mfs_source_file(ckpt->files, files[item->item.file]);
	src = mfs_source_range(&src, item->item.offset, item->item.length);
	return read_state_of(ckpt, &src, COMMON_ITEM, files[item->item.file], item->item.offset,
			     err);
}

/* ---- files ---- */

static int check_item(struct mfs_ckpt *ckpt, const char *key, const struct mfs_dcp_item *item,
		      const uint32_t *files, struct mfs_error *err)
{
	uint64_t size;

	if (item->file == MFS_DCP_NO_FILE)
		return 0; /* mfs_dcp_check() speaks up where it matters */
	size = mfs_fileset_size(ckpt->files, files[item->file]);
	if (mfs_range_ok(item->offset, item->length, size))
		return 0;
	return mfs_fail(
		err, -ENODATA,
		"%s/%s: '%s' needs bytes up to %llu, the file has %llu: the save is incomplete",
		ckpt->dir, mfs_fileset_name(ckpt->files, files[item->file]), key,
		(unsigned long long)item->offset + item->length, (unsigned long long)size);
}

/* A save is complete when every item, of the optimizer too, lies within its file. */
static int check_items(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
		       struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < dcp->bytes_count && !rc; i++)
		rc = check_item(ckpt, dcp->bytes[i].key, &dcp->bytes[i].item, files, err);
	for (uint32_t i = 0; i < dcp->tensor_count && !rc; i++) {
		const struct mfs_dcp_tensor *t = &dcp->tensors[i];

		for (uint32_t c = 0; c < t->chunk_count && !rc; c++)
			rc = check_item(ckpt, t->key, &t->chunks[c].item, files, err);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct mfs_dcp_item *x = *(const struct mfs_dcp_item *const *)a;
	const struct mfs_dcp_item *y = *(const struct mfs_dcp_item *const *)b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

static uint32_t list_items(const struct mfs_dcp *dcp, const struct mfs_dcp_item **items)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < dcp->bytes_count; i++)
		if (dcp->bytes[i].item.file != MFS_DCP_NO_FILE)
			items[count++] = &dcp->bytes[i].item;
	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		for (uint32_t c = 0; c < dcp->tensors[i].chunk_count; c++)
			if (dcp->tensors[i].chunks[c].item.file != MFS_DCP_NO_FILE)
				items[count++] = &dcp->tensors[i].chunks[c].item;
	return count;
}

/* Items lie side by side. Two at one place mean a damaged index: tensor ranks have equal offsets, so one
 * changed byte in a file's name would show another rank's weights. */
static int check_overlaps(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
			  struct mfs_error *err)
{
	const struct mfs_dcp_item **items;
	uint64_t most = dcp->bytes_count;
	uint32_t count;
	int rc = 0;

	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		most += dcp->tensors[i].chunk_count;
	items = calloc(most + 1, sizeof(*items));
	if (!items)
		return mfs_fail_nomem(err);
	count = list_items(dcp, items);
	qsort(items, count, sizeof(*items), by_place);
	for (uint32_t i = 1; i < count && !rc; i++)
		if (items[i]->file == items[i - 1]->file &&
		    items[i]->offset < items[i - 1]->offset + items[i - 1]->length)
			rc = mfs_fail(err, -EINVAL,
				      "%s/" METADATA ": two items share the bytes at %llu of %s",
				      ckpt->dir, (unsigned long long)items[i]->offset,
				      mfs_fileset_name(ckpt->files, files[items[i]->file]));
	free(items);
	return rc;
}

/* A stacked tensor becomes one of each layer and expert, at some 200 bytes of memory. A hole in a file may hold any
 * number of them and costs its maker nothing: beyond what any model has they must be paid for in bytes on the disk. */
static void allow_slices(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files)
{
	ckpt->slices = FREE_SLICES;
	for (uint32_t i = 0; i < dcp->file_count; i++)
		ckpt->slices += mfs_fileset_disk(ckpt->files, files[i]) / SLICE_BYTES;
}

static int add_files(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, uint32_t **ret,
		     struct mfs_error *err)
{
	uint32_t *files = mfs_arena_array(&ckpt->arena, dcp->file_count, sizeof(*files));
	int rc;

	if (!files)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < dcp->file_count; i++) {
		rc = mfs_fileset_add(ckpt->files, dcp->files[i], &files[i], err);
		if (rc == -ENOENT)
			return mfs_fail(err, -ENODATA, "%s/%s is missing: the save is incomplete",
					ckpt->dir, dcp->files[i]);
		if (rc)
			return rc;
	}
	*ret = files;
	return 0;
}

/* ---- tensors ---- */

/* Kept in the checkpoint, beyond the life of the parsed index. */
static const uint64_t *keep_dims(struct mfs_ckpt *ckpt, const uint64_t *dims, unsigned ndim)
{
	uint64_t *copy = mfs_arena_array(&ckpt->arena, ndim, sizeof(*copy));

	if (copy)
		memcpy(copy, dims, ndim * sizeof(*copy));
	return copy;
}

/* _w and _v hold gate and up apart; in the canonical tensor they are its two halves. */
static void place_part(struct mfs_dist_stacked *s)
{
	struct mfs_found_chunk *p = &s->piece;

	if (s->name.part == MFS_PART_WHOLE)
		return;
	if (s->name.part == MFS_PART_UP)
		p->chunk.lo[0] += p->shape[0];
	p->shape[0] *= 2;
}

static int add_slice(struct mfs_ckpt *ckpt, const struct mfs_dist_stacked *s,
		     const struct mfs_dcp_chunk *c, uint32_t storage, uint64_t layer,
		     uint64_t expert, struct mfs_error *err)
{
	struct mfs_dist_stacked slice = *s;
	struct mfs_found_chunk *p = &slice.piece;
	uint64_t stride[MFS_MAX_DIMS];

	mfs_ckpt_contiguous(c->size, s->t->ndim, stride);
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
	return mfs_ckpt_add_found(ckpt, p, err);
}

/* [first, last) of a stacked axis that a chunk covers; one step if the axis is not stacked. */
static void axis_range(const struct mfs_dcp_chunk *c, unsigned axis, uint64_t *first,
		       uint64_t *last)
{
	*first = axis < MFS_MAX_DIMS ? c->lo[axis] : 0;
	*last = axis < MFS_MAX_DIMS ? c->lo[axis] + c->size[axis] : 1;
}

int mfs_dist_storage(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t,
		     const struct mfs_dcp_chunk *c, const uint32_t *files, uint32_t *ret,
		     struct mfs_error *err)
{
	struct mfs_storage storage = {.container = MFS_IN_ITEM,
				      .file = files[c->item.file],
				      .dtype = t->dtype,
				      .at = c->item.offset,
				      .length = c->item.length,
				      .shape = keep_dims(ckpt, c->size, t->ndim),
				      .ndim = t->ndim};
	uint64_t elements;

	/* Before anything is sized by it: an item cannot hold more elements than bytes. */
	if (!mfs_shape_count(c->size, t->ndim, &elements) || !elements || elements > c->item.length)
		return mfs_fail(err, -EINVAL,
				"%s/" METADATA ": '%s': a chunk empty or larger than its item",
				ckpt->dir, t->key);
	if (!storage.shape)
		return mfs_fail_nomem(err);
	return mfs_ckpt_add_storage(ckpt, &storage, ret, err);
}

static int spend_slices(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t, uint64_t layers,
			uint64_t experts, struct mfs_error *err)
{
	uint64_t slices;

	if (!mfs_mul_overflows(layers, experts, &slices) && slices <= ckpt->slices) {
		ckpt->slices -= slices;
		return 0;
	}
	return mfs_fail(err, -ENOTSUP,
			"%s/" METADATA ": '%s': %llu layers of %llu experts are more than its "
			"files have bytes on the disk for",
			ckpt->dir, t->key, (unsigned long long)layers, (unsigned long long)experts);
}

int mfs_dist_add_chunk(struct mfs_ckpt *ckpt, const struct mfs_dist_stacked *s,
		       const struct mfs_dcp_chunk *c, const uint32_t *files, struct mfs_error *err)
{
	uint64_t layer, last_layer, expert, last_expert, first_expert;
	uint32_t id;
	int rc = mfs_dist_storage(ckpt, s->t, c, files, &id, err);

	axis_range(c, s->layer_axis, &layer, &last_layer);
	axis_range(c, s->expert_axis, &first_expert, &last_expert);
	if (!rc)
		rc = spend_slices(ckpt, s->t, last_layer - layer, last_expert - first_expert, err);
	for (; layer < last_layer && !rc; layer++)
		for (expert = first_expert; expert < last_expert && !rc; expert++)
			rc = add_slice(ckpt, s, c, id, layer, expert, err);
	return rc;
}

static int check_stack(struct mfs_ckpt *ckpt, const struct mfs_dist_stacked *s, unsigned axis,
		       const char *what, int64_t expected, struct mfs_error *err)
{
	if (axis == MFS_MAX_DIMS || (expected >= 0 && s->t->shape[axis] == (uint64_t)expected))
		return 0;
	return mfs_fail(err, -EINVAL, "%s/" METADATA ": '%s': expected %lld stacked %s, found %llu",
			ckpt->dir, s->t->key, (long long)expected, what,
			(unsigned long long)s->t->shape[axis]);
}

/* Leading axes: the layer's unless its number is in the key, then the expert's likewise. */
int mfs_dist_unstack(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t, const char *key,
		     struct mfs_dist_stacked *s, struct mfs_error *err)
{
	struct mfs_found_chunk *p = &s->piece;
	int rc;

	*s = (struct mfs_dist_stacked){
		.t = t, .layer_axis = MFS_MAX_DIMS, .expert_axis = MFS_MAX_DIMS};
	mfs_name_parse(key, &s->name);
	if (s->name.layered && s->name.layer < 0)
		s->layer_axis = s->skip++;
	if (s->name.experts && s->name.expert < 0)
		s->expert_axis = s->skip++;
	if (t->ndim < s->skip || t->ndim - s->skip > MFS_CKPT_DIMS ||
	    (s->name.part != MFS_PART_WHOLE && t->ndim == s->skip))
		return mfs_fail(err, -EINVAL, "%s/" METADATA ": '%s' has %u axes", ckpt->dir,
				t->key, t->ndim);
	rc = check_stack(ckpt, s, s->layer_axis, "layers", ckpt->args.num_layers, err);
	if (!rc)
		rc = check_stack(ckpt, s, s->expert_axis, "experts", ckpt->args.num_experts, err);
	if (rc)
		return rc;
	p->name = mfs_ckpt_intern(ckpt, s->name.canonical);
	if (!p->name)
		return mfs_fail_nomem(err);
	p->layer = s->name.layer;
	p->expert = s->name.expert;
	p->dtype = t->dtype;
	p->ndim = (uint8_t)(t->ndim - s->skip);
	memcpy(p->shape, t->shape + s->skip, p->ndim * sizeof(*p->shape));
	return 0;
}

static int add_tensor(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t, const uint32_t *files,
		      struct mfs_error *err)
{
	struct mfs_dist_stacked s;
	int rc = mfs_dcp_check(t, METADATA, err);

	if (rc) {
		mfs_fail_in(err, "%s", ckpt->dir);
		return rc;
	}
	rc = mfs_dist_unstack(ckpt, t, t->key, &s, err);
	for (uint32_t i = 0; i < t->chunk_count && !rc; i++)
		rc = mfs_dist_add_chunk(ckpt, &s, &t->chunks[i], files, err);
	return rc;
}

static int add_tensors(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
		       struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < dcp->tensor_count && !rc; i++)
		if (mfs_name_is_model(dcp->tensors[i].key) &&
		    !strstr(dcp->tensors[i].key, "._extra_state"))
			rc = add_tensor(ckpt, &dcp->tensors[i], files, err);
	return rc;
}

/* The layout that wrote the files; what is stored no longer depends on it. */
static void note_layout(struct mfs_ckpt *ckpt)
{
	const struct mfs_megatron_args *a = &ckpt->args;

	ckpt->layout = (struct mfs_ckpt_layout){
		.tp = (uint32_t)a->tensor_model_parallel_size,
		.pp = (uint32_t)a->pipeline_model_parallel_size,
		.ep = (uint32_t)a->expert_model_parallel_size,
		.etp = (uint32_t)a->expert_tensor_parallel_size,
		.vpp = (uint32_t)a->virtual_pipeline_model_parallel_size,
	};
}

/* metadata.json names the backend; zarr (until core 0.15) is another format altogether. */
static int check_backend_text(struct mfs_ckpt *ckpt, const char *text, size_t len,
			      struct mfs_error *err)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	const char *backend = json_string_value(json_object_get(root, "sharded_backend"));
	int rc = 0;

	if (!backend)
		rc = mfs_fail(err, -ENODATA, "%s/metadata.json: %s: the save is incomplete",
			      ckpt->dir,
			      root ? "it names no sharded_backend" : "it is no JSON (cut short?)");
	else if (strcmp(backend, "torch_dist"))
		rc = mfs_fail(err, -ENOTSUP,
			      "%s/metadata.json: sharded_backend is '%.40s', expected torch_dist",
			      ckpt->dir, backend);
	json_decref(root);
	return rc;
}

static int check_backend(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_source src;
	uint32_t file;
	void *text;
	int rc = mfs_fileset_add(ckpt->files, "metadata.json", &file, err);

	if (rc)
		return rc;
	src = mfs_source_file(ckpt->files, file);
	if (src.size > MAX_METADATA_JSON)
		return mfs_fail(err, -ENOTSUP, "%s/metadata.json: larger than 1 MiB", ckpt->dir);
	rc = mfs_source_slurp(&src, 0, src.size, &text, err);
	if (rc)
		return rc;
	rc = check_backend_text(ckpt, text, src.size, err);
	free(text);
	return rc;
}

static int read_index(struct mfs_ckpt *ckpt, struct mfs_dcp *ret, struct mfs_error *err)
{
	char name[4096];
	struct mfs_source src;
	uint32_t file;
	void *bytes;
	int rc = mfs_fileset_add(ckpt->files, METADATA, &file, err);

	if (rc == -ENOENT)
		return mfs_fail(err, -ENODATA, "%s/" METADATA " is missing: the save is incomplete",
				ckpt->dir);
	if (rc)
		return rc;
	src = mfs_source_file(ckpt->files, file);
	if (src.size > MAX_METADATA)
		return mfs_fail(err, -ENOTSUP, "%s/" METADATA ": larger than 8 GiB", ckpt->dir);
	rc = mfs_source_slurp(&src, 0, src.size, &bytes, err);
	if (rc)
		return rc;
	snprintf(name, sizeof(name), "%s/" METADATA, ckpt->dir);
	rc = mfs_dcp_parse(bytes, src.size, name, ret, err);
	free(bytes);
	return rc;
}

/* What reads flat buffers needs the index, once the model's tensors are there. */
static int keep_dcp(struct mfs_ckpt *ckpt, struct mfs_dcp *dcp, const uint32_t *files,
		    struct mfs_error *err)
{
	ckpt->dcp = malloc(sizeof(*ckpt->dcp));
	if (!ckpt->dcp)
		return mfs_fail_nomem(err);
	*ckpt->dcp = *dcp;
	*dcp = (struct mfs_dcp){0};
	ckpt->dcp_files = files;
	return 0;
}

void mfs_ckpt_drop_dcp(struct mfs_ckpt *ckpt)
{
	if (!ckpt->dcp)
		return;
	mfs_dcp_release(ckpt->dcp);
	free(ckpt->dcp);
	ckpt->dcp = NULL;
}

int mfs_ckpt_read_dist(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_dcp dcp;
	uint32_t *files;
	int rc = check_backend(ckpt, err);

	if (!rc)
		rc = read_index(ckpt, &dcp, err);
	if (rc)
		return rc;
	rc = add_files(ckpt, &dcp, &files, err);
	if (!rc)
		allow_slices(ckpt, &dcp, files);
	if (!rc)
		rc = check_items(ckpt, &dcp, files, err);
	if (!rc)
		rc = check_overlaps(ckpt, &dcp, files, err);
	if (!rc)
		rc = note_rng(ckpt, &dcp, files, err);
	if (!rc)
		rc = read_common(ckpt, &dcp, files, err);
	if (!rc)
		rc = add_tensors(ckpt, &dcp, files, err);
	if (!rc)
		note_layout(ckpt);
	if (!rc && ckpt->what & MFS_CKPT_OPTIMIZER)
		rc = mfs_dist_add_optim(ckpt, &dcp, files, err);
	if (!rc && ckpt->what & MFS_CKPT_OPTIMIZER)
		rc = keep_dcp(ckpt, &dcp, files, err);
	mfs_dcp_release(&dcp);
	return rc;
}

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

int mfs_ckpt_locate_item(struct mfs_ckpt *ckpt, const struct mfs_storage *s, uint64_t *ret,
			 struct mfs_record *ret_record, struct mfs_error *err)
{
	struct mfs_source file = mfs_source_file(ckpt->files, s->file);
	struct mfs_source src = mfs_source_range(&file, s->at, s->length);
	struct mfs_torch_file f;
	int rc = mfs_torch_file_open(&src, &f, err);

	if (rc)
		return rc;
	rc = locate_in(&f, s, ret, ret_record, err);
	mfs_torch_file_release(&f);
	return rc;
}
