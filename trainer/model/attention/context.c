/*
 * What a net knows of the processes that share its sequences: where the tokens of each lie, and
 * which rows of one order are which of another. All of it is filled once in a run.
 *
 * Rows are of the batch's whole sequences, [batch, whole]. As processes have them, one process's
 * [T] follows the other's.
 */
#include <stdlib.h>

#include "trainer/model/attention/core.h"

void mft_context_find(const struct mft_parallel *p, int64_t whole, struct mft_context *ret)
{
	const uint32_t size = p->size.cp, rank = p->place.cp;
	const uint32_t neighbours = p->size.neighbours ? p->size.neighbours : 1;

	*ret = (struct mft_context){.size = size, .rank = rank, .whole = whole};
	ret->way[MFT_CONTEXT_RING] = (struct mft_context_way){
		.ring_group = MFT_GROUP_CONTEXT, .heads = 1, .ring = size, .ring_rank = rank};
	ret->way[MFT_CONTEXT_HEADS] = (struct mft_context_way){
		.heads_group = MFT_GROUP_CONTEXT, .heads = size, .heads_rank = rank, .ring = 1};
	ret->way[MFT_CONTEXT_BOTH] =
		(struct mft_context_way){.heads_group = MFT_GROUP_CONTEXT_HEADS,
					 .ring_group = MFT_GROUP_CONTEXT_RING,
					 .heads = neighbours,
					 .heads_rank = rank % neighbours,
					 .ring = size / neighbours,
					 .ring_rank = rank / neighbours};
}

static int64_t rows_of(const struct mft_net *net)
{
	return net->batch * net->context.whole;
}

/* Rows that neighbours have together. */
static int64_t joined_rows(const struct mft_net *net, const struct mft_context_way *way)
{
	return net->tokens * way->heads;
}

static uint64_t keys_bytes(const struct mft_net *net, const struct mft_context_way *way)
{
	return (uint64_t)joined_rows(net, way) * sizeof(int32_t);
}

/* ---- memory ---- */

static uint64_t next_array(uint64_t *at, int64_t elements)
{
	const uint64_t here = *at;

	*at += (uint64_t)elements * sizeof(int32_t);
	return here;
}

/* Places arrays one after the other, from at on. Returns where they end. */
static uint64_t place_arrays(const struct mft_net *net, struct mft_context *c, uint64_t at)
{
	c->to_sequence = next_array(&at, rows_of(net));
	c->from_sequence = next_array(&at, rows_of(net));
	for (int i = 0; i < MFT_CONTEXT_WAYS; i++) {
		struct mft_context_way *way = &c->way[i];

		if (way->used && way->ring > 1)
			way->positions = next_array(&at, c->whole);
		if (!way->used || way->heads == 1)
			continue;
		way->to_heads = next_array(&at, joined_rows(net, way));
		way->from_heads = next_array(&at, joined_rows(net, way));
	}
	return at;
}

int mft_context_plan(struct mft_net *net, struct mfs_error *err)
{
	struct mft_context *c = &net->context;

	if (c->size == 1)
		return 0;
	if (rows_of(net) > INT32_MAX)
		return mfs_fail(err, -EINVAL, "a microbatch has %lld tokens: expected at most %d",
				(long long)rows_of(net), INT32_MAX);
	for (int i = 0; i < MFT_CONTEXT_WAYS; i++) {
		struct mft_context_way *way = &c->way[i];

		/* Code that gathers keys asks for the positions of a ring of all. */
		way->used =
			i == MFT_CONTEXT_RING || mft_core_has_way(net, (enum mft_context_kind)i);
		if (way->used && way->heads > 1)
			way->first_key = mft_memory_add(net->memory, MFT_MEMORY_BATCH,
							net->batch_count * keys_bytes(net, way));
	}
	c->array_bytes = place_arrays(net, c, 0);
	place_arrays(net, c, mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, c->array_bytes));
	c->messages = mfs_arena_array(&net->arena, 4 * (size_t)net->batch * c->size,
				      sizeof(*c->messages));
	return c->messages ? 0 : mfs_fail_nomem(err);
}

int mft_context_side_begin(struct mft_net *net, struct mfs_error *err)
{
	if (net->context.size == 1 || net->context_side.ctx)
		return 0;
	return mft_side_begin(net, &net->context_side, err);
}

/* ---- what the arrays say ---- */

/* Row (process p, token t) of processes' rows is row (sequence, position) of the sequences'. */
static void fill_sequences(const struct mft_net *net, int32_t *to_sequence, int32_t *from_sequence)
{
	const struct mft_context *c = &net->context;

	for (uint32_t p = 0; p < c->size; p++)
		for (int64_t t = 0; t < net->tokens; t++) {
			const int64_t row = p * net->tokens + t;
			const int64_t position =
				mft_context_position(c->size, p, c->whole, t % net->seq);
			const int64_t at = t / net->seq * c->whole + position;

			from_sequence[row] = (int32_t)at;
			to_sequence[at] = (int32_t)row;
		}
}

