/*
 * Rows of tokens to their experts and back.
 *
 * Choices are sorted by expert. Where each process has all experts, the sorted rows are theirs.
 * Otherwise the processes tell each other how many rows they have for each expert, which the host
 * waits for, and send them: one message for each process and expert. So the rows of an expert lie
 * in the order of processes, whichever comes first, and nothing is sorted again. Each of the
 * processes that share an expert gets the row, and what they give back is added up where the token
 * came from.
 *
 * A process cannot know how many rows it will get, and memory is planned: there is room for as many
 * as there can be. From each process at most min(top_k, own experts) rows of a token come, and as
 * many for each expert as it has room for.
 *
 * Source: megatron/core/transformer/moe/token_dispatcher.py: MoEAlltoAllTokenDispatcher. It gathers
 * rows among those that share an expert after its exchange, and reduces before the way back; the
 * sums are the same.
 */
#include <string.h>

#include "trainer/model/mlp/moe_i.h"

/* ---- memory ---- */

static uint64_t numbers(int64_t count)
{
	return mft_matrix_bytes(MFK_F32, count, 1); /* int32 have the size of fp32 */
}

/* Which experts this process has, and how many rows they get at most. */
static void divide(const struct mft_net *net, const struct mft_drop *drop, struct mft_dispatch *d)
{
	const struct mft_parallel *p = net->parallel;
	const int64_t each = d->all_experts / p->size.ep, room = each * mft_drop_most(net, drop);
	const int64_t chosen = net->rows * (each < d->top_k ? each : d->top_k);

	d->parts = p->size.etp;
	d->processes = p->group[MFT_GROUP_EXPERT_TOKENS].size;
	d->exchanges = d->processes > 1;
	d->experts = each;
	d->first = each * p->place.ep;
	d->most = d->choices;
	if (d->exchanges)
		d->most = d->processes * (room < chosen ? room : chosen);
}

static int check(const struct mft_net *net, const struct mft_dispatch *d, struct mfs_error *err)
{
	const int64_t processes = net->parallel->group[MFT_GROUP_EXPERT_TOKENS].size;

	if (d->all_experts % net->parallel->size.ep)
		return mfs_fail(err, -EINVAL,
				"--expert-model-parallel-size: expected a divisor of --num-experts "
				"%lld, found %u",
				(long long)d->all_experts, net->parallel->size.ep);
	if (net->rows > INT32_MAX / d->top_k / processes)
		return mfs_fail(err, -EINVAL,
				"%lld processes have %lld tokens of microbatches each, of which "
				"each goes to %lld experts: expected at most %d rows",
				(long long)processes, (long long)net->rows, (long long)d->top_k,
				INT32_MAX);
	return 0;
}

static int make_room_on_host(struct mft_net *net, struct mft_dispatch *d, struct mfs_error *err)
{
	const size_t all = net->slot_count * (size_t)d->processes * (size_t)(d->all_experts + 1);

	d->host_offsets = mfs_arena_array(&net->arena, net->slot_count * ((size_t)d->experts + 1),
					  sizeof(*d->host_offsets));
	if (!d->host_offsets)
		return mfs_fail_nomem(err);
	if (!d->exchanges)
		return 0;
	d->host_sent = mfs_arena_array(&net->arena, all, sizeof(*d->host_sent));
	/* Own experts get from each process, and each expert's parts get from this one. */
	d->messages = mfs_arena_array(&net->arena, 2 * (size_t)d->processes * (size_t)d->experts,
				      sizeof(*d->messages));
	return d->host_sent && d->messages ? 0 : mfs_fail_nomem(err);
}

int mft_dispatch_plan(struct mft_net *net, const struct mft_drop *drop, struct mft_dispatch *d,
		      struct mft_part_plan *p, struct mfs_error *err)
{
	int rc;

