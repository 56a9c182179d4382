#include "trainer/loop/trainer_i.h"

/* Validation counts its own samples, which checkpoints keep (training.py: evaluate). */
int mfs_trainer_evaluate(struct mfs_trainer *t, enum mfs_split split, double *ret_loss,
			 struct mfs_error *err)
{
	const struct mfs_train_config *c = t->config;
	const uint64_t batch = (uint64_t)c->eval_global_batch_size;
	const bool full = split == MFS_VALID && c->full_validation;
	/* All of the split, in one go. */
	const uint64_t microbatches =
		full ? mfs_loader_microbatches(t->data[split]) : mfs_trainer_microbatches(t, batch);
	struct mfs_net_losses losses;
	double counted = 0;
	int rc = 0;

	mfs_net_clear_losses(t->net, t->ctx);
	for (int64_t i = 0; i < (full ? 1 : c->eval_iters); i++) {
		for (uint64_t j = 0; j < microbatches; j++) {
			const struct mfs_microbatch m = {.split = split, .number = j};
			uint64_t tokens;

			rc = mfs_trainer_microbatch(t, &m, &tokens, err);
			if (rc)
				return rc;
			counted += (double)tokens;
		}
		if (split == MFS_VALID)
			t->progress.consumed_valid_samples += batch;
	}
	rc = mfs_trainer_losses(t, &losses, err);
	if (!rc)
		rc = mfs_parallel_sum(&t->parallel, MFS_GROUP_DATA, &counted, 1, err);
	if (rc)
		return rc;
	mfs_trainer_batches_done(t);
	*ret_loss = losses.lm_loss_sum / (counted ? counted : 1);
	return 0;
}
