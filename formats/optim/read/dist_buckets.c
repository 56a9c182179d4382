/*
 * torch_dist: the distributed optimizer's flat buffers as they are, a tensor for each bucket
 * (dp_reshardable, fully_sharded_bucket_space; docs/formats/optimizer.md). Names are not stored:
 * which elements are whose follows from the order of the rank's parameters (rank.h) and the
 * arithmetic of the buffers (flat_buffers.h); all sizes must be the file's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/optim/buffers/flat_buffers.h"
#include "formats/optim/read/optim_i.h"

#define DISTRIBUTED "optimizer.distributed.dp_group_idx_"

/* One bucket's tensor of one state, and the storages of its chunks: 0 none yet, else plus 1. */
struct bucket {
	const struct mfs_dcp_tensor *t;
	uint32_t *storages;
};

static bool is_bucket(const char *key)
{
	if (!strncmp(key, "chained_", 8) && strchr(key, '.'))
		key = strchr(key, '.') + 1;
	return !strncmp(key, DISTRIBUTED, sizeof(DISTRIBUTED) - 1);
}

/* Whether a bucket's key has that part. */
static bool has_bucket(const struct mfs_dcp *dcp, const char *part)
{
	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		if (is_bucket(dcp->tensors[i].key) && strstr(dcp->tensors[i].key, part))
			return true;
	return false;
}

bool mfs_optim_has_buckets(const struct mfs_dcp *dcp)
{
	return has_bucket(dcp, "");
}

/* The type of gradients is in the keys; arguments of old runs may lack it. */
static bool has_fp32_gradients(const struct mfs_dcp *dcp)
{
	return has_bucket(dcp, ", torch.float32)");
}

/* 8-bit parameters have buffers of their own. */
static bool has_fp8(const struct mfs_dcp *dcp)
{
	return has_bucket(dcp, ".dtype_(torch.uint8, ");
}

/* ---- finding a bucket ---- */

#define KEY_SIZE 256

static void bucket_key(const struct mfs_optim_holder *h, const struct mfs_optim_buffer *f,
		       uint32_t bucket, const char *state, bool chained, char key[KEY_SIZE])
{
	char prefix[32] = "";

	if (chained)
		snprintf(prefix, sizeof(prefix), "chained_%u.", h->optimizer);
	snprintf(key, KEY_SIZE,
		 "%s" DISTRIBUTED "%u.gbuf_idx_%u.dtype_(torch.%s, torch.%s).bucket_idx_%u.%s",
		 prefix, h->group, f->index, mfs_dtype_torch(f->param_dtype),
		 mfs_dtype_torch(f->grad_dtype), bucket, state);
}

/* A stage without experts had one optimizer until core 0.11, and no chain. */
static const struct mfs_dcp_tensor *find_bucket(const struct mfs_optim_holder *h,
						const struct mfs_optim_buffer *f, uint32_t bucket,
						const char *state, char key[KEY_SIZE])
{
	const bool chained = h->o->chain.count > 1;
	const struct mfs_dcp_tensor *t;

	bucket_key(h, f, bucket, state, !chained, key);
	t = h->optimizer ? NULL : mfs_dcp_tensor(&h->r->dcp, key);
	if (t)
		return t;
	bucket_key(h, f, bucket, state, chained, key);
	return mfs_dcp_tensor(&h->r->dcp, key);
}

/* The chunks of a flat tensor, which are in order, must follow each other. */
static int check_chunks(const struct mfs_optim_holder *h, const struct mfs_dcp_tensor *t)
{
	uint64_t at = 0;
	int rc = mfs_dcp_check(t, h->r->index, h->r->err);

	if (rc) {
		mfs_fail_in(h->r->err, "%s", h->r->ckpt->dir);
		return rc;
	}
	for (uint32_t i = 0; i < t->chunk_count; i++) {
		if (t->ndim != 1 || t->chunks[i].lo[0] != at)
			return mfs_fail(h->r->err, -EINVAL, "%s/%s: '%s': its chunks leave gaps",
					h->r->ckpt->dir, h->r->index, t->key);
		at += t->chunks[i].size[0];
	}
	return 0;
}

static int open_bucket(const struct mfs_optim_holder *h, const struct mfs_optim_buffer *f,
		       uint32_t bucket, enum mfs_state state, struct bucket *ret)
{
	char key[KEY_SIZE];
	const struct mfs_dcp_tensor *t = find_bucket(h, f, bucket, mfs_flat_key(state), key);
	int rc;

	if (!t)
		return mfs_fail(h->r->err, -ENODATA,
				"%s/%s: '%s' is missing; the arguments ask for it", h->r->ckpt->dir,
				h->r->index, key);
	rc = check_chunks(h, t);
	if (rc)
		return rc;
	ret->t = t;
	ret->storages = calloc((size_t)t->chunk_count + 1, sizeof(*ret->storages));
	return ret->storages ? 0 : mfs_fail_nomem(h->r->err);
}

/* ---- sizes ---- */

/* The first bucket whose stored size is not the computed one. Stored sizes are without padding, and
 * before core 0.15 with it. */
