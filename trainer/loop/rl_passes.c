/* Log-probs of a rollout's responses: forward passes, as many at a time as a step has. */
#include <errno.h>

#include "trainer/loop/rl_i.h"

int mft_rl_pack(struct mft_trainer *t, uint32_t count, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	struct mft_rl *rl = t->rl;
	const struct mft_rollout *r = &rl->rollout;
	const struct mft_bins_rules rules = {
		.room = (uint32_t)c->seq_length,
		.most = c->rl_use_sequence_packing
				? (uint32_t)c->rl_sequence_packing_max_sequences_per_bin
				: 1,
		.multiple = (uint32_t)c->micro_batch_size * t->parallel.group[MFT_GROUP_DATA].size,
	};
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t response = rl->list[i];

		rl->places[i] = mft_feed_places(
			mft_prompts_draw(rl->prompts, r->drawn[response / r->group]),
			r->count[response]);
	}
	mft_bins_release(&rl->bins);
	rc = mft_bins_pack(&rules, rl->list, rl->places, count, &rl->bins, err);
	if (!rc)
		mft_feed_begin(rl->feed, &(struct mft_feed_of){.rollout = r,
							       .prompts = rl->prompts,
							       .bins = &rl->bins,
							       .weight = rl->weight});
	return rc;
}

/* A forward pass over what has been packed. */
static int run(struct mft_trainer *t, float *pinned, struct mfs_error *err)
{
	const struct mft_microbatches m = {
		.from = mft_feed_source(t->rl->feed),
		.count = mft_feed_microbatches(t->rl->feed),
		.log_probs = pinned,
	};
	char why[MFK_WHY];
	double counted = 0;
	int rc;

	mft_net_clear_losses(t->net, t->ctx);
	rc = mft_trainer_run(t, &m, &counted, err);
	if (rc)
		return rc;
	rc = t->backend->device->sync(t->ctx, why);
	if (rc)
		return mfs_fail(err, rc, "%s: %s", t->backend->name, why);
	mft_trainer_batches_done(t);
	return 0;
}

/* Of those that have the same tokens, one process says what their log-probs are. */
static bool speaks_for_tokens(const struct mft_parallel *p)
{
	return p->place.tp == 0 && mft_is_last_stage(p);
}

static int take_some(struct mft_trainer *t, uint32_t count, float *pinned, float *rows,
		     struct mfs_error *err)
{
	const uint64_t tokens = mft_trainer_tokens(t);
	int rc = mft_rl_pack(t, count, err);

	if (!rc)
		rc = run(t, pinned, err);
	if (rc || !speaks_for_tokens(&t->parallel))
		return rc;
	for (uint64_t m = 0; m < mft_feed_microbatches(t->rl->feed); m++)
		mft_feed_scatter(t->rl->feed, m, pinned + m * tokens, rows);
	return 0;
}

/* Responses from `first` on that train, at most as many as a step has: they are listed. */
static uint32_t list_some(struct mft_rl *rl, uint32_t *first, uint32_t most)
{
	uint32_t count = 0;

	for (; *first < mft_rollout_size(&rl->rollout) && count < most; ++*first)
		if (rl->trains[*first])
			rl->list[count++] = *first;
	return count;
}

int mft_rl_log_probs(struct mft_trainer *t, float *rows, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const uint32_t most = (uint32_t)c->global_batch_size;
	const uint64_t each = mft_trainer_microbatches(t, most);
	const size_t bytes = each * mft_trainer_tokens(t) * sizeof(float);
	float *pinned = t->backend->device->host_alloc(t->device, bytes);
	uint32_t first = 0, count;
	int rc = pinned ? 0 : mfs_fail_nomem(err);

	while (!rc && (count = list_some(t->rl, &first, most)) > 0)
		rc = take_some(t, count, pinned, rows, err);
	if (pinned)
		t->backend->device->host_free(t->device, pinned, bytes);
	return rc ? rc : mft_rollout_share_rows(&t->rl->rollout, &t->parallel, rows, err);
}
