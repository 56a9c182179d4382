#include "formats/dataset/gpt/sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/dataset/gpt/index_memory.h"
#include "formats/dataset/random/torch_randperm.h"

struct mfs_sampler {
	struct mfs_sampler_config c;
	uint64_t stride; /* samples of a microbatch of all ranks: B D */
	/* The permutation that was needed last, and of which epoch. */
	uint32_t *order;
	uint64_t length; /* of every permutation */
	uint64_t epoch;
};

int mfs_sampler_type_of(const char *name, enum mfs_sampler_type *ret, struct mfs_error *err)
{
	if (strcmp(name, "single") && strcmp(name, "cyclic"))
		return mfs_fail(err, -EINVAL,
				"dataloader type '%.40s': only single and cyclic have an order of "
				"their own",
				name);
	*ret = *name == 's' ? MFS_SAMPLER_SINGLE : MFS_SAMPLER_CYCLIC;
	return 0;
}

/* ---- making ---- */

static int check(const struct mfs_sampler_config *c, uint64_t stride, struct mfs_error *err)
{
	if (!stride)
		return mfs_fail(err, -EINVAL,
				"microbatches of %u samples for %u ranks are impossible",
				c->micro_batch, c->ranks);
	if (c->total < stride)
		return mfs_fail(
			err, -ENODATA,
			"%llu samples are fewer than a microbatch of %u for each of %u ranks",
			(unsigned long long)c->total, c->micro_batch, c->ranks);
	if (c->consumed > (uint64_t)1 << 53)
		return mfs_fail(err, -EINVAL, "%llu samples cannot have been consumed",
				(unsigned long long)c->consumed);
	if (c->type == MFS_SAMPLER_SINGLE && c->consumed >= c->total)
		return mfs_fail(err, -ENODATA,
				"no samples are left: %llu of %llu have been consumed",
				(unsigned long long)c->consumed, (unsigned long long)c->total);
	if (c->type == MFS_SAMPLER_CYCLIC && c->consumed % (c->total / stride * stride) % stride)
		return mfs_fail(
			err, -EINVAL,
			"a cyclic loader cannot go on after %llu samples: they are not whole "
			"microbatches of %u for each of %u ranks",
			(unsigned long long)c->consumed, c->micro_batch, c->ranks);
	return 0;
}

/* Numbers that an epoch's permutation orders. */
static uint64_t order_length(const struct mfs_sampler *s)
{
	return s->c.total / (s->c.no_sharding ? s->c.micro_batch : s->stride) * s->c.micro_batch;
}

