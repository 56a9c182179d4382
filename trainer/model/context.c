/*
 * What a net knows of the processes that share its sequences: where the tokens of each lie, and
 * which rows of one order are which of another. All of it is filled once in a run.
 *
 * Rows are of the batch's whole sequences, [batch, whole]. As processes have them they lie one
 * process's [T] behind the other's.
 */
#include <stdlib.h>

#include "trainer/model/core.h"

static int64_t rows_of(const struct mfs_net *net)
{
	return net->batch * net->context.whole;
}

/* Positions of all processes' tokens, and four maps. */
#define ARRAYS 5

static uint64_t array(const struct mfs_net *net, int i)
{
	return (uint64_t)i * (uint64_t)rows_of(net) * sizeof(int32_t);
}

int mfs_context_plan(struct mfs_net *net, struct mfs_error *err)
{
	struct mfs_context *c = &net->context;
	uint64_t at;

	if (c->size == 1)
		return 0;
	if (rows_of(net) > INT32_MAX)
		return mfs_fail(err, -EINVAL, "a microbatch has %lld tokens: expected at most %d",
				(long long)rows_of(net), INT32_MAX);
	at = mfs_memory_add(net->memory, MFS_MEMORY_SCRATCH, array(net, ARRAYS));
	c->positions = at;
	c->to_sequence = at + array(net, 1);
	c->from_sequence = at + array(net, 2);
	c->to_heads = at + array(net, 3);
	c->from_heads = at + array(net, 4);
	c->exchanges_heads = mfs_core_exchanges_heads(net);
	if (c->exchanges_heads)
		c->first_key = mfs_memory_add(net->memory, MFS_MEMORY_BATCH,
					      net->batch_count * array(net, 1));
	c->messages = mfs_arena_array(&net->arena, 4 * (size_t)net->batch * c->size,
				      sizeof(*c->messages));
	return c->messages ? 0 : mfs_fail_nomem(err);
}

/* Row (process p, token t) of processes' rows is row (sequence, position) of the sequences', and a
 * token's heads for process p are row (t, p) of a process's tokens. */
static void fill(const struct mfs_net *net, int32_t *to)
{
	const struct mfs_context *c = &net->context;
	const int64_t rows = rows_of(net);
	int32_t *positions = to, *to_sequence = to + rows, *from_sequence = to + 2 * rows;
	int32_t *to_heads = to + 3 * rows, *from_heads = to + 4 * rows;

	for (uint32_t p = 0; p < c->size; p++)
		for (int64_t t = 0; t < net->tokens; t++) {
			const int64_t row = p * net->tokens + t, other = t * c->size + p;
			const int64_t position =
				mfs_context_position(c->size, p, c->whole, t % net->seq);
			const int64_t at = t / net->seq * c->whole + position;

			if (t < net->seq)
				positions[p * net->seq + t] = (int32_t)position;
			from_sequence[row] = (int32_t)at;
			to_sequence[at] = (int32_t)row;
			to_heads[row] = (int32_t)other;
			from_heads[other] = (int32_t)row;
		}
}

/* Waits until it is on the device. */
int mfs_context_fill(struct mfs_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = net->backend->device;
	char why[MFK_WHY] = "";
	int32_t *host;
	int r;

	if (net->context.size == 1)
		return 0;
	host = calloc(ARRAYS * (size_t)rows_of(net), sizeof(*host));
	if (!host)
		return mfs_fail_nomem(err);
	fill(net, host);
	dev->copy_in(ctx, mfs_net_at(net, net->context.positions), host, array(net, ARRAYS));
	r = dev->sync(ctx, why);
	free(host);
	return r ? mfs_fail(err, r, "%s", why) : 0;
}

const int32_t *mfs_context_positions(const struct mfs_net *net, uint32_t part)
{
	return (const int32_t *)mfs_net_at(net, net->context.positions) + part * net->seq;
}

void mfs_context_exchange(const struct mfs_net *net, const struct mfs_pass *run, void *parts,
			  int64_t step, void *whole, size_t row, bool to_whole)
{
	const struct mfs_context *c = &net->context;
	const int64_t piece = net->seq / 2;
	struct mfk_message *m = c->messages;

	for (uint32_t p = 0; p < c->size; p++)
		for (int64_t i = 0; i < 2 * net->batch; i++) {
			const int64_t own = p * step + i * piece;
			/* The pieces that the process has of the whole; this one gets its own. */
			const int64_t to = i / 2 * c->whole +
					   mfs_context_piece(c->size, p, c->whole, (int)(i % 2));
			void *in_part = (char *)parts + (size_t)own * row;
			void *in_whole = (char *)whole + (size_t)to * row;
			const struct mfk_message pair[] = {
				{true, p, to_whole ? in_whole : in_part, (size_t)piece * row},
				{false, p, to_whole ? in_part : in_whole, (size_t)piece * row}};

			*m++ = pair[0];
			*m++ = pair[1];
		}
	mfs_parallel_exchange(net->parallel, MFS_GROUP_CONTEXT, run->ctx, c->messages,
			      (unsigned)(m - c->messages));
}

void mfs_context_gather_keys(const struct mfs_net *net, struct mfs_pass *run, uint32_t place)
{
	run->whole_first_key = NULL;
	if (!net->context.exchanges_heads || !run->first_key)
		return;
	run->whole_first_key = mfs_net_at(net, net->context.first_key + place * array(net, 1));
	mfs_context_exchange(net, run, (void *)run->first_key, 0, (void *)run->whole_first_key,
			     sizeof(int32_t), true);
}
