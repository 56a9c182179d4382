/*
 * Legacy files: the distributed optimizer's flat buffers, `distrib_optim.pt` next to the model's
 * file, in its two forms (docs/formats/optimizer.md). Where a parameter lies in one follows from
 * the order of the state dict (optim/buffers/flat_buffers.h); the sum must be the file's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/optim/buffers/flat_buffers.h"
#include "formats/optim/read/gathered_state.h"
#include "formats/optim/read/legacy_i.h"

#define FLAT_FILE "distrib_optim.pt"
#define EMBEDDING "embedding.word_embeddings.weight"
#define HEAD	  "output_layer.weight"

/* One buffer: which parameters of the rank are in it, in order. */
struct buffer {
	uint32_t chunk; /* virtual */
	enum mfs_dtype dtype;
	uint32_t *params; /* in the reader's list */
	struct mfs_flat_param *flat;
	uint32_t count;
	struct mfs_flat_buffer layout;
};

struct flat {
	struct mfs_legacy_optim *all;
	struct mfs_torch_reader *r;
	const struct mfs_torch_rank *rank;
	struct mfs_torch_source a;
	const struct mfs_pickle *doc;
	char where[512]; /* the file, for messages */
	bool take_dense, take_experts;
	int part; /* 0 all parameters; 1 those of no expert, 2 the experts' */
	struct buffer *buffers;
	uint32_t count;
	bool has_embedding; /* the rank, in any chunk */
	struct mfs_arena arena;
};

static int bad(const struct flat *f, int code, const char *what)
{
	return mfs_fail(f->r->err, code, "%s: %s", f->where, what);
}

/* ---- which parameters are in which buffer ---- */

static bool is_in(const struct flat *f, const struct mfs_torch_param *p)
{
	return !f->part || p->name.experts == (f->part == 2);
}

/* An embedding of which another stage has a copy, in a bucket of its own (shared_embedding): the
 * stage's word embedding, and where there is none its tied head. */
static bool is_shared(const struct flat *f, const struct mfs_torch_param *p)
{
	const struct mfs_megatron_args *a = &f->r->ckpt->args;

	if (f->r->pp == 1 || (!a->tied && a->mtp_num_layers <= 0))
		return false;
	if (!strcmp(p->name.canonical, EMBEDDING))
		return true;
	return a->tied && !f->has_embedding && !strcmp(p->name.canonical, HEAD);
}

/* Index of the buffer of a model chunk and dtype. Model chunks come one after the other. */
static uint32_t find_buffer(struct flat *f, uint32_t chunk, enum mfs_dtype dtype)
{
	for (uint32_t i = f->count; i-- > 0 && f->buffers[i].chunk == chunk;)
		if (f->buffers[i].dtype == dtype)
			return i;
	f->buffers[f->count] = (struct buffer){.chunk = chunk, .dtype = dtype};
	return f->count++;
}

/* Counts the parameters of each buffer; which[i] is that of the i-th parameter. */
static int count_params(struct flat *f, uint32_t *which)
{
	const struct mfs_torch_params *all = &f->r->params;

	f->has_embedding = false;
	for (uint32_t i = 0; i < all->count; i++) {
		const struct mfs_torch_param *p = &all->list[i];

		f->has_embedding |= !strcmp(p->name.canonical, EMBEDDING);
		if (!is_in(f, p))
			continue;
		which[i] = find_buffer(f, p->chunk / f->r->pp, p->t.dtype);
		f->buffers[which[i]].count++;
	}
	for (uint32_t i = 0; i < f->count; i++) {
		struct buffer *b = &f->buffers[i];

		b->params = mfs_arena_array(&f->arena, b->count, sizeof(*b->params));
		b->flat = mfs_arena_array(&f->arena, b->count, sizeof(*b->flat));
		if (!b->params || !b->flat)
			return mfs_fail_nomem(f->r->err);
		b->count = 0;
	}
	return 0;
}

