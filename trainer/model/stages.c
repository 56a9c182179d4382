/*
 * What the stages of a pipeline send each other: in a context of its own, in parallel with the
 * passes, in the order that trainer/parallel/pipeline.h gives.
 *
 * An exchange begins after the passes so far: what it sends is there, and what it overwrites is no
 * longer needed. A pass waits for the exchanges that the pipeline names.
 *
 * Source: megatron/core/pipeline_parallel/schedules.py: overlap_p2p_comm.
 */
#include "formats/base/array.h"
#include "trainer/model/net_i.h"

/* ---- memory ---- */

void *mft_net_branch(const struct mft_net *net, uint32_t number)
{
	return mft_net_at(net, net->chain->branch + number % net->chain->branch_count *
							    net->chain->branch_bytes);
}

void *mft_net_dx(const struct mft_net *net, uint32_t number)
{
	return mft_net_at(net, net->chain->dx + number * net->chain->dx_bytes);
}

/* Each slot begins with it. */
void *mft_net_first_x(const struct mft_net *net, uint32_t slot)
{
	return mft_net_at(net, net->slots + slot * net->slot_bytes);
}

static void *address_of(const struct mft_net *net, const struct mft_pipeline_message *m)
{
	if (m->gradient)
		return mft_net_dx(net, m->at);
	return m->receive ? mft_net_first_x(net, m->at) : mft_net_branch(net, m->at);
}

/* ---- life ---- */

bool mft_stages_overlap(const struct mft_net *net)
{
	return net->parallel->size.pp > 1 && net->config->overlap_p2p_comm;
}

int mft_stages_begin(struct mft_net *net, struct mfs_error *err)
{
	const struct mfk_device_ops *device = net->backend->device;
	struct mft_stages *s = &net->chain->stages;
	char why[MFK_WHY] = "";
	int rc;

	if (!mft_stages_overlap(net) || s->side)
		return 0;
	s->done = mfs_arena_array(&net->arena, s->count, sizeof(struct mfk_event *));
	if (!s->done)
		return mfs_fail_nomem(err);
	rc = device->ctx_new(net->device, false, &s->side, why);
	if (rc)
		return mfs_fail(err, rc, "%s", why);
	rc = device->event_new(net->device, &s->passes);
	for (uint32_t i = 0; !rc && i < s->count; i++)
		rc = device->event_new(net->device, &s->done[i]);
	return rc ? mfs_fail(err, rc, "%s: no event could be made", net->backend->name) : 0;
}

void mft_stages_release(struct mft_net *net)
{
	struct mft_stages *s = &net->chain->stages;
	char why[MFK_WHY];

	if (!s->side)
		return;
	/* Exchanges of a step that has failed may be on their way still. */
	net->backend->device->sync(s->side, why);
	for (uint32_t i = 0; i < s->count; i++)
		if (s->done[i])
			net->backend->device->event_free(s->done[i]);
	if (s->passes)
		net->backend->device->event_free(s->passes);
	net->backend->device->ctx_free(s->side);
}

/* ---- exchanges ---- */

static void say(const struct mft_net *net, struct mfk_ctx *ctx,
		const struct mft_pipeline_step *step)
{
	struct mfk_message list[MFS_ARRAY_SIZE(step->message)];

	for (uint32_t i = 0; i < step->message_count; i++) {
		const struct mft_pipeline_message *m = &step->message[i];

		list[i] = (struct mfk_message){.receive = m->receive,
					       .peer = m->stage,
					       .data = address_of(net, m),
					       .bytes = mft_stream_bytes(net)};
	}
	mft_parallel_exchange(net->parallel, MFT_GROUP_PIPELINE, ctx, list, step->message_count);
}

void mft_stages_exchange(struct mft_net *net, struct mfk_ctx *ctx,
			 const struct mft_pipeline_step *step)
{
	const struct mfk_device_ops *device = net->backend->device;
	struct mft_stages *s = &net->chain->stages;

	if (!s->side) {
		say(net, ctx, step);
		return;
	}
	device->event_record(ctx, s->passes);
	device->event_wait(s->side, s->passes);
	say(net, s->side, step);
	device->event_record(s->side, s->done[step->number % s->count]);
	s->sent = step->number + 1;
}

void mft_stages_await(const struct mft_net *net, struct mfk_ctx *ctx, uint64_t exchanges)
{
	const struct mft_stages *s = &net->chain->stages;

	if (s->side && exchanges)
		mft_parallel_wait(net->parallel, MFT_GROUP_PIPELINE, net->backend->device, ctx,
				  s->done[(exchanges - 1) % s->count]);
}

void mft_net_end(struct mft_net *net, struct mfk_ctx *ctx)
{
	mft_stages_await(net, ctx, net->chain->stages.sent);
	net->chain->stages.sent = 0;
}
