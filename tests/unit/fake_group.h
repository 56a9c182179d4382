/*
 * Processes that are threads of a test: a group of them speaks by memory. Each thread has a net and
 * a context of its own, as a process has; the CPU's contexts run each operation when it is called.
 */
#ifndef MFS_TESTS_UNIT_FAKE_GROUP_H
#define MFS_TESTS_UNIT_FAKE_GROUP_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/numbers/half.h"
#include "kernels/kernels.h"
#include "tests/unit/unit.h"

#define FAKE_GROUP_MOST 8

/* What the processes of a group show to each other while an operation runs. */
struct fake_group {
	unsigned size;
	pthread_barrier_t barrier;
	const void *shown[FAKE_GROUP_MOST];
	unsigned count[FAKE_GROUP_MOST]; /* of messages */
};

/* One process's end. */
struct mfk_comm {
	struct fake_group *group;
	unsigned rank;
};

static inline void fake_group_init(struct fake_group *g, unsigned size,
				   struct mfk_comm ret[FAKE_GROUP_MOST])
{
	*g = (struct fake_group){.size = size};
	ck_assert_int_eq(pthread_barrier_init(&g->barrier, NULL, size), 0);
	for (unsigned i = 0; i < size; i++)
		ret[i] = (struct mfk_comm){g, i};
}

static inline void fake_group_end(struct fake_group *g)
{
	pthread_barrier_destroy(&g->barrier);
}

static inline void fake_wait(struct mfk_comm *c)
{
	pthread_barrier_wait(&c->group->barrier);
}

static inline float fake_load(enum mfk_dtype type, const void *p, int64_t i)
{
	if (type == MFK_F32)
		return ((const float *)p)[i];
	return type == MFK_BF16 ? mfs_bf16_to_float(((const uint16_t *)p)[i])
				: mfs_f16_to_float(((const uint16_t *)p)[i]);
}

static inline void fake_store(enum mfk_dtype type, void *p, int64_t i, float v)
{
	if (type == MFK_F32)
		((float *)p)[i] = v;
	else
		((uint16_t *)p)[i] = type == MFK_BF16 ? mfs_float_to_bf16(v) : mfs_float_to_f16(v);
}

static inline void fake_all_gather(struct mfk_ctx *ctx, struct mfk_comm *c, enum mfk_dtype type,
				   void *to, const void *from, int64_t count)
{
	const size_t bytes = (size_t)count * mfk_dtype_size(type);

	(void)ctx;
	c->group->shown[c->rank] = from;
	fake_wait(c);
	for (unsigned i = 0; i < c->group->size; i++)
		memmove((char *)to + i * bytes, c->group->shown[i], bytes);
	fake_wait(c);
}

/* The sum of elements [first, first + count) of all processes, in the order of ranks. */
static inline void fake_sum(struct mfk_comm *c, enum mfk_dtype type, void *to, const void *from,
			    int64_t first, int64_t count)
{
	float *sums = calloc((size_t)count + 1, sizeof(*sums));

	c->group->shown[c->rank] = from;
	fake_wait(c);
	for (unsigned i = 0; i < c->group->size; i++)
		for (int64_t k = 0; k < count; k++)
			sums[k] += fake_load(type, c->group->shown[i], first + k);
	fake_wait(c);
	for (int64_t k = 0; k < count; k++)
		fake_store(type, to, k, sums[k]);
	free(sums);
}

static inline void fake_reduce_scatter(struct mfk_ctx *ctx, struct mfk_comm *c, enum mfk_dtype type,
				       void *to, void *from, int64_t count)
{
	(void)ctx;
	fake_sum(c, type, to, from, c->rank * count, count);
}

static inline void fake_all_reduce(struct mfk_ctx *ctx, struct mfk_comm *c, enum mfk_reduce op,
				   enum mfk_dtype type, void *data, int64_t count)
{
	(void)ctx;
	ck_assert_int_eq(op, MFK_SUM);
	fake_sum(c, type, data, data, 0, count);
}

/* The message that a process sends to rank as its number n. */
static inline const struct mfk_message *fake_sent(const struct fake_group *g, unsigned by,
						  unsigned rank, unsigned n)
{
	const struct mfk_message *list = g->shown[by];

	for (unsigned i = 0; i < g->count[by]; i++)
		if (!list[i].receive && list[i].peer == rank && !n--)
			return &list[i];
	ck_abort_msg("process %u waits for a message of %u", rank, by);
	return NULL;
}

static inline void fake_exchange(struct mfk_ctx *ctx, struct mfk_comm *c,
				 const struct mfk_message *list, unsigned count)
{
	unsigned received[FAKE_GROUP_MOST] = {0}, sent = 0;

	(void)ctx;
	c->group->shown[c->rank] = list;
	c->group->count[c->rank] = count;
	fake_wait(c);
	for (unsigned i = 0; i < count; i++) {
		const struct mfk_message *m = &list[i], *from;

		sent += !m->receive;
		if (!m->receive)
			continue;
		from = fake_sent(c->group, m->peer, c->rank, received[m->peer]++);
		ck_assert_uint_eq(from->bytes, m->bytes);
		memcpy(m->data, from->data, m->bytes);
	}
	ck_assert_uint_eq(2 * sent, count);
	fake_wait(c);
}

static const struct mfk_comm_ops fake_group_ops = {
	.name = "threads",
	.all_reduce = fake_all_reduce,
	.all_gather = fake_all_gather,
	.reduce_scatter = fake_reduce_scatter,
	.exchange = fake_exchange,
};

#endif
