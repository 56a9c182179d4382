#include "formats/dataset/gpt/gpt_run.h"

#include <errno.h>

#include "formats/base/bytes.h"

/* blended_megatron_dataset_builder.py: _build_blended_dataset_splits. A blend of all splits is one
 * set, whatever the argument says. */
uint32_t mfs_run_sets(const struct mfs_run *run, enum mfs_split split)
{
	const bool apart = run->multiple_validation_sets && split == MFS_VALID && !run->blend;

	return apart && run->per_split[split] ? run->per_split[split]->count : 1;
}

void mfs_run_set(const struct mfs_run *run, enum mfs_split split, uint32_t set,
		 struct mfs_run_set *ret)
{
	const struct mfs_blend_args *all = run->per_split[split];

	*ret = (struct mfs_run_set){.run = *run};
	if (mfs_run_sets(run, split) == 1)
		return;
	ret->one = (struct mfs_blend_args){
		.count = 1,
		.prefixes = all->prefixes + set,
		.weights = all->weights ? all->weights + set : NULL,
	};
	ret->run.per_split[split] = &ret->one;
}

static int multiply(uint64_t a, uint64_t b, uint64_t *ret, struct mfs_error *err)
{
	if (!mfs_mul_overflows(a, b, ret) && *ret <= (uint64_t)1 << 53)
		return 0;
	return mfs_fail(err, -EINVAL, "%llu times %llu samples are too many", (unsigned long long)a,
			(unsigned long long)b);
}

int mfs_run_samples(const struct mfs_run_length *length, uint64_t ret[MFS_SPLITS],
		    struct mfs_error *err)
{
	const uint64_t batch = length->global_batch_size;
	const uint64_t eval_batch = length->eval_batch_size ? length->eval_batch_size : batch;
	uint64_t n[MFS_SPLITS], evaluations, before;
	int rc = 0;

	if (!batch)
		return mfs_fail(err, -EINVAL, "the global batch size is 0");
	if (!length->eval_interval && !length->full_validation)
		return mfs_fail(err, -EINVAL, "eval_interval is 0");
	n[MFS_TRAIN] = length->train_samples;
	if (!n[MFS_TRAIN])
		rc = multiply(length->train_iters, batch, &n[MFS_TRAIN], err);
	if (!rc)
		rc = multiply(length->eval_iters, eval_batch, &n[MFS_TEST], err);
	n[MFS_VALID] = MFS_GPT_ONE_EPOCH;
	if (!rc && !length->full_validation) {
		evaluations = length->train_iters / length->eval_interval + 1;
		before = length->start_eval_at_iter / length->eval_interval;
		rc = multiply(before < evaluations ? evaluations - before : 0, n[MFS_TEST],
			      &n[MFS_VALID], err);
	}
	for (int i = 0; i < MFS_SPLITS && !rc; i++)
		ret[i] = n[i];
	return rc;
}
