/* Delayed scaling: tables of scales, which follow from what earlier passes have seen. */
#include <math.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "kernels/eight_bits.h"
#include "trainer/model/base/eight_i.h"
#include "trainer/model/base/part.h"

static uint64_t table_bytes(const struct mft_eight_table *t)
{
	return (uint64_t)t->count * sizeof(struct mfk_scale);
}

static void place_table(struct mft_net *net, struct mft_eight_table *t, int64_t count)
{
	const int64_t length = net->config->fp8_amax_history_len;

	t->count = count;
	t->scales = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS, table_bytes(t));
	t->history = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS,
				    mft_matrix_bytes(MFK_F32, length, count));
	t->amax = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS,
				 mft_matrix_bytes(MFK_F32, 1, count));
}

void mft_eight_place_slot(struct mft_net *net, uint64_t *slot)
{
	struct mft_eight_delayed *d;

	if (!net->eight || !net->eight->recipe.delayed)
		return;
	d = &net->eight->delayed;
	place_table(net, &d->forward, 2 * d->groups);
	place_table(net, &d->backward, d->groups);
	d->now.in_slot = true;
	d->now.offset = mft_memory_after(slot, table_bytes(&d->forward));
}

struct mfk_scale *mft_eight_table_scales(const struct mft_net *net,
					 const struct mft_eight_weight *w, enum mft_factor which)
{
	const struct mft_eight_delayed *d = &net->eight->delayed;
	const struct mft_eight_operands *of = &net->eight->weights[w->first - net->params->list];
	struct mfk_scale *forward = mft_pass_at(net, d->now);

	if (which == MFT_DY)
		return (struct mfk_scale *)mft_net_at(net, d->backward.scales) + of->first;
	return forward + 2 * of->first + (which == MFT_WEIGHT ? w->groups : 0);
}

/* ---- the beginning ---- */

static int fill_table(const struct mft_net *net, struct mfk_ctx *ctx,
		      const struct mft_eight_table *t, struct mfs_error *err)
{
	const struct mfk_device_ops *device = net->backend->device;
	const uint64_t history =
		mft_matrix_bytes(MFK_F32, net->config->fp8_amax_history_len, t->count);
	struct mfk_scale *ones = calloc((size_t)t->count + 1, sizeof(*ones));
	char why[MFK_WHY] = "";
	int rc;

	if (!ones)
		return mfs_fail_nomem(err);
	for (int64_t i = 0; i < t->count; i++)
		ones[i].inverse = ones[i].scale = 1;
	device->zero(ctx, mft_net_at(net, t->history), history);
	device->copy_in(ctx, mft_net_at(net, t->scales), ones, table_bytes(t));
	rc = device->sync(ctx, why);
	free(ones);
	return rc ? mfs_fail(err, rc, "%s", why) : 0;
}

/* The weights of a group are parameters of their own. */
static void place_weight(const struct mft_net *net, uint32_t first)
{
	const struct mfs_global_tensor *t = net->params->list[first].tensor;
	const struct mft_eight_operands *w = &net->eight->weights[first];
	struct mft_scale_place *places = net->eight->delayed.scales.places;

	for (int64_t i = 0; i < w->groups; i++) {
		const struct mft_param *p = &net->params->list[first];

		if (i)
			p = mft_params_find(net->params, t->name, t->layer, t->expert + (int32_t)i);
		if (p)
			places[p - net->params->list] =
				(struct mft_scale_place){.exists = true,
							 .x = 2 * w->first + i,
							 .weight = 2 * w->first + w->groups + i,
							 .dy = w->first + i};
	}
}

static struct mft_scale_table table_at(const struct mft_net *net, const struct mft_eight_table *t)
{
	return (struct mft_scale_table){.count = t->count,
					.scales = mft_net_at(net, t->scales),
					.history = mft_net_at(net, t->history)};
}

/* Checkpoints find them by the parameters. */
static int show_scales(struct mft_net *net, struct mfs_error *err)
{
	struct mft_eight_delayed *d = &net->eight->delayed;

	d->scales.places =
		mfs_arena_array(&net->arena, net->params->count, sizeof(*d->scales.places));
	if (!d->scales.places)
		return mfs_fail_nomem(err);
	d->scales.length = net->config->fp8_amax_history_len;
	d->scales.forward = table_at(net, &d->forward);
	d->scales.backward = table_at(net, &d->backward);
	for (uint32_t i = 0; i < net->params->count; i++)
		if (net->eight->weights[i].planned)
			place_weight(net, i);
	net->params->scales = &d->scales;
	return 0;
}