/* A token's heads for neighbour p are row (t, p) of a process's tokens. */
static void fill_heads(const struct mft_net *net, uint32_t neighbours, int32_t *to_heads,
		       int32_t *from_heads)
{
	for (uint32_t p = 0; p < neighbours; p++)
		for (int64_t t = 0; t < net->tokens; t++) {
			const int64_t row = p * net->tokens + t, other = t * neighbours + p;

			to_heads[row] = (int32_t)other;
			from_heads[other] = (int32_t)row;
		}
}

static void fill_positions(const struct mft_context *c, uint32_t ring, int32_t *positions)
{
	const int64_t each = c->whole / ring;

	for (int64_t i = 0; i < c->whole; i++)
		positions[i] = (int32_t)mft_context_position(ring, (uint32_t)(i / each), c->whole,
							     i % each);
}

static int32_t *array(const struct mft_context *c, char *host, uint64_t at)
{
	return (int32_t *)(void *)(host + (at - c->to_sequence));
}

static void fill(const struct mft_net *net, char *host)
{
	const struct mft_context *c = &net->context;

	fill_sequences(net, array(c, host, c->to_sequence), array(c, host, c->from_sequence));
	for (int i = 0; i < MFT_CONTEXT_WAYS; i++) {
		const struct mft_context_way *way = &c->way[i];

		if (way->used && way->ring > 1)
			fill_positions(c, way->ring, array(c, host, way->positions));
		if (way->used && way->heads > 1)
			fill_heads(net, way->heads, array(c, host, way->to_heads),
				   array(c, host, way->from_heads));
	}
}

/* Waits until it is on the device. */
int mft_context_fill(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = net->backend->device;
	const struct mft_context *c = &net->context;
	char why[MFK_WHY] = "";
	char *host;
	int r;

	if (c->size == 1)
		return 0;
	host = calloc(c->array_bytes, 1);
	if (!host)
		return mfs_fail_nomem(err);
	fill(net, host);
	dev->copy_in(ctx, mft_net_at(net, c->to_sequence), host, c->array_bytes);
	r = dev->sync(ctx, why);
	free(host);
	return r ? mfs_fail(err, r, "%s", why) : 0;
}

const int32_t *mft_context_positions(const struct mft_net *net, enum mft_context_kind which,
				     uint32_t part)
{
	const struct mft_context_way *way = &net->context.way[which];

	return (const int32_t *)mft_net_at(net, way->positions) +
	       part * (net->context.whole / way->ring);
}

/* ---- messages ---- */

void mft_context_exchange(const struct mft_net *net, const struct mft_pass *pass,
			  enum mft_context_kind which, void *parts, int64_t step, void *joined,
			  size_t row, bool to_joined)
{
	const struct mft_context *c = &net->context;
	const struct mft_context_way *way = &c->way[which];
	const int64_t piece = net->seq / 2, length = net->seq * way->heads;
	struct mfk_message *m = c->messages;

	for (uint32_t p = 0; p < way->heads; p++)
		for (int64_t i = 0; i < 2 * net->batch; i++) {
			const int64_t own = p * step + i * piece;
			/* The pieces that the process has of what they join; this one gets its own.
			 * Neighbours' pieces lie side by side in the sequence, so they have its
			 * order when they lie as those of a sequence that they have alone. */
			const int64_t to = i / 2 * length +
					   mft_context_piece(way->heads, p, length, (int)(i % 2));
			void *in_part = (char *)parts + (size_t)own * row;
			void *in_joined = (char *)joined + (size_t)to * row;
			const struct mfk_message pair[] = {
				{true, p, to_joined ? in_joined : in_part, (size_t)piece * row},
				{false, p, to_joined ? in_part : in_joined, (size_t)piece * row}};

			*m++ = pair[0];
			*m++ = pair[1];
		}
	mft_parallel_exchange(net->parallel, way->heads_group,
			      mft_side_submit(net, &net->context_side, pass->ctx), c->messages,
			      (unsigned)(m - c->messages));
	mft_side_await(net, &net->context_side, way->heads_group, pass->ctx);
}

void mft_context_gather_keys(const struct mft_net *net, struct mft_pass *pass, uint32_t place)
{
	for (int i = 0; i < MFT_CONTEXT_WAYS; i++) {
		const struct mft_context_way *way = &net->context.way[i];
		int32_t *joined;

		pass->heads_first_key[i] = NULL;
		if (!way->used || way->heads == 1 || !pass->first_key)
			continue;
		joined = mft_net_at(net, way->first_key + place * keys_bytes(net, way));
		mft_context_exchange(net, pass, (enum mft_context_kind)i, (void *)pass->first_key,
				     0, joined, sizeof(int32_t), true);
		pass->heads_first_key[i] = joined;
	}
}
