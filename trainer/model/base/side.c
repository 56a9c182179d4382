/*
 * Communication of processes in parallel with the passes, in a context of its own.
 *
 * All communication of a group is then in that context, so that it has one order. An operation
 * begins after everything that the passes' context has so far, and code that needs its result
 * waits. Without such a context it is in the passes'; operations come in the same order, and
 * results have the same bits.
 */
#include "trainer/model/base/side.h"
#include "trainer/model/base/state.h"

int mft_side_begin(const struct mft_net *net, struct mft_side *b, struct mfs_error *err)
{
	const struct mfk_device_ops *device = net->backend->device;
	char why[MFK_WHY] = "";
	int rc = device->ctx_new(net->device, false, &b->ctx, why);

	if (rc)
		return mfs_fail(err, rc, "%s", why);
	rc = device->event_new(net->device, &b->passes);
	if (!rc)
		rc = device->event_new(net->device, &b->sent);
	return rc ? mfs_fail(err, rc, "%s: no event could be made", net->backend->name) : 0;
}

void mft_side_release(const struct mft_net *net, struct mft_side *b)
{
	char why[MFK_WHY];

	if (!b->ctx)
		return;
	net->backend->device->sync(b->ctx, why);
	if (b->passes)
		net->backend->device->event_free(b->passes);
	if (b->sent)
		net->backend->device->event_free(b->sent);
	net->backend->device->ctx_free(b->ctx);
}

struct mfk_ctx *mft_side_submit(const struct mft_net *net, const struct mft_side *b,
				struct mfk_ctx *ctx)
{
	if (!b->ctx)
		return ctx;
	net->backend->device->event_record(ctx, b->passes);
	net->backend->device->event_wait(b->ctx, b->passes);
	return b->ctx;
}

void mft_side_await(const struct mft_net *net, const struct mft_side *b, enum mft_group group,
		    struct mfk_ctx *ctx)
{
	if (!b->ctx)
		return;
	net->backend->device->event_record(b->ctx, b->sent);
	mft_parallel_wait(net->parallel, group, net->backend->device, ctx, b->sent);
}