int mft_eight_begin(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	const struct mft_eight *e = net->eight;
	int rc;

	if (!e || !e->recipe.delayed)
		return 0;
	rc = fill_table(net, ctx, &e->delayed.forward, err);
	if (!rc)
		rc = fill_table(net, ctx, &e->delayed.backward, err);
	return rc ? rc : show_scales(net, err);
}

bool mft_eight_find_scales(const struct mft_net *net)
{
	const struct mft_eight *e = net->eight;

	if (!e || !e->recipe.delayed)
		return false;
	for (uint32_t i = 0; i < net->params->count; i++)
		for (int k = 0; k < MFT_FACTORS; k++)
			e->weights[i].fresh[k] = true;
	return true;
}

/* ---- what follows from a pass ---- */

/* Copies amax of the scales to numbers that follow each other, or back. */
static void copy_amax(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_eight_table *t, struct mfk_scale *seen, bool back)
{
	const int64_t apart = sizeof(*seen) / sizeof(seen->amax);
	float *numbers = mft_net_at(net, t->amax);
	const struct mfk_copy_rows rows = {
		.from_type = MFK_F32,
		.to_type = MFK_F32,
		.rows = t->count,
		.cols = 1,
		.ld_from = back ? 1 : apart,
		.ld_to = back ? apart : 1,
		.from = back ? numbers : &seen->amax,
		.to = back ? &seen->amax : numbers,
		.scale = 1,
	};

	net->backend->ops->copy_rows(pass->ctx, &rows);
}

/* The greatest amax of all processes that have the same linears. */
static void share(const struct mft_net *net, const struct mft_pass *pass,
		  const struct mft_eight_table *t, struct mfk_scale *seen)
{
	const struct {
		enum mft_group group;
		const struct mft_side *side; /* in which the group communicates; NULL: the pass's */
	} all[] = {{MFT_GROUP_TENSOR, &net->tensor_side},
		   {MFT_GROUP_CONTEXT, &net->context_side},
		   {MFT_GROUP_DATA, NULL}};
	bool shared = false;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
		if (net->parallel->group[all[i].group].size < 2)
			continue;
		if (!shared)
			copy_amax(net, pass, t, seen, false);
		shared = true;
		mft_parallel_all_reduce(
			net->parallel, all[i].group,
			all[i].side ? mft_side_submit(net, all[i].side, pass->ctx) : pass->ctx,
			MFK_MAX, MFK_F32, mft_net_at(net, t->amax), (uint64_t)t->count);
		if (all[i].side)
			mft_side_await(net, all[i].side, all[i].group, pass->ctx);
	}
	if (shared)
		copy_amax(net, pass, t, seen, true);
}

static void update(const struct mft_net *net, const struct mft_pass *pass,
		   const struct mft_eight_table *t, enum mfk_dtype type, struct mfk_scale *seen)
{
	const struct mfk_update_scales u = {
		.count = t->count,
		.length = net->config->fp8_amax_history_len,
		.most = ldexpf(mfk_scaled_most(type), -(int)net->config->fp8_margin),
		.greatest = mfs_str_is(net->config->fp8_amax_compute_algo, "max"),
		.scales = mft_net_at(net, t->scales),
		.seen = seen,
		.history = mft_net_at(net, t->history),
	};

	if (!t->count)
		return;
	share(net, pass, t, seen);
	net->backend->ops->update_scales(pass->ctx, &u);
}

static bool updates(const struct mft_net *net, const struct mft_pass *pass)
{
	return net->eight && net->eight->recipe.delayed && pass->train;
}

void mft_eight_begin_forward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_eight *e = net->eight;

	if (e && e->recipe.delayed)
		net->backend->device->copy(pass->ctx, mft_pass_at(net, e->delayed.now),
					   mft_net_at(net, e->delayed.forward.scales),
					   table_bytes(&e->delayed.forward));
}

void mft_eight_end_forward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_eight *e = net->eight;

	if (updates(net, pass))
		update(net, pass, &e->delayed.forward, e->recipe.type[MFT_X],
		       mft_pass_at(net, e->delayed.now));
}

void mft_eight_end_backward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_eight *e = net->eight;

	if (updates(net, pass))
		update(net, pass, &e->delayed.backward, e->recipe.type[MFT_DY],
		       mft_net_at(net, e->delayed.backward.scales));
}