	d->all_experts = net->args->num_experts;
	d->top_k = net->args->moe_router_topk;
	d->choices = net->rows * d->top_k;
	rc = check(net, d, err);
	if (rc)
		return rc;
	divide(net, drop, d);
	rc = make_room_on_host(net, d, err);
	if (rc)
		return rc;
	d->row = mft_part_plan_keep(p, numbers(d->choices));
	d->from = mft_part_plan_keep(p, numbers(d->choices));
	d->row_prob = mft_part_plan_keep(p, numbers(d->choices));
	d->expert_prob = d->exchanges ? mft_part_plan_keep(p, numbers(d->most)) : d->row_prob;
	d->sent = mft_part_plan_keep(p, (uint64_t)d->processes * (uint64_t)(d->all_experts + 1) *
						sizeof(int64_t));
	d->offsets = d->sent;
	if (d->exchanges)
		d->offsets = mft_part_plan_keep(p, (uint64_t)(d->experts + 1) * sizeof(int64_t));
	return 0;
}

void mft_dispatch_plan_scratch(const struct mft_net *net, struct mft_dispatch *d,
			       struct mft_part_plan *p)
{
	d->sorted = mft_part_plan_scratch(
		p, mft_matrix_bytes(net->io, d->parts * d->choices, net->hidden));
	d->at_experts = d->sorted;
	if (!d->exchanges)
		return;
	d->at_experts = mft_part_plan_scratch(p, mft_matrix_bytes(net->io, d->most, net->hidden));
	d->dsorted_prob = mft_part_plan_scratch(p, numbers(d->parts * d->choices));
}

/* ---- how many rows there are ---- */

static const struct mft_dispatch *dispatch_of(const struct mft_part *part)
{
	const struct mft_moe *m = part->own;

	return &m->dispatch;
}

/* What all processes sorted in the pass that is being submitted. */
static int64_t *host_sent(const struct mft_net *net, const struct mft_dispatch *d)
{
	return d->host_sent + net->slot * d->processes * (d->all_experts + 1);
}

int64_t *mft_dispatch_offsets(const struct mft_net *net, const struct mft_dispatch *d)
{
	return d->host_offsets + net->slot * (d->experts + 1);
}

/* The first rows of all experts in what a process sorted. */
static const int64_t *sent_by(const struct mft_net *net, const struct mft_dispatch *d,
			      uint32_t process)
{
	return host_sent(net, d) + process * (d->all_experts + 1);
}

static uint32_t own_rank(const struct mft_net *net)
{
	return net->parallel->group[MFT_GROUP_EXPERT_TOKENS].rank;
}

/* Copies to the host, and waits. If the context has failed there are no rows, and the next sync
 * reports why. */
static void fetch(const struct mft_net *net, const struct mft_pass *pass, int64_t *to,
		  const int64_t *from, int64_t count)
{
	const struct mfk_device_ops *dev = net->backend->device;
	const size_t bytes = (size_t)count * sizeof(*to);
	char why[MFK_WHY];

	dev->copy_out(pass->ctx, to, from, bytes);
	if (dev->sync(pass->ctx, why))
		memset(to, 0, bytes);
}

/* Numbers of 8 bytes go as two of 4: nothing is computed. */
static void tell_counts(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_part *part)
{
	const struct mft_dispatch *d = dispatch_of(part);
	const int64_t count = d->all_experts + 1;
	int64_t *sent = mft_part_kept(net, part, d->sent);
	int64_t *offsets = mft_dispatch_offsets(net, d), rows = 0;

	mft_parallel_all_gather(net->parallel, MFT_GROUP_EXPERT_TOKENS,
				mft_experts_submit(net, pass->ctx), MFK_F32, sent,
				sent + own_rank(net) * count,
				(uint64_t)count * (sizeof(*sent) / sizeof(float)));
	mft_experts_await(net, pass->ctx);
	fetch(net, pass, host_sent(net, d), sent, d->processes * count);
	for (int64_t e = 0; e < d->experts; e++) {
		offsets[e] = rows;
		for (uint32_t r = 0; r < d->processes; r++) {
			const int64_t *of = sent_by(net, d, r) + d->first + e;

			rows += of[1] - of[0];
		}
	}
	offsets[d->experts] = rows;
	net->backend->device->copy_in(pass->ctx, mft_part_kept(net, part, d->offsets), offsets,
				      ((size_t)d->experts + 1) * sizeof(*offsets));
}

