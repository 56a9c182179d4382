/*
 * A net that generates: a forward pass of tokens that go on with sequences, and draws of the tokens
 * that follow. It has the parameters of the net that trains, and plans of its own. Everything but
 * attention's core takes the tokens of a step one by one (core_cached.c), so what a token gets does
 * not depend on which others are there.
 *
 * Columns of logits that tensor parallel processes divide are gathered, and all draw the same.
 */
#include "formats/base/bytes.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/model/attention/attention.h"
#include "trainer/model/net_i.h"

/* ---- what the host says of a step ---- */

/* Bytes before each array of so many tokens, from the first on; the last one ends the block. */
enum { SEED = 0, NUMBER = 8, SEQUENCE = 16, ROW = 20, TOKEN = 24, LOG_PROB = 28, END = 32 };

size_t mft_cached_step_bytes(int64_t tokens)
{
	return mfs_round_up(END * (size_t)tokens, MFT_MEMORY_ALIGN);
}

void mft_cached_step_place(struct mft_cached_step *s, int64_t tokens, void *block)
{
	char *at = block;

	*s = (struct mft_cached_step){
		.seed = (uint64_t *)(void *)(at + SEED * tokens),
		.number = (uint64_t *)(void *)(at + NUMBER * tokens),
		.sequence = (int32_t *)(void *)(at + SEQUENCE * tokens),
		.row = (int32_t *)(void *)(at + ROW * tokens),
		.token = (int32_t *)(void *)(at + TOKEN * tokens),
		.log_prob = (float *)(void *)(at + LOG_PROB * tokens),
	};
}

void mft_cached_plan(struct mft_net *net)
{
	const uint64_t logits = mft_matrix_bytes(net->io, net->tokens, net->chain->head.linear.ld);

	if (!net->cache.sequences)
		return;
	net->cache.step =
		mft_memory_add(net->memory, MFT_MEMORY_BATCH, mft_cached_step_bytes(net->tokens));
	if (mft_is_divided(net))
		net->cache.logits = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH,
						   logits * net->parallel->size.tp);
}

/* The same block on the device. */
static struct mft_cached_step on_device(const struct mft_net *net)
{
	struct mft_cached_step s;

	mft_cached_step_place(&s, net->tokens, mft_net_at(net, net->cache.step));
	return s;
}

/* ---- a step ---- */

int mft_net_extend(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_batch *batch,
		   const struct mft_cached_step *step, struct mfs_error *err)
{
	const struct mft_microbatch_info info = {.batch = batch};
	const struct mft_cached_step here = on_device(net);
	const int rc = mft_net_take(net, ctx, 0, &info, err);

	if (rc)
		return rc;
	net->backend->device->copy_in(ctx, here.seed, step->seed,
				      (size_t)(TOKEN * net->tokens)); /* results are not */
	net->cache.sequence = here.sequence;
	mft_rope_turn_by(net, &net->chain->taken[0].pass);
	net->slot = net->chain->now.output = 0;
	MFT_RANGE_BEGIN("tokens");
	mft_chunk_forward(net, &net->chain->taken[0].pass, &net->chain->chunks[0]);
	MFT_RANGE_END();
	return 0;
}

void mft_net_draw(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_draw *how,
		  const struct mft_cached_step *step)
{
	const struct mft_pass *pass = &net->chain->taken[0].pass;
	const struct mft_head *h = &net->chain->head;
	const struct mft_cached_step here = on_device(net);
	struct mfk_sample draw = {
		.dtype = net->io,
		.count = step->draws,
		.rows = net->tokens,
		.vocab = how->vocab,
		.parts = net->parallel->size.tp,
		.cols = net->chain->vocab,
		.ld = h->linear.ld,
		.temperature = how->temperature,
		.top_p = how->top_p,
		.top_k = how->top_k,
		.row = here.row,
		.seed = here.seed,
		.number = here.number,
		.token = here.token,
		.log_prob = here.log_prob,
	};

	mft_head_begins(net, pass, false);
	draw.logits = mft_head_all_logits(net, pass);
	mft_head_ends(net, pass, false);
	if (mft_is_divided(net)) {
		void *all = mft_net_at(net, net->cache.logits);

		mft_tensor_gather(net, ctx, net->io, all, draw.logits,
				  (uint64_t)(net->tokens * h->linear.ld));
		draw.logits = all;
	}
	net->backend->ops->sample(ctx, &draw);
	net->backend->device->copy_out(ctx, step->token, here.token,
				       (size_t)step->draws * sizeof(*step->token));
	net->backend->device->copy_out(ctx, step->log_prob, here.log_prob,
				       (size_t)step->draws * sizeof(*step->log_prob));
}
