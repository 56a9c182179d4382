/*
 * A microbatch through the model chunks of this process, from top to bottom and back:
 *
 *   take          one copy to the device
 *   forward       embed, or what the chunk before has sent: x of the first sublayer
 *                 the layers, of two sublayers each
 *                 the last norm, or the stream that the next chunk goes on with
 *   backward      MTP layers, forward and back, with their losses (mtp.c)
 *                 head: losses, and at once the gradient of the last norm's output; or the stream's
 *                 gradient, which the next chunk has sent
 *                 the layers in reverse; those that were not kept are run again first
 *                 embed_backward, or the stream's gradient, which is sent
 *
 * Without a backward pass forward ends with the head and its losses.
 *
 * All of it is submitted to the context; nothing here waits.
 */
#include "formats/base/trace.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/model/base/eight.h"
#include "trainer/model/net_i.h"

/* ---- forward ---- */

/* Runs layers [first, end) of a chunk; the unit `then` is visited after them. When they are run
 * again, the last one's output is not wanted. */
static void layers_forward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_net_chunk *chunk, uint32_t first, uint32_t end,
			   int32_t then)
{
	const struct mft_sublayer *before = NULL;

	for (uint32_t i = first; i < end; i++) {
		const struct mft_layer *l = &chunk->layers[i];
		const struct mft_net_visit v = {.unit = mft_layer_unit(l),
						.next = i + 1 < end ? mft_layer_unit(l + 1) : then,
						.reads = true};

		MFT_RANGE_BEGIN("layer %u", l->attention.part.layer);
		mft_visit_begins(net, pass, v);
		mft_sublayer_forward(net, pass, before, &l->attention, mft_branch_now(net));
		mft_sublayer_forward(net, pass, &l->attention, &l->mlp,
				     i + 1 < end || !pass->again ? mft_branch_now(net) : NULL);
		mft_visit_ends(net, pass, v);
		MFT_RANGE_END();
		before = &l->mlp;
	}
}

/* Writes the residual stream after the chunk's last layer, in place of that layer's output: the
 * next chunk begins with it. Without dropout the sum is one with p = 0, which keeps every element
 * as it is. last NULL: a chunk without layers, whose stream ends as it began. */
static void output(const struct mft_net *net, const struct mft_pass *pass,
		   const struct mft_sublayer *last)
{
	struct mfk_dropout d = {.dtype = net->io};

	if (last && mft_drops(net, pass))
		d = mft_dropout_at(net, pass, last->part.layer, last->site);
	d.x = last ? mft_branch_now(net) : mft_net_first_x(net, net->slot);
	d.y = mft_branch_now(net);
	d.residual = last ? mft_pass_at(net, last->in.x) : NULL;
	mft_drop(net, pass, net->backend->ops->dropout, &d);
}

void mft_chunk_forward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_net_chunk *chunk)
{
	const struct mft_sublayer *last =
		chunk->count ? &chunk->layers[chunk->count - 1].mlp : NULL;
	const struct mft_net_visit embedding = {
		.unit = MFT_UNIT_EMBEDDING, .next = mft_first_unit(chunk), .reads = true};
	const struct mft_net_visit norm = {
		.unit = MFT_UNIT_HEAD, .next = MFT_UNIT_NONE, .reads = true};

	if (chunk->embeds) {
		MFT_RANGE_BEGIN("embedding");
		mft_visit_begins(net, pass, embedding);
		mft_embed(net, pass, 0, mft_net_first_x(net, net->slot));
		mft_visit_ends(net, pass, embedding);
		MFT_RANGE_END();
	}
	mft_eight_begin_forward(net, pass);
	layers_forward(net, pass, chunk, 0, chunk->count,
		       chunk->ends ? MFT_UNIT_HEAD : MFT_UNIT_NONE);
	mft_eight_end_forward(net, pass);
	if (!chunk->ends) {
		output(net, pass, last);
		return;
	}
	mft_visit_begins(net, pass, norm);
	mft_join(net, pass, last, &net->chain->head.in);
	mft_visit_ends(net, pass, norm);
}