static int sort_params(struct flat *f)
{
	const struct mfs_torch_params *all = &f->r->params;
	uint32_t *which = mfs_arena_array(&f->arena, all->count, sizeof(*which));
	int rc;

	/* At most one buffer for each parameter. */
	f->count = 0;
	f->buffers = mfs_arena_array(&f->arena, all->count, sizeof(*f->buffers));
	rc = which && f->buffers ? count_params(f, which) : mfs_fail_nomem(f->r->err);
	for (uint32_t i = 0; i < all->count && !rc; i++) {
		const struct mfs_torch_param *p = &all->list[i];
		struct buffer *b = &f->buffers[which[i]];

		if (!is_in(f, p))
			continue;
		b->params[b->count] = i;
		b->flat[b->count].shared = is_shared(f, p);
		/* Smaller than its record, so that it does not overflow. */
		mfs_shape_count(p->t.shape, p->t.ndim, &b->flat[b->count++].elements);
	}
	return rc;
}

/* Ranks that share a buffer. */
static uint32_t data_parallel(const struct flat *f, bool experts)
{
	const struct mfs_torch_reader *r = f->r;
	const int64_t world = r->ckpt->args.world_size;
	const uint64_t ranks = (uint64_t)r->pp * (experts ? (uint64_t)r->ep * r->etp : r->tp);

	return world > 0 && (uint64_t)world >= ranks ? (uint32_t)((uint64_t)world / ranks) : 1;
}

static int lay_out(struct flat *f, struct buffer *b, bool aligned)
{
	struct mfs_optim_rules rules = f->all->rules;
	const uint32_t dp = data_parallel(f, f->part == 2);
	uint64_t parameters = 0, n;

	for (uint32_t i = 0; i < f->r->params.count; i++) {
		const struct mfs_torch_tensor *t = &f->r->params.list[i].t;

		mfs_shape_count(t->shape, t->ndim, &n);
		parameters += n;
	}
	rules.aligned = aligned;
	return mfs_flat_layout(&rules,
			       mfs_flat_bucket_size(&rules, f->rank->pp, b->chunk, parameters,
						    data_parallel(f, false)),
			       dp, b->flat, b->count, &f->arena, &b->layout, f->r->err);
}

/* ---- reading one buffer ---- */

/* Elements [at, ...) of a flat tensor are those of a parameter of the rank. */
static int place_part(struct flat *f, const struct mfs_torch_param *p, enum mfs_state state,
		      const struct mfs_torch_tensor *flat, uint64_t at, uint64_t elements)
{
	struct mfs_torch_tensor t = *flat;
	uint32_t storage;
	int rc;

	if (p->copy || !(p->name.experts ? f->take_experts : f->take_dense))
		return 0;
	if (!mfs_range_ok(at, elements, flat->shape[0]))
		return bad(f, -EINVAL, "a buffer is shorter than its parameters");
	t.ndim = p->t.ndim;
	memcpy(t.shape, p->t.shape, sizeof(t.shape));
	mfs_ckpt_contiguous(t.shape, t.ndim, t.stride);
	t.offset = flat->offset + at;
	rc = mfs_torch_storage(f->r, &f->a, &t, &storage);
	return rc ? rc : mfs_torch_place(f->r, f->rank, p, state, &t, storage);
}

/* One of the three states of a buffer, buckets joined. */
static int place_coalesced(struct flat *f, const struct buffer *b, enum mfs_state state,
			   mfs_value v)
{
	struct mfs_torch_tensor t;
	int rc = mfs_gathered_tensor(f->a.state, v, f->where, &t, f->r->err);

	if (!rc && t.shape[0] != b->layout.elements)
		rc = bad(f, -EINVAL, "a buffer is shorter than its numel_unpadded");
	for (uint32_t i = 0; i < b->count && !rc; i++)
		rc = place_part(f, &f->r->params.list[b->params[i]], state, &t,
				b->flat[i].in_coalesced, b->flat[i].elements);
	return rc;
}

