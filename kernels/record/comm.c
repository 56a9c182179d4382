#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/record/record_i.h"

static int new_comm(struct mfk_device *d, unsigned rank, unsigned size, struct mfk_comm **ret,
		    char *why)
{
	*ret = malloc(sizeof(**ret));
	if (!*ret) {
		snprintf(why, MFK_WHY, "out of memory");
		return -ENOMEM;
	}
	**ret = (struct mfk_comm){d, rank, size};
	return 0;
}

static int world(struct mfk_device *d, const struct mfk_world *w, struct mfk_comm **ret, char *why)
{
	return new_comm(d, w->rank, w->size, ret, why);
}

/* Who else names the color is not known here: mfk_record_group() says. */
static int split(struct mfk_comm *from, unsigned color, unsigned key, struct mfk_comm **ret,
		 char *why)
{
	(void)color;
	return new_comm(from->device, key, 0, ret, why);
}

void mfk_record_group(struct mfk_comm *g, unsigned rank, unsigned size)
{
	g->rank = rank;
	g->size = size;
}

static void free_comm(struct mfk_comm *g)
{
	free(g);
}

/* There are no others. */
static void end_all(int code)
{
	(void)code;
}

static void all_reduce(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_reduce op,
		       enum mfk_dtype dtype, void *data, int64_t count)
{
	(void)op;
	(void)data;
	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_ALL_REDUCE,
					       .name = "all_reduce",
					       .dtype = dtype,
					       .comm = g,
					       .bytes = (uint64_t)count * mfk_dtype_size(dtype)});
}

static void all_gather(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
		       const void *from, int64_t count)
{
	const uint64_t bytes = (uint64_t)count * mfk_dtype_size(dtype);

	for (unsigned r = 0; r < g->size && bytes * g->size <= MFK_RECORD_COPIED; r++)
		if ((char *)to + r * bytes != from)
			memcpy((char *)to + r * bytes, from, bytes);
	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_ALL_GATHER,
					       .name = "all_gather",
					       .dtype = dtype,
					       .comm = g,
					       .bytes = bytes * g->size});
}

static void reduce_scatter(struct mfk_ctx *c, struct mfk_comm *g, enum mfk_dtype dtype, void *to,
			   void *from, int64_t count)
{
	(void)to;
	(void)from;
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_REDUCE_SCATTER,
				     .name = "reduce_scatter",
				     .dtype = dtype,
				     .comm = g,
				     .bytes = (uint64_t)count * mfk_dtype_size(dtype) * g->size});
}

static void exchange(struct mfk_ctx *c, struct mfk_comm *g, const struct mfk_message *list,
		     unsigned count)
{
	const struct mfk_record *r = &c->device->record;
	struct mfk_work w = {.kind = MFK_WORK_EXCHANGE,
			     .name = "exchange",
			     .comm = g,
			     .first_message = (unsigned)r->message_count,
			     .messages = count};
	uint64_t sent = 0, received = 0;

	for (unsigned i = 0; i < count; i++) {
		if (list[i].peer != g->rank)
			*(list[i].receive ? &received : &sent) += list[i].bytes;
		mfk_record_message(c->device, &list[i]);
	}
	w.bytes = sent > received ? sent : received;
	mfk_record_submit(c, w);
}

static void meet(struct mfk_comm *g, const char *name)
{
	const struct mfk_work w = {.kind = MFK_WORK_MEETING, .name = name, .comm = g};

	mfk_record_add(g->device, &w);
}

static int host_sum(struct mfk_comm *g, double *values, unsigned count, char *why)
{
	(void)why;
	for (unsigned i = 0; i < count; i++)
		values[i] *= g->size;
	meet(g, "host_sum");
	return 0;
}

static int host_gather(struct mfk_comm *g, void *to, const void *from, size_t bytes, char *why)
{
	(void)why;
	for (unsigned r = 0; r < g->size; r++)
		memmove((char *)to + r * bytes, from, bytes);
	meet(g, "host_gather");
	return 0;
}

const struct mfk_comm_ops mfk_record_comm_ops = {
	.name = "record",
	.world = world,
	.split = split,
	.free = free_comm,
	.end_all = end_all,
	.all_reduce = all_reduce,
	.all_gather = all_gather,
	.reduce_scatter = reduce_scatter,
	.exchange = exchange,
	.host_sum = host_sum,
	.host_gather = host_gather,
};