int mfs_sampler_new(const struct mfs_sampler_config *config, struct mfs_sampler **ret,
		    struct mfs_error *err)
{
	const uint64_t stride = (uint64_t)config->micro_batch * config->ranks;
	struct mfs_sampler *s;
	int rc = check(config, stride, err);

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return mfs_fail_nomem(err);
	s->c = *config;
	s->stride = stride;
	s->length = order_length(s);
	if (config->type == MFS_SAMPLER_CYCLIC && s->length >= UINT32_MAX)
		rc = mfs_fail(err, -ENOTSUP, "a cyclic loader of %llu samples is too large",
			      (unsigned long long)s->length);
	if (rc) {
		mfs_sampler_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void mfs_sampler_free(struct mfs_sampler *s)
{
	if (!s)
		return;
	mfs_index_free(s->order, 4 * s->length);
	free(s);
}

/* ---- drawing ---- */

static int draw_single(const struct mfs_sampler *s, uint64_t microbatch, uint32_t rank,
		       uint64_t *ret, struct mfs_error *err)
{
	uint64_t first, end;

	if (mfs_mul_overflows(microbatch, s->stride, &first) ||
	    mfs_add_overflows(first, s->c.consumed, &first) ||
	    mfs_add_overflows(first, s->stride, &end) || end > s->c.total)
		return mfs_fail(
			err, -ENODATA,
			"the data ends: it has %llu samples, of which %llu are consumed before "
			"microbatch %llu of %llu",
			(unsigned long long)s->c.total, (unsigned long long)s->c.consumed,
			(unsigned long long)microbatch, (unsigned long long)s->stride);
	for (uint32_t i = 0; i < s->c.micro_batch; i++)
		ret[i] = first + (uint64_t)rank * s->c.micro_batch + i;
	return 0;
}

/* A turn of a rank's cyclic loader: what it draws before it makes a new order. */
struct turn {
	uint64_t epoch;
	uint64_t offset; /* samples of all ranks consumed of it */
	uint64_t count;	 /* microbatches that this rank has of it from there on */
};

/* Samples of an epoch that are counted. */
static uint64_t active(const struct mfs_sampler *s)
{
	return s->c.total / s->stride * s->stride;
}

/* With data sharding all ranks have equally many. Without it the first ranks may have one more,
 * and then go on to another epoch, as each rank counts by itself. */
static struct turn turn_at(const struct mfs_sampler *s, uint64_t consumed, uint32_t rank)
{
	struct turn t = {consumed / active(s), consumed % active(s), 0};

	if (!s->c.no_sharding)
		t.count = (active(s) - t.offset) / s->stride;
	else if (t.offset + rank < s->length)
		t.count = ((s->length - t.offset - rank - 1) / s->c.ranks + 1) / s->c.micro_batch;
	return t;
}

/* The turn in which a microbatch is, and its number there. A rank that gets nothing in a turn never
 * goes on. */
static int find_turn(const struct mfs_sampler *s, uint64_t *microbatch, uint32_t rank,
		     struct turn *ret, struct mfs_error *err)
{
	uint64_t consumed = s->c.consumed;
	struct turn t = turn_at(s, consumed, rank);

	while (*microbatch >= t.count) {
		const uint64_t epochs =
			s->c.no_sharding ? 0 : (*microbatch - t.count) * s->stride / active(s);

		if (!t.count)
			return mfs_fail(err, -ENODATA, "rank %u gets nothing in epoch %llu", rank,
					(unsigned long long)t.epoch);
		*microbatch -= t.count + epochs * (active(s) / s->stride);
		consumed += t.count * s->stride + epochs * active(s);
		t = turn_at(s, consumed, rank);
	}
	*ret = t;
	return 0;
}

static int make_order(struct mfs_sampler *s, uint64_t epoch, struct mfs_error *err)
{
	if (epoch > UINT32_MAX)
		return mfs_fail(err, -ENOTSUP, "epoch %llu is too far away",
				(unsigned long long)epoch);
	if (s->order && s->epoch == epoch)
		return 0;
	if (!s->order)
		s->order = mfs_index_alloc(4 * s->length);
	if (!s->order)
		return mfs_fail_nomem(err);
	mfs_torch_randperm((uint32_t)epoch, s->order, (uint32_t)s->length);
	s->epoch = epoch;
	return 0;
}

static int draw_cyclic(struct mfs_sampler *s, uint64_t microbatch, uint32_t rank, uint64_t *ret,
		       struct mfs_error *err)
{
	struct turn t = {0};
	int rc;

	if (microbatch > (UINT64_MAX >> 1) / s->stride - s->c.consumed / s->stride)
		return mfs_fail(err, -EINVAL, "microbatch %llu is too far away",
				(unsigned long long)microbatch);
	rc = find_turn(s, &microbatch, rank, &t, err);
	if (!rc)
		rc = make_order(s, t.epoch, err);
	for (uint32_t i = 0; i < s->c.micro_batch && !rc; i++) {
		const uint64_t k = microbatch * s->c.micro_batch + i; /* of this rank's turn */

		ret[i] = s->c.no_sharding ? s->order[t.offset + rank + k * s->c.ranks]
					  : rank * s->length + s->order[t.offset / s->c.ranks + k];
	}
	return rc;
}

int mfs_sampler_draw(struct mfs_sampler *s, uint64_t microbatch, uint32_t rank, uint64_t *ret,
		     struct mfs_error *err)
{
	if (rank >= s->c.ranks)
		return mfs_fail(err, -EINVAL, "there is no rank %u of %u", rank, s->c.ranks);
	return s->c.type == MFS_SAMPLER_SINGLE ? draw_single(s, microbatch, rank, ret, err)
					       : draw_cyclic(s, microbatch, rank, ret, err);
}