/* Likewise, a list of buckets. */
static int place_buckets(struct flat *f, const struct buffer *b, enum mfs_state state, mfs_value v)
{
	struct mfs_torch_tensor *buckets;
	int rc = 0;

	if (mfs_value_count(f->doc, v) != b->layout.bucket_count)
		return bad(f, -EINVAL, "a buffer has another number of buckets");
	buckets = mfs_arena_array(&f->arena, b->layout.bucket_count, sizeof(*buckets));
	if (!buckets)
		return mfs_fail_nomem(f->r->err);
	for (uint32_t i = 0; i < b->layout.bucket_count && !rc; i++)
		rc = mfs_gathered_tensor(f->a.state, mfs_value_at(f->doc, v, i), f->where,
					 &buckets[i], f->r->err);
	for (uint32_t i = 0; i < b->count && !rc; i++)
		rc = place_part(f, &f->r->params.list[b->params[i]], state,
				&buckets[b->flat[i].bucket], b->flat[i].in_bucket,
				b->flat[i].elements);
	return rc;
}

/* Until core 0.7 parameters were not aligned. The size in the file shows it. */
static int fit_coalesced(struct flat *f, struct buffer *b, uint32_t index, mfs_value tensors)
{
	int64_t found = -1;
	uint64_t expected;
	int rc;

	mfs_value_int(f->doc, mfs_value_get(f->doc, tensors, "numel_unpadded"), &found);
	rc = lay_out(f, b, true);
	expected = b->layout.elements;
	if (!rc && expected != (uint64_t)found)
		rc = lay_out(f, b, false);
	if (rc || b->layout.elements == (uint64_t)found)
		return rc;
	return mfs_fail(f->r->err, -EINVAL,
			"%s: buffer %u: expected %llu elements (%llu unaligned), "
			"found %lld",
			f->where, index, (unsigned long long)expected,
			(unsigned long long)b->layout.elements, (long long)found);
}

/* per_bucket_numel_unpadded of a buffer, a list. */
static bool buckets_match(const struct flat *f, const struct buffer *b, mfs_value sizes)
{
	int64_t n;

	if (mfs_value_count(f->doc, sizes) != b->layout.bucket_count)
		return false;
	for (uint32_t i = 0; i < b->layout.bucket_count; i++)
		if (!mfs_value_int(f->doc, mfs_value_at(f->doc, sizes, i), &n) ||
		    (uint64_t)n != b->layout.unpadded[i])
			return false;
	return true;
}

static int fit_buckets(struct flat *f, struct buffer *b, uint32_t index, mfs_value state)
{
	mfs_value of = mfs_value_at(
		f->doc, mfs_value_get(f->doc, state, "per_bucket_numel_unpadded"), index);
	mfs_value sizes = mfs_value_pairs(f->doc, of) == 1 ? mfs_value_item(f->doc, of, 0) : 0;
	int rc = lay_out(f, b, false);

	if (!rc && !buckets_match(f, b, sizes))
		rc = lay_out(f, b, true);
	if (!rc && !buckets_match(f, b, sizes))
		rc = mfs_fail(f->r->err, -EINVAL,
			      "%s: buffer %u: expected %llu elements in %u "
			      "buckets, found other buckets",
			      f->where, index, (unsigned long long)b->layout.elements,
			      b->layout.bucket_count);
	return rc;
}

static int read_buffer(struct flat *f, struct buffer *b, uint32_t index, mfs_value state,
		       bool coalesced)
{
	mfs_value tensors = 0, v;
	int rc = mfs_gathered_buffer(f->doc, state, index, b->dtype, f->where, &tensors, f->r->err);

	if (!rc)
		rc = coalesced ? fit_coalesced(f, b, index, tensors)
			       : fit_buckets(f, b, index, state);
	for (enum mfs_state s = MFS_STATE_MAIN; s < MFS_STATE_ADAM_END && !rc; s++) {
		v = mfs_value_get(f->doc, tensors, mfs_flat_key(s));
		rc = coalesced ? place_coalesced(f, b, s, v) : place_buckets(f, b, s, v);
	}
	return rc;
}