/* ---- the head ---- */

/* Losses without a backward pass. */
static void head_forward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_head_loss loss = mft_head_loss(net, pass);

	MFT_RANGE_BEGIN("head");
	mft_head_begins(net, pass, false);
	mft_head_forward(net, pass, &loss, mft_pass_at(net, net->chain->head.in.normed));
	mft_head_ends(net, pass, false);
	MFT_RANGE_END();
}

/* ---- backward ---- */

/* Before the last one of some layers goes backward: all of them are run again from the first x. */
static void run_layers_again(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_net_chunk *chunk, uint32_t last)
{
	struct mft_pass again = *pass;

	again.again = true;
	MFT_RANGE_BEGIN("layers again");
	layers_forward(net, &again, chunk,
		       last / net->chain->again_layers * net->chain->again_layers, last + 1,
		       MFT_UNIT_NONE);
	MFT_RANGE_END();
}

static bool ends_layers(const struct mft_net *net, const struct mft_net_chunk *chunk, uint32_t i)
{
	return i < net->chain->again_end &&
	       (i + 1 == net->chain->again_end || i + 1 == chunk->count ||
		(i + 1) % net->chain->again_layers == 0);
}

/* The unit that is visited after layer i. */
static int32_t before_layer(const struct mft_net *net, const struct mft_net_chunk *chunk,
			    uint32_t i)
{
	if (!i)
		return MFT_UNIT_NONE;
	if (ends_layers(net, chunk, i - 1))
		i = (i - 1) / net->chain->again_layers * net->chain->again_layers + 1;
	return mft_layer_unit(&chunk->layers[i - 1]);
}

static void layers_backward(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_net_chunk *chunk)
{
	for (uint32_t i = chunk->count; i-- > 0;) {
		const struct mft_layer *l = &chunk->layers[i];
		const struct mft_net_visit v = {.unit = mft_layer_unit(l),
						.next = before_layer(net, chunk, i),
						.reads = true,
						.writes = true};

		if (ends_layers(net, chunk, i))
			run_layers_again(net, pass, chunk, i);
		MFT_RANGE_BEGIN("layer %u", l->attention.part.layer);
		mft_visit_begins(net, pass, v);
		if (i >= net->chain->again_end)
			mft_make_again(net, pass, &l->mlp);
		mft_sublayer_backward(net, pass, &l->mlp);
		if (i >= net->chain->again_end)
			mft_make_again(net, pass, &l->attention);
		mft_sublayer_backward(net, pass, &l->attention);
		mft_visit_ends(net, pass, v);
		MFT_RANGE_END();
	}
}

static void head_backward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_head_loss loss = mft_head_loss(net, pass);

	MFT_RANGE_BEGIN("head");
	mft_head_begins(net, pass, true);
	mft_mtp_forward(net, pass);
	if (net->chain->mtp.count)
		mft_eight_end_forward(net, pass);
	mft_mtp_backward(net, pass);
	mft_head_backward(net, pass, &loss, mft_pass_at(net, net->chain->head.in.normed));
	if (net->chain->mtp.count)
		mft_mtp_add_dhidden(net, pass);
	mft_join_backward(net, pass, &net->chain->head.in, mft_branch_now(net), NULL);
	mft_head_ends(net, pass, true);
	MFT_RANGE_END();
}

static void embed_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_net_chunk *chunk)
{
	const struct mft_net_visit v = {.unit = MFT_UNIT_EMBEDDING,
					.next = MFT_UNIT_NONE,
					.writes = true,
					.again = (net->args->tied || net->chain->mtp.count) &&
						 chunk->ends};

	MFT_RANGE_BEGIN("embedding");
	mft_visit_begins(net, pass, v);
	mft_embed_backward(net, pass, 0);
	mft_visit_ends(net, pass, v);
	MFT_RANGE_END();
}

