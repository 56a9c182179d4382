#include "formats/optim/buffers/flat_buffers.h"

#include <errno.h>

#include "formats/base/bytes.h"

#define ALIGN	     64 /* elements: pad_param_start */
#define BUCKET_ALIGN 128
#define HIGH_BUSBW   65536
#define MIN_BUCKET   40000000ull
#define PER_RANK     1000000ull

struct filling {
	const struct mfs_optim_rules *rules;
	uint64_t size, divisor;
	struct mfs_flat_buffer *buffer;
	uint64_t bucket_start; /* of the open bucket, padding included */
	uint64_t dropped;      /* padding of the buckets that are closed */
	uint32_t in_open;      /* parameters in the open bucket */
	struct mfs_error *err;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* bucket_end_divisor: the least common multiple of what a bucket's end must be divisible by. */
static uint64_t end_divisor(const struct mfs_optim_rules *rules, uint32_t dp)
{
	const uint64_t base = rules->pad_high ? HIGH_BUSBW : BUCKET_ALIGN;

	return dp ? base / gcd(base, dp) * dp : base;
}

static int round_up(struct filling *l, uint64_t *value, uint64_t divisor)
{
	const uint64_t rest = *value % divisor;

	if (rest && mfs_add_overflows(*value, divisor - rest, value))
		return mfs_fail(l->err, -EINVAL, "the parameters' sizes overflow");
	return 0;
}

/* Ends the open bucket at end; the next one begins at *ret. */
static int close_bucket(struct filling *l, uint64_t end, uint64_t *ret)
{
	struct mfs_flat_buffer *b = l->buffer;
	uint64_t padded = end;
	int rc = round_up(l, &padded, l->divisor);

	if (rc)
		return rc;
	b->unpadded[b->bucket_count] = end - l->bucket_start;
	b->padded[b->bucket_count++] = padded - l->bucket_start;
	b->elements += end - l->bucket_start;
	l->dropped += padded - end;
	l->bucket_start = padded;
	l->in_open = 0;
	*ret = padded;
	return 0;
}

/* Puts a parameter at *at or after it. *at becomes where the next may begin. */
static int put(struct filling *l, struct mfs_flat_param *p, uint64_t *at)
{
	uint64_t end;
	int rc = l->rules->aligned ? round_up(l, at, ALIGN) : 0;

	if (!rc && p->shared && l->in_open)
		rc = close_bucket(l, *at, at);
	if (rc)
		return rc;
	if (mfs_add_overflows(*at, p->elements, &end))
		return mfs_fail(l->err, -EINVAL, "the parameters' sizes overflow");
	p->bucket = l->buffer->bucket_count;
	p->start = *at;
	p->in_bucket = *at - l->bucket_start;
	p->in_coalesced = *at - l->dropped;
	l->in_open++;
	*at = end;
	if ((l->size && end - l->bucket_start >= l->size) || p->shared)
		return close_bucket(l, end, at);
	return 0;
}

int mfs_flat_layout(const struct mfs_optim_rules *rules, uint64_t size, uint32_t dp,
		    struct mfs_flat_param *params, uint32_t count, struct mfs_arena *arena,
		    struct mfs_flat_buffer *ret, struct mfs_error *err)
{
	struct filling l = {.rules = rules,
			    .size = size,
			    .divisor = end_divisor(rules, dp),
			    .buffer = ret,
			    .err = err};
	uint64_t at = 0;
	int rc = 0;

	*ret = (struct mfs_flat_buffer){0};
	ret->unpadded = mfs_arena_array(arena, count, sizeof(*ret->unpadded));
	ret->padded = mfs_arena_array(arena, count, sizeof(*ret->padded));
	if (!ret->unpadded || !ret->padded)
		return mfs_fail_nomem(err);
	for (uint32_t i = count; i-- > 0 && !rc;)
		rc = put(&l, &params[i], &at);
	return rc || !l.in_open ? rc : close_bucket(&l, at, &at);
}

uint64_t mfs_flat_bucket_size(const struct mfs_optim_rules *rules, uint32_t pp, uint32_t chunk,
			      uint64_t parameters, uint32_t dp)
{
	if (!rules->overlap_grad_reduce || pp || chunk)
		return 0;
	if (rules->num_buckets)
		return parameters / rules->num_buckets;
	if (rules->bucket_size)
		return rules->bucket_size;
	return mfs_max_u64(MIN_BUCKET, PER_RANK * dp);
}