static const struct mfs_dcp_tensor *misfit(const struct mfs_optim_holder *h, uint64_t *ret_expected)
{
	for (uint32_t i = 0; i < h->o->buffer_count; i++) {
		const struct mfs_optim_buffer *f = &h->o->buffers[i];

		if (f->optimizer != h->optimizer)
			continue;
		for (uint32_t b = 0; b < f->bucket_count; b++) {
			char key[KEY_SIZE];
			const struct mfs_dcp_tensor *t =
				find_bucket(h, f, b, mfs_flat_key(MFS_STATE_MAIN), key);

			*ret_expected = f->bucket_elements[b];
			if (t && t->ndim == 1 && t->shape[0] != f->bucket_elements[b] &&
			    t->shape[0] != f->bucket_padded[b])
				return t;
		}
	}
	return NULL;
}

/* Until core 0.7 parameters were not aligned. The stored sizes show it. */
static int fit(struct mfs_optim_holder *h)
{
	const struct mfs_dcp_tensor *t;
	uint64_t expected, other;
	int rc = mfs_optim_holder_build(h, true);

	t = rc ? NULL : misfit(h, &expected);
	if (!t)
		return rc;
	rc = mfs_optim_holder_build(h, false);
	if (rc || !misfit(h, &other))
		return rc;
	return mfs_fail(h->r->err, -EINVAL,
			"%s/%s: '%s': expected %llu elements (%llu unaligned), found "
			"%llu",
			h->r->ckpt->dir, h->r->index, t->key, (unsigned long long)expected,
			(unsigned long long)other, (unsigned long long)t->shape[0]);
}

/* ---- reading ---- */

/* The chunk that an element of a flat tensor is in. */
static uint32_t chunk_at(const struct mfs_dcp_tensor *t, uint64_t element)
{
	return (uint32_t)mfs_last_while(i, t->chunk_count, t->chunks[i].lo[0] <= element);
}

static int storage_of(const struct mfs_optim_holder *h, const struct bucket *k, uint32_t chunk,
		      uint32_t *ret)
{
	int rc = 0;

	if (!k->storages[chunk]) {
		rc = mfs_dist_storage(h->r, k->t, &k->t->chunks[chunk], &k->storages[chunk]);
		k->storages[chunk]++;
	}
	*ret = k->storages[chunk] - 1;
	return rc;
}

/* The ranges of a parameter, one in each chunk that it reaches into. */
static int read_param(const struct mfs_optim_holder *h, const struct mfs_optim_param *p,
		      const struct bucket *k, enum mfs_state state)
{
	const uint64_t last = p->in_bucket + p->elements;
	uint64_t at = p->in_bucket;
	int rc = 0;

	if (!mfs_range_ok(p->in_bucket, p->elements, k->t->shape[0]))
		return mfs_fail(h->r->err, -EINVAL, "%s/%s: '%s' ends before its last parameter",
				h->r->ckpt->dir, h->r->index, k->t->key);
	for (uint32_t c = chunk_at(k->t, at); at < last && !rc; c++) {
		const struct mfs_dcp_chunk *chunk = &k->t->chunks[c];
		struct mfs_optim_range range = {.tensor = p->tensor,
						.state = state,
						.dtype = k->t->dtype,
						.origin = at - chunk->lo[0],
						.first = at - p->in_bucket};

		range.count = mfs_min_u64(last, chunk->lo[0] + chunk->size[0]) - at;
		at += range.count;
		rc = range.count ? storage_of(h, k, c, &range.storage) : 0;
		if (!rc && range.count)
			rc = mfs_optim_add_range(h->r->ckpt, &range, h->r->err);
	}
	return rc;
}

static int read_bucket(struct mfs_optim_holder *h, uint32_t buffer, uint32_t bucket,
		       enum mfs_state state)
{
	struct bucket k = {0};
	int rc = open_bucket(h, &h->o->buffers[buffer], bucket, state, &k);

	for (uint32_t i = 0; i < h->o->count && !rc; i++) {
		const struct mfs_optim_param *p = &h->o->params[i];

		if (p->buffer == buffer && p->bucket == bucket && mfs_optim_represents(p->tensor))
			rc = read_param(h, p, &k, state);
	}
	free(k.storages);
	return rc;
}

static int read_holder(struct mfs_optim_holder *h, void *arg)
{
	uint32_t *used = arg;
	int rc;

	h->rules.grad_fp32 = has_fp32_gradients(&h->r->dcp);
	h->rules.fp8_buffers = has_fp8(&h->r->dcp);
	rc = fit(h);

	for (uint32_t i = 0; !rc && i < h->o->buffer_count; i++) {
		const struct mfs_optim_buffer *f = &h->o->buffers[i];

		if (f->optimizer != h->optimizer)
			continue;
		for (uint32_t b = 0; b < f->bucket_count && !rc; b++)
			for (enum mfs_state s = MFS_STATE_MAIN; s < MFS_STATE_ADAM_END && !rc;
			     s++, ++*used)
				rc = read_bucket(h, i, b, s);
	}
	return rc;
}

/* A bucket that was not read shows that the buffers were cut in another way. */
static int check_all_used(const struct mfs_dist_reader *r, uint32_t used)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < r->dcp.tensor_count; i++)
		found += is_bucket(r->dcp.tensors[i].key);
	if (found == used)
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: expected %u tensors of the optimizer's buckets, found %u",
			r->ckpt->dir, r->index, used, found);
}

int mfs_optim_read_buckets(struct mfs_dist_reader *r)
{
	uint32_t used = 0;
	int rc = mfs_optim_each_holder(r, read_holder, &used);

	return rc ? rc : check_all_used(r, used);
}
