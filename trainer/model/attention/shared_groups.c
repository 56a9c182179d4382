/*
 * Groups of queries that tensor parallel processes share, where there are more processes than
 * groups. A group's rows of linear_qkv are its queries, its key and its value. Each process has an
 * equal share of all rows, which begins and ends anywhere in a group.
 *
 *   forward    all processes' columns are gathered; each takes its own queries, and the key and
 *              the value of their group
 *   backward   each has a term of the gradient: of the columns that it has taken, and zeros
 *              elsewhere; a sum goes to the process that has computed the columns
 *
 * Columns are moved in units: the largest that both a head and a share are multiples of. Source:
 * megatron/core/transformer/attention.py: SelfAttention.get_query_key_value_tensors.
 */
#include <stdlib.h>

#include "trainer/model/attention/attention_i.h"
#include "trainer/model/base/tensor_parallel.h"

static int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		const int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static int64_t taken_units(const struct mft_net *net)
{
	return net->tokens * (net->groups->taken / net->groups->unit);
}

static int64_t all_units(const struct mft_net *net)
{
	const struct mft_shared_groups *g = net->groups;

	return net->parallel->size.tp * net->tokens * (g->share / g->unit);
}

static uint64_t map_bytes(int64_t units)
{
	return mft_matrix_bytes(MFK_F32, units, 1); /* int32_t */
}

int mft_shared_groups_plan(struct mft_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;
	const int64_t tp = net->parallel->size.tp, dim = a->kv_channels;
	struct mft_shared_groups *g = mfs_arena_array(&net->arena, 1, sizeof(*g));

	if (!g)
		return mfs_fail_nomem(err);
	net->groups = g;
	if (a->multi_latent_attention || a->num_query_groups % tp == 0)
		return 0;
	g->share = (a->num_attention_heads + 2 * a->num_query_groups) * dim / tp;
	g->taken = (a->num_attention_heads / tp + 2) * dim;
	g->unit = common_divisor(dim, g->share);
	if (all_units(net) > INT32_MAX)
		return mfs_fail(err, -EINVAL, "a microbatch has %lld tokens: too many",
				(long long)net->tokens);
	g->to_taken = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, map_bytes(taken_units(net)));
	g->to_all = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, map_bytes(all_units(net)));
	return 0;
}

/* The column of all groups' rows that column c of what the process takes is. */
static int64_t column_of(const struct mft_net *net, int64_t c)
{
	const struct mfs_megatron_args *a = net->args;
	const int64_t tp = net->parallel->size.tp, rank = net->parallel->place.tp;
	const int64_t sharers = tp / a->num_query_groups;
	const int64_t queries = a->num_attention_heads / a->num_query_groups * a->kv_channels;
	const int64_t own = a->num_attention_heads / tp * a->kv_channels;
	const int64_t group = rank / sharers * (queries + 2 * a->kv_channels);

	return group + (c < own ? rank % sharers * own + c : queries + c - own);
}

/* Unit (token, j) of what is taken is unit (process, token, k) of all, and the reverse. */
static void fill(const struct mft_net *net, int32_t *to_taken, int32_t *to_all)
{
	const struct mft_shared_groups *g = net->groups;
	const int64_t each = g->taken / g->unit, per_share = g->share / g->unit;

	for (int64_t i = 0; i < all_units(net); i++)
		to_all[i] = -1;
	for (int64_t t = 0; t < net->tokens; t++)
		for (int64_t j = 0; j < each; j++) {
			const int64_t column = column_of(net, j * g->unit);
			const int64_t process = column / g->share;
			const int64_t at = (process * net->tokens + t) * per_share +
					   column % g->share / g->unit;

			to_taken[t * each + j] = (int32_t)at;
			to_all[at] = (int32_t)(t * each + j);
		}
}

int mft_shared_groups_fill(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = net->backend->device;
	const struct mft_shared_groups *g = net->groups;
	char why[MFK_WHY] = "";
	int32_t *host;
	int r;

	if (!g->share)
		return 0;
	host = calloc((size_t)(taken_units(net) + all_units(net)), sizeof(*host));
	if (!host)
		return mfs_fail_nomem(err);
	fill(net, host, host + taken_units(net));
	dev->copy_in(ctx, mft_net_at(net, g->to_taken), host, map_bytes(taken_units(net)));
	dev->copy_in(ctx, mft_net_at(net, g->to_all), host + taken_units(net),
		     map_bytes(all_units(net)));
	r = dev->sync(ctx, why);
	free(host);
	return r ? mfs_fail(err, r, "%s", why) : 0;
}

void mft_shared_groups_take(const struct mft_net *net, const struct mft_pass *pass,
			    const void *share, void *all, void *taken)
{
	const struct mft_shared_groups *g = net->groups;
	const struct mfk_rows rows = {
		.dtype = net->io,
		.rows = taken_units(net),
		.cols = g->unit,
		.each = 1,
		.map = mft_net_at(net, g->to_taken),
		.x = all,
		.y = taken,
	};

	mft_tensor_gather(net, pass->ctx, net->io, all, share, (uint64_t)(net->tokens * g->share));
	net->backend->ops->gather(pass->ctx, &rows);
}

void mft_shared_groups_give(const struct mft_net *net, const struct mft_pass *pass,
			    const void *dtaken, void *all, void *dshare)
{
	const struct mft_shared_groups *g = net->groups;
	const struct mfk_rows rows = {
		.dtype = net->io,
		.rows = all_units(net),
		.cols = g->unit,
		.each = 1,
		.map = mft_net_at(net, g->to_all),
		.x = dtaken,
		.y = all,
	};

	net->backend->ops->combine(pass->ctx, &rows);
	mft_tensor_scatter(net, pass->ctx, net->io, dshare, all,
			   (uint64_t)(net->tokens * g->share));
}
