#include "formats/dataset/gpt/blend.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/dataset/gpt/blend_args.h"
#include "formats/dataset/gpt/blend_greedy.h"

/* Blocks that are kept: 20 MB, in which a run of 2 million samples is found in any order. */
#define KEPT 32

/* A block of samples as computed. */
struct block {
	uint64_t number; /* + 1; 0: empty */
	uint64_t used;	 /* by which reading last */
	int16_t *dataset;
	int64_t *sample;
};

struct mfs_blend {
	uint64_t size;
	struct mfs_blend_classes classes;
	pthread_mutex_t lock;		    /* of all below */
	struct mfs_blend_walk front, again; /* as far as anybody has read; back at a checkpoint */
	uint64_t **checkpoints;		    /* [i]: the state before sample i * MFS_BLEND_BLOCK */
	uint64_t checkpoint_count;
	struct block kept[KEPT];
	uint64_t readings;
};

/* ---- making ---- */

static int new_blend(const double *weights, const uint64_t *sizes, size_t count, uint64_t size,
		     struct mfs_blend **ret, struct mfs_error *err)
{
	struct mfs_blend *b = calloc(1, sizeof(*b));

	if (!b)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&b->lock, NULL);
	b->size = size;
	if (mfs_blend_classes_new(weights, sizes, (uint32_t)count, &b->classes) ||
	    mfs_blend_walk_new(&b->classes, &b->front) ||
	    mfs_blend_walk_new(&b->classes, &b->again)) {
		mfs_blend_free(b);
		return mfs_fail_nomem(err);
	}
	*ret = b;
	return 0;
}

static int check_count(size_t count, struct mfs_error *err)
{
	if (count && count <= MFS_BLEND_MAX)
		return 0;
	return mfs_fail(err, -EINVAL, "a blend of %zu datasets; Megatron takes 1 to %d", count,
			MFS_BLEND_MAX);
}

int mfs_blend_new(const double *weights, size_t count, uint64_t size, struct mfs_blend **ret,
		  struct mfs_error *err)
{
	double *w;
	int rc = check_count(count, err);

	if (rc)
		return rc;
	if (size > (uint64_t)1 << 53)
		return mfs_fail(err, -EINVAL, "a blend cannot have %llu samples",
				(unsigned long long)size);
	w = malloc(count * sizeof(*w));
	if (!w)
		return mfs_fail_nomem(err);
	memcpy(w, weights, count * sizeof(*w));
	rc = mfs_blend_normalize(w, count, err);
	if (!rc)
		rc = new_blend(w, NULL, count, size, ret, err);
	free(w);
	return rc;
}

int mfs_blend_new_exhaustive(const uint64_t *sizes, size_t count, struct mfs_blend **ret,
			     struct mfs_error *err)
{
	uint64_t total = 0;
	double *w;
	int rc = check_count(count, err);

	for (size_t i = 0; i < count && !rc; i++) {
		if (!sizes[i])
			rc = mfs_fail(err, -EINVAL, "dataset %zu of the blend has no sample", i);
		else if (mfs_add_overflows(total, sizes[i], &total) || total > (uint64_t)1 << 53)
			rc = mfs_fail(err, -EINVAL, "the datasets have too many samples");
	}
	if (rc)
		return rc;
	w = malloc(count * sizeof(*w));
	if (!w)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count; i++)
		w[i] = (double)sizes[i] / (double)total;
	rc = new_blend(w, sizes, count, total, ret, err);
	free(w);
	return rc;
}