/* ---- one optimizer ---- */

static int read_state(struct flat *f, mfs_value state)
{
	bool coalesced = false;
	int rc = sort_params(f);

	if (!rc)
		rc = mfs_gathered_joined(f->doc, state, f->where, &coalesced, f->r->err);
	if (!rc && f->count && f->all->rules.unsupported)
		rc = mfs_fail(f->r->err, -ENOTSUP, "%s: its layout with '%s' is not supported",
			      f->where, f->all->rules.unsupported);
	for (uint32_t i = 0; i < f->count && !rc; i++)
		rc = read_buffer(f, &f->buffers[i], i, state, coalesced);
	return rc;
}

/* Buffers are read from the first rank that has them; other ranks have the same. */
static int read_optimizer(struct flat *f, mfs_value state, int part)
{
	const struct mfs_torch_reader *r = f->r;
	const struct mfs_torch_rank *d = f->rank;
	bool *dense = &f->all->dense_done[d->pp * r->tp + d->tp];
	bool *experts = &f->all->expert_done[(d->pp * r->ep + d->ep) * r->etp + d->tp % r->etp];
	int rc;

	f->part = part;
	f->take_dense = part != 2 && !*dense;
	f->take_experts = part != 1 && !*experts;
	if (!f->take_dense && !f->take_experts)
		return 0;
	rc = read_state(f, state);
	*dense |= f->take_dense;
	*experts |= f->take_experts;
	return rc;
}

static int read_file(struct flat *f, uint32_t count)
{
	mfs_value root = mfs_pickle_root(f->doc);
	const bool list = mfs_value_type(f->doc, root) == MFS_V_LIST;
	const uint32_t found = list ? mfs_value_count(f->doc, root) : 1;
	int rc = 0;

	if (found != count)
		return mfs_fail(f->r->err, -EINVAL, "%s: expected %u optimizers, found %u",
				f->where, count, found);
	for (uint32_t i = 0; i < count && !rc; i++) {
		mfs_value state = list ? mfs_value_at(f->doc, root, i) : root;

		if (!mfs_value_is_none(f->doc, state))
			rc = read_optimizer(f, state, count > 1 ? (int)i + 1 : 0);
	}
	return rc;
}

static int open_file(struct flat *f, struct mfs_torch_file *ret)
{
	char path[512];
	struct mfs_source src;
	int rc;

	snprintf(path, sizeof(path), "%s/" FLAT_FILE, f->rank->name);
	snprintf(f->where, sizeof(f->where), "%s/%s", f->r->ckpt->dir, path);
	rc = mfs_fileset_add(f->r->ckpt->files, path, &f->a.file, f->r->err);
	/* The first rank is also the first of its data-parallel groups, so it must have the
	 * file. */
	if (rc == -ENOENT && f->rank == f->r->ranks)
		return mfs_fail(f->r->err, -ENODATA,
				"%s/%s is missing: the distributed optimizer's state is in it",
				f->r->ckpt->dir, path);
	if (rc)
		return rc;
	src = mfs_source_file(f->r->ckpt->files, f->a.file);
	rc = mfs_torch_file_open(&src, ret, f->r->err);
	if (rc)
		mfs_fail_in(f->r->err, "%s", f->r->ckpt->dir);
	return rc;
}

int mfs_legacy_read_distrib(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			    const struct mfs_torch_rank *rank, uint32_t count)
{
	struct flat f = {.all = l, .r = r, .rank = rank};
	struct mfs_torch_file file;
	int rc = open_file(&f, &file);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	f.doc = file.doc;
	f.a.state = &file;
	f.a.storages = calloc(file.zip.count, sizeof(*f.a.storages));
	rc = f.a.storages ? read_file(&f, count) : mfs_fail_nomem(r->err);
	free(f.a.storages);
	mfs_arena_release(&f.arena);
	mfs_torch_file_release(&file);
	return rc;
}