static void chunk_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_net_chunk *chunk)
{
	if (chunk->ends)
		head_backward(net, pass);
	layers_backward(net, pass, chunk);
	if (chunk->embeds)
		embed_backward(net, pass, chunk);
	mft_eight_end_backward(net, pass);
}

/* ---- all of it ---- */

int mft_net_take(struct mft_net *net, struct mfk_ctx *ctx, uint32_t place,
		 const struct mft_microbatch_info *info, struct mfs_error *err)
{
	struct mft_taken *taken = &net->chain->taken[place];
	int rc;

	taken->info = *info;
	taken->pass = (struct mft_pass){.ctx = ctx, .info = &taken->info, .train = info->backward};
	rc = mft_batch_copy(net, &taken->pass, place, err);
	taken->info.batch = NULL;
	return rc;
}

void mft_net_step(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_pipeline_step *step)
{
	static const char *const words[] = {[MFT_PIPELINE_FORWARD] = "forward",
					    [MFT_PIPELINE_BACKWARD] = "backward",
					    [MFT_PIPELINE_EXCHANGE] = "exchange"};
	const struct mft_pass *pass = &net->chain->taken[step->batch].pass;
	const struct mft_net_chunk *chunk = &net->chain->chunks[step->chunk];

	MFS_TRACE(PASS, "%s of microbatch %llu, chunk %u, slot %u", words[step->kind],
		  (unsigned long long)step->microbatch, step->chunk, step->slot);
	MFT_RANGE_BEGIN("%s, microbatch %llu, chunk %u", words[step->kind],
			(unsigned long long)step->microbatch, step->chunk);
	net->slot = step->slot;
	net->chain->now.dx = step->grad;
	net->chain->now.output = step->output;
	mft_stages_await(net, ctx, step->after);
	switch (step->kind) {
	case MFT_PIPELINE_FORWARD:
		mft_chunk_forward(net, pass, chunk);
		if (chunk->ends && !pass->train)
			head_forward(net, pass);
		break;
	case MFT_PIPELINE_BACKWARD:
		chunk_backward(net, pass, chunk);
		break;
	case MFT_PIPELINE_EXCHANGE:
		mft_stages_exchange(net, ctx, step);
		break;
	}
	MFT_RANGE_END();
}

bool mft_net_gives_loss(const struct mft_net *net, const struct mft_pipeline_step *step)
{
	const bool train = net->chain->taken[step->batch].pass.train;

	return net->chain->chunks[step->chunk].ends &&
	       step->kind == (train ? MFT_PIPELINE_BACKWARD : MFT_PIPELINE_FORWARD);
}

int mft_net_run(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_microbatch_info *info,
		struct mfs_error *err)
{
	const int rc = mft_net_take(net, ctx, 0, info, err);

	if (rc)
		return rc;
	mft_net_step(net, ctx, &(struct mft_pipeline_step){.kind = MFT_PIPELINE_FORWARD});
	if (info->backward)
		mft_net_step(net, ctx, &(struct mft_pipeline_step){.kind = MFT_PIPELINE_BACKWARD});
	return 0;
}

int mft_net_logits(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_batch *batch,
		   float *ret, struct mfs_error *err)
{
	const struct mft_microbatch_info info = {.batch = batch};
	const struct mft_pass *pass = &net->chain->taken[0].pass;
	int rc = mft_net_take(net, ctx, 0, &info, err);

	if (rc)
		return rc;
	net->slot = net->chain->now.output = 0;
	mft_chunk_forward(net, pass, &net->chain->chunks[0]);
	mft_head_begins(net, pass, false);
	rc = mft_head_logits(net, pass,
			     mft_stream_gather(net, pass, MFT_GATHERED_X,
					       mft_pass_at(net, net->chain->head.in.normed)),
			     ret, err);
	mft_head_ends(net, pass, false);
	return rc;
}
