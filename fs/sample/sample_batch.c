/* Which samples a step draws. */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "fs/sample/sample.h"

/* Microbatch m of the step, of one rank. */
static int draw_one(const struct mfs_sample_plan *plan, struct mfs_sampler *s, uint64_t m,
		    uint32_t rank, struct mfs_sample_drawn *ret, struct mfs_error *err)
{
	const uint32_t count = plan->sampler.micro_batch;
	uint64_t *samples = calloc(count, sizeof(*samples));
	int rc;

	if (!samples)
		return mfs_fail_nomem(err);
	rc = mfs_sampler_draw(s, plan->microbatch + m, rank, samples, err);
	for (uint32_t i = 0; i < count && !rc; i++)
		ret[i] = (struct mfs_sample_drawn){samples[i], m, rank};
	free(samples);
	return rc;
}

static int draw_all(const struct mfs_sample_plan *plan, struct mfs_sampler *s,
		    struct mfs_sample_drawn *ret, struct mfs_error *err)
{
	const uint32_t ranks = plan->sampler.ranks, size = plan->sampler.micro_batch;
	const uint64_t microbatches = plan->batch / size / ranks;
	const bool all = plan->rank == MFS_ABSENT_U64;
	int rc = 0;

	for (uint64_t m = 0; m < microbatches && !rc; m++)
		for (uint32_t r = all ? 0 : (uint32_t)plan->rank;
		     !rc && r < (all ? ranks : (uint32_t)plan->rank + 1); r++, ret += size)
			rc = draw_one(plan, s, m, r, ret, err);
	return rc;
}

int mfs_sample_draw(const struct mfs_sample_plan *plan, const struct mfs_samples *samples,
		    struct mfs_sample_drawn **ret, uint64_t *ret_count, struct mfs_error *err)
{
	const uint64_t count =
		plan->rank == MFS_ABSENT_U64 ? plan->batch : plan->batch / plan->sampler.ranks;
	struct mfs_sampler_config config = plan->sampler;
	struct mfs_sample_drawn *drawn;
	struct mfs_sampler *s;
	int rc;

	config.total = mfs_samples_count(samples);
	rc = mfs_sampler_new(&config, &s, err);
	if (rc)
		return rc;
	drawn = calloc(count, sizeof(*drawn));
	rc = drawn ? draw_all(plan, s, drawn, err) : mfs_fail_nomem(err);
	mfs_sampler_free(s);
	if (rc) {
		free(drawn);
		return rc;
	}
	*ret = drawn;
	*ret_count = count;
	return 0;
}
