/*
 * --moe-shared-expert-overlap: rows go to experts and back beside what the shared experts compute.
 *
 * All that the processes of MFS_GROUP_EXPERT_TOKENS say to each other is then in a context of its
 * own, so that it has one order. What is said begins behind what the passes' context has so far,
 * and whoever needs it waits. Without the flag it is in the passes' context; operations come in the
 * same order, and results have the same bits.
 *
 * Source: megatron/core/transformer/moe/shared_experts.py: SharedExpertMLP.stream.
 */
#include "trainer/model/moe_i.h"

int mfs_experts_beside_begin(struct mfs_net *net, struct mfs_error *err)
{
	const struct mfk_device_ops *device = net->backend->device;
	struct mfs_experts_beside *b = &net->experts_beside;
	char why[MFK_WHY] = "";
	int rc;

	if (!net->config->moe_shared_expert_overlap || b->ctx ||
	    net->parallel->group[MFS_GROUP_EXPERT_TOKENS].size == 1)
		return 0;
	rc = device->ctx_new(net->device, false, &b->ctx, why);
	if (rc)
		return mfs_fail(err, rc, "%s", why);
	rc = device->event_new(net->device, &b->passes);
	if (!rc)
		rc = device->event_new(net->device, &b->said);
	return rc ? mfs_fail(err, rc, "%s: no event could be made", net->backend->name) : 0;
}

void mfs_experts_beside_release(struct mfs_net *net)
{
	struct mfs_experts_beside *b = &net->experts_beside;
	char why[MFK_WHY];

	if (!b->ctx)
		return;
	net->backend->device->sync(b->ctx, why);
	if (b->passes)
		net->backend->device->event_free(b->passes);
	if (b->said)
		net->backend->device->event_free(b->said);
	net->backend->device->ctx_free(b->ctx);
}

struct mfk_ctx *mfs_experts_say(const struct mfs_net *net, struct mfk_ctx *ctx)
{
	const struct mfs_experts_beside *b = &net->experts_beside;

	if (!b->ctx)
		return ctx;
	net->backend->device->event_record(ctx, b->passes);
	net->backend->device->event_wait(b->ctx, b->passes);
	return b->ctx;
}

void mfs_experts_await(const struct mfs_net *net, struct mfk_ctx *ctx)
{
	const struct mfs_experts_beside *b = &net->experts_beside;

	if (!b->ctx)
		return;
	net->backend->device->event_record(b->ctx, b->said);
	net->backend->device->event_wait(ctx, b->said);
}