int64_t mft_dispatch_rows(const struct mft_net *net, const struct mft_dispatch *d)
{
	return d->exchanges ? mft_dispatch_offsets(net, d)[d->experts] : d->choices;
}

/* ---- messages ---- */

/* Rows of bytes each: sorted choices, and those of own experts. */
struct cargo {
	size_t bytes;
	char *sorted, *at_experts;
};

static unsigned add(struct mft_dispatch *d, unsigned count, bool receive, uint32_t peer, char *data,
		    size_t bytes)
{
	if (!bytes)
		return count;
	d->messages[count] = (struct mfk_message){
		.receive = receive, .peer = peer, .data = data, .bytes = bytes};
	return count + 1;
}

/* Between this process's sorted choices and the experts of all. On the way back each of the
 * processes that share an expert has its own place. */
static unsigned add_sorted(const struct mft_net *net, struct mft_dispatch *d,
			   const struct cargo *cargo, bool back, unsigned count)
{
	const int64_t *offsets = sent_by(net, d, own_rank(net));

	for (uint32_t peer = 0; peer < d->processes; peer++) {
		const int64_t first = peer / d->parts * d->experts;
		const int64_t place = back ? peer % d->parts * d->choices : 0;

		for (int64_t e = first; e < first + d->experts; e++)
			count = add(d, count, back, peer,
				    cargo->sorted + (size_t)(place + offsets[e]) * cargo->bytes,
				    (size_t)(offsets[e + 1] - offsets[e]) * cargo->bytes);
	}
	return count;
}

/* Between own experts and the sorted choices of all. */
static unsigned add_at_experts(const struct mft_net *net, struct mft_dispatch *d,
			       const struct cargo *cargo, bool back, unsigned count)
{
	char *at = cargo->at_experts;

	for (int64_t e = d->first; e < d->first + d->experts; e++)
		for (uint32_t peer = 0; peer < d->processes; peer++) {
			const int64_t *offsets = sent_by(net, d, peer) + e;
			const size_t bytes = (size_t)(offsets[1] - offsets[0]) * cargo->bytes;

			count = add(d, count, !back, peer, at, bytes);
			at += bytes;
		}
	return count;
}

/* Messages of two processes are in the order of experts at both ends. mft_experts_await() waits. */
static void exchange(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const struct cargo *cargo, bool back)
{
	struct mft_moe *m = part->own;
	unsigned count = add_sorted(net, &m->dispatch, cargo, back, 0);

	count = add_at_experts(net, &m->dispatch, cargo, back, count);
	mft_parallel_exchange(net->parallel, MFT_GROUP_EXPERT_TOKENS,
			      mft_experts_submit(net, pass->ctx), m->dispatch.messages, count);
}

/* What the parts of experts gave, [parts][count], becomes one. */
static void add_parts(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_dispatch *d, enum mfk_dtype type, void *sum, int64_t count)
{
	for (uint32_t i = 1; i < d->parts; i++)
		net->backend->ops->add(pass->ctx, type, sum, sum,
				       (char *)sum + (size_t)(i * count) * mfk_dtype_size(type),
				       count);
}

/* ---- probabilities ---- */

const float *mft_dispatch_probs(const struct mft_net *net, const struct mft_part *part)
{
	return mft_part_kept(net, part, dispatch_of(part)->expert_prob);
}