void mfs_blend_free(struct mfs_blend *b)
{
	if (!b)
		return;
	for (uint64_t i = 0; i < b->checkpoint_count; i++)
		free(b->checkpoints[i]);
	free(b->checkpoints);
	for (unsigned i = 0; i < KEPT; i++) {
		free(b->kept[i].dataset);
		free(b->kept[i].sample);
	}
	mfs_blend_walk_release(&b->front);
	mfs_blend_walk_release(&b->again);
	mfs_blend_classes_release(&b->classes);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

uint64_t mfs_blend_size(const struct mfs_blend *b)
{
	return b->size;
}

uint32_t mfs_blend_datasets(const struct mfs_blend *b)
{
	return b->classes.datasets;
}

/* ---- walking, under the lock ---- */

/* The front stands at the beginning of a block that has no checkpoint yet. */
static int save_front(struct mfs_blend *b, struct mfs_error *err)
{
	uint64_t *saved;

	if (mfs_grow(&b->checkpoints, b->checkpoint_count))
		return mfs_fail_nomem(err);
	saved = malloc(b->classes.count * sizeof(*saved));
	if (!saved)
		return mfs_fail_nomem(err);
	mfs_blend_walk_save(&b->front, saved);
	b->checkpoints[b->checkpoint_count++] = saved;
	return 0;
}

/* Samples of the block that begins at sample first. */
static uint64_t block_size(const struct mfs_blend *b, uint64_t first)
{
	return mfs_min_u64(MFS_BLEND_BLOCK, b->size - first);
}

/* Moves the front on until it stands at the beginning of that block or after it. */
static int bring_front(struct mfs_blend *b, uint64_t block, struct mfs_error *err)
{
	for (;;) {
		const uint64_t at = b->front.sample;

		if (at % MFS_BLEND_BLOCK == 0 && at / MFS_BLEND_BLOCK == b->checkpoint_count) {
			int rc = save_front(b, err);

			if (rc)
				return rc;
		}
		if (at / MFS_BLEND_BLOCK >= block)
			return 0;
		mfs_blend_walk_on(&b->front, block_size(b, at), NULL, NULL);
	}
}

/* A walk at the beginning of a block: the front itself, if it stands there. */
static int walk_at(struct mfs_blend *b, uint64_t block, struct mfs_blend_walk **ret,
		   struct mfs_error *err)
{
	int rc = bring_front(b, block, err);

	if (rc)
		return rc;
	*ret = &b->front;
	if (b->front.sample != block * MFS_BLEND_BLOCK) {
		mfs_blend_walk_restore(&b->again, block * MFS_BLEND_BLOCK, b->checkpoints[block]);
		*ret = &b->again;
	}
	return 0;
}

static int make_room(struct block *k, struct mfs_error *err)
{
	k->number = 0;
	if (!k->dataset)
		k->dataset = malloc(MFS_BLEND_BLOCK * sizeof(*k->dataset));
	if (!k->sample)
		k->sample = malloc(MFS_BLEND_BLOCK * sizeof(*k->sample));
	return k->dataset && k->sample ? 0 : mfs_fail_nomem(err);
}

static int block_of(struct mfs_blend *b, uint64_t block, const struct block **ret,
		    struct mfs_error *err)
{
	struct mfs_blend_walk *walk;
	struct block *oldest = b->kept;
	int rc;

	for (struct block *k = b->kept; k < b->kept + KEPT; k++) {
		if (k->number == block + 1) {
			k->used = ++b->readings;
			*ret = k;
			return 0;
		}
		if (k->used < oldest->used)
			oldest = k;
	}
	rc = make_room(oldest, err);
	if (!rc)
		rc = walk_at(b, block, &walk, err);
	if (rc)
		return rc;
	mfs_blend_walk_on(walk, block_size(b, block * MFS_BLEND_BLOCK), oldest->dataset,
			  oldest->sample);
	oldest->number = block + 1;
	oldest->used = ++b->readings;
	*ret = oldest;
	return 0;
}

/* ---- reading ---- */

static int read_locked(struct mfs_blend *b, uint64_t first, uint64_t count, int16_t *ret_dataset,
		       int64_t *ret_sample, struct mfs_error *err)
{
	for (uint64_t n; count; first += n, count -= n) {
		const uint64_t from = first % MFS_BLEND_BLOCK;
		const struct block *k;
		int rc = block_of(b, first / MFS_BLEND_BLOCK, &k, err);

		if (rc)
			return rc;
		n = mfs_min_u64(count, MFS_BLEND_BLOCK - from);
		if (ret_dataset) {
			memcpy(ret_dataset, k->dataset + from, n * sizeof(*ret_dataset));
			ret_dataset += n;
		}
		if (ret_sample) {
			memcpy(ret_sample, k->sample + from, n * sizeof(*ret_sample));
			ret_sample += n;
		}
	}
	return 0;
}

int mfs_blend_read(struct mfs_blend *b, uint64_t first, uint64_t count, int16_t *ret_dataset,
		   int64_t *ret_sample, struct mfs_error *err)
{
	int rc;

	if (!mfs_range_ok(first, count, b->size))
		return mfs_fail(err, -EINVAL, "samples %llu+%llu are not among the blend's %llu",
				(unsigned long long)first, (unsigned long long)count,
				(unsigned long long)b->size);
	pthread_mutex_lock(&b->lock);
	rc = read_locked(b, first, count, ret_dataset, ret_sample, err);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

int mfs_blend_counts(struct mfs_blend *b, uint64_t s, uint64_t *ret, struct mfs_error *err)
{
	const uint64_t block = s / MFS_BLEND_BLOCK;
	int rc;

	if (s > b->size)
		return mfs_fail(err, -EINVAL, "the blend has %llu samples, not %llu",
				(unsigned long long)b->size, (unsigned long long)s);
	pthread_mutex_lock(&b->lock);
	rc = bring_front(b, block, err);
	if (!rc) {
		mfs_blend_walk_restore(&b->again, block * MFS_BLEND_BLOCK, b->checkpoints[block]);
		mfs_blend_walk_on(&b->again, s - b->again.sample, NULL, NULL);
		mfs_blend_walk_counts(&b->again, ret);
	}
	pthread_mutex_unlock(&b->lock);
	return rc;
}

int mfs_blend_check(struct mfs_blend *b, const uint64_t *lengths, struct mfs_error *err)
{
	uint64_t *counts = calloc(b->classes.datasets, sizeof(*counts));
	int rc = counts ? mfs_blend_counts(b, b->size, counts, err) : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < b->classes.datasets && !rc; i++)
		if (counts[i] > lengths[i])
			rc = mfs_fail(
				err, -ERANGE,
				"the blend takes %llu samples of dataset %u, which has %llu: a "
				"larger surplus would do",
				(unsigned long long)counts[i], i, (unsigned long long)lengths[i]);
	free(counts);
	return rc;
}
