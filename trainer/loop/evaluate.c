#include "trainer/loop/trainer_i.h"

/* Validation counts its own samples, which checkpoints keep (training.py: evaluate). */
int mfs_trainer_evaluate(struct mfs_trainer *t, enum mfs_split split, double *ret_loss,
			 struct mfs_error *err)
{
	const struct mfs_train_config *c = t->config;
	const uint64_t batch = (uint64_t)c->eval_global_batch_size;
	const bool full = split == MFS_VALID && c->full_validation;
	/* All of the split, and a batch at a time all the same. */
	const uint64_t each = mfs_trainer_microbatches(t, batch);
	uint64_t left =
		full ? mfs_loader_microbatches(t->data[split]) : each * (uint64_t)c->eval_iters;
	struct mfs_net_losses losses;
	struct mfs_microbatches m = {.split = split};
	double counted = 0;
	int rc = 0;

	mfs_net_clear_losses(t->net, t->ctx);
	for (; left && !rc; left -= m.count) {
		m.count = left < each ? left : each;
		rc = mfs_trainer_run(t, &m, &counted, err);
	}
	if (rc)
		return rc;
	if (split == MFS_VALID)
		t->progress.consumed_valid_samples += batch * (full ? 1 : (uint64_t)c->eval_iters);
	rc = mfs_trainer_losses(t, &losses, err);
	if (!rc)
		rc = mfs_parallel_sum(&t->parallel, MFS_GROUP_DATA, &counted, 1, err);
	if (rc)
		return rc;
	mfs_trainer_batches_done(t);
	*ret_loss = losses.lm_loss_sum / (counted ? counted : 1);
	return 0;
}