const float *mft_dispatch_probs_back(const struct mft_net *net, const struct mft_pass *pass,
				     const struct mft_part *part, float *drow_prob)
{
	const struct mft_dispatch *d = dispatch_of(part);
	struct cargo cargo = {.bytes = sizeof(float), .at_experts = (char *)drow_prob};

	if (!d->exchanges)
		return drow_prob;
	cargo.sorted = mft_net_scratch(net, d->dsorted_prob);
	exchange(net, pass, part, &cargo, true);
	mft_experts_await(net, pass->ctx);
	add_parts(net, pass, d, MFK_F32, cargo.sorted, d->choices);
	return (const float *)(const void *)cargo.sorted;
}

/* ---- choices ---- */

void mft_dispatch_sort(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_part *part, const int32_t *taken, int32_t *totals)
{
	const struct mft_dispatch *d = dispatch_of(part);
	const struct mft_moe *m = part->own;
	const int64_t first = net->first_row * d->top_k; /* of all tokens' choices */
	int64_t *sent = mft_part_kept(net, part, d->sent);
	const struct mfk_dispatch order = {
		.tokens = net->rows,
		.experts = d->all_experts,
		.top_k = d->top_k,
		.expert = taken + first,
		.prob = (const float *)mft_part_kept(net, part, m->router.prob) + first,
		.offsets = sent + own_rank(net) * (d->all_experts + 1),
		.row = mft_part_kept(net, part, d->row),
		.from = mft_part_kept(net, part, d->from),
		.row_prob = mft_part_kept(net, part, d->row_prob),
		.totals = totals,
	};
	const struct cargo probs = {
		.bytes = sizeof(float),
		.sorted = (char *)order.row_prob,
		.at_experts = mft_part_kept(net, part, d->expert_prob),
	};

	net->backend->ops->dispatch(pass->ctx, &order);
	if (d->exchanges) {
		tell_counts(net, pass, part);
		exchange(net, pass, part, &probs, false);
		mft_experts_await(net, pass->ctx);
	} else if (d->wants_host) {
		fetch(net, pass, mft_dispatch_offsets(net, d), sent, d->experts + 1);
	}
}

/* ---- rows ---- */

static struct cargo rows_of(const struct mft_net *net, const struct mft_dispatch *d)
{
	return (struct cargo){
		.bytes = (size_t)net->hidden * mfk_dtype_size(net->io),
		.sorted = mft_net_scratch(net, d->sorted),
		.at_experts = mft_net_scratch(net, d->at_experts),
	};
}

void *mft_dispatch_to_experts(const struct mft_net *net, const struct mft_pass *pass,
			      const struct mft_part *part, const void *x)
{
	const struct mft_dispatch *d = dispatch_of(part);
	const struct cargo cargo = rows_of(net, d);
	const struct mfk_rows rows = {
		.dtype = net->io,
		.rows = d->choices,
		.cols = net->hidden,
		.each = d->top_k,
		.map = mft_part_kept(net, part, d->from),
		.x = x,
		.y = cargo.sorted,
	};

	net->backend->ops->gather(pass->ctx, &rows);
	if (d->exchanges)
		exchange(net, pass, part, &cargo, false);
	return cargo.at_experts;
}

void mft_dispatch_back(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_part *part)
{
	const struct cargo cargo = rows_of(net, dispatch_of(part));

	if (dispatch_of(part)->exchanges)
		exchange(net, pass, part, &cargo, true);
}

void mft_dispatch_combine(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, bool adds, void *y)
{
	const struct mft_dispatch *d = dispatch_of(part);
	const struct cargo cargo = rows_of(net, d);
	const struct mfk_rows rows = {
		.dtype = net->io,
		.rows = net->rows,
		.cols = net->hidden,
		.each = d->top_k,
		.map = mft_part_kept(net, part, d->row),
		.x = cargo.sorted,
		.residual = adds ? y : NULL,
		.y = y,
	};

	if (d->exchanges)
		add_parts(net, pass, d, net->io, cargo.sorted, d->choices * net->hidden);
	net->backend->ops->combine(pass->ctx, &rows);
}
