#include "trainer/loop/trainer_i.h"

/* Validation counts its own samples, which checkpoints keep (training.py: evaluate). */
int mft_trainer_evaluate(struct mft_trainer *t, enum mfs_split split, uint32_t set,
			 double *ret_loss, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const uint64_t batch = (uint64_t)c->eval_global_batch_size;
	const bool full = split == MFS_VALID && c->full_validation;
	/* All of the split, and a batch at a time all the same. */
	const uint64_t each = mft_trainer_microbatches(t, batch);
	struct mft_loader *data = t->data[split].list[set];
	struct mft_microbatches m = {.from = mft_loader_source(data)};
	uint64_t left = full ? mft_loader_microbatches(data) : each * (uint64_t)c->eval_iters;
	struct mft_net_losses losses;
	double counted = 0;
	int rc = 0;

	mft_net_clear_losses(t->net, t->ctx);
	for (; left && !rc; left -= m.count) {
		m.count = left < each ? left : each;
		rc = mft_trainer_run(t, &m, &counted, err);
	}
	if (rc)
		return rc;
	/* All of a split, or of its sets, begins anew each time: that is one batch, so that a run
	 * which goes on without --full-validation finds samples. */
	if (split == MFS_VALID && !set)
		t->progress.consumed_valid_samples += batch * (full ? 1 : (uint64_t)c->eval_iters);
	rc = mft_trainer_losses(t, &losses, err);
	if (!rc)
		rc = mft_parallel_sum(&t->parallel, MFT_GROUP_DATA, &counted, 1, err);
	if (rc)
		return rc;
	mft_trainer_batches_done(t);
	*ret_loss = losses.loss[0] / (counted ? counted : 1);
	return 0;
}
