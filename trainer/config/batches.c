#include "trainer/config/batches.h"

#include "formats/base/bytes.h"

static uint64_t count_of(int64_t number)
{
	return number > 0 ? (uint64_t)number : 0;
}

/* Consumed samples at which the batch size changes next; UINT64_MAX: never. */
static uint64_t next_change(const struct mfs_train_config *c, uint64_t consumed)
{
	for (uint32_t i = 0; i < c->batch_step_count; i++)
		if (c->batch_steps[i].threshold > consumed)
			return c->batch_steps[i].threshold;
	return UINT64_MAX;
}

uint64_t mfs_schedule_batch(const struct mfs_train_config *config, uint64_t consumed)
{
	uint64_t batch = count_of(config->global_batch_size);

	for (uint32_t i = 0; i < config->batch_step_count; i++)
		if (!i || consumed >= config->batch_steps[i].threshold)
			batch = config->batch_steps[i].batch;
	return batch;
}

uint64_t mfs_schedule_iterations(const struct mfs_train_config *config)
{
	const uint64_t samples = count_of(config->train_samples);
	uint64_t iterations = 0, consumed = 0;

	if (config->train_iters > 0)
		return (uint64_t)config->train_iters;
	if (!config->batch_step_count)
		return config->global_batch_size > 0 ? samples / (uint64_t)config->global_batch_size
						     : 0;
	while (consumed < samples) {
		const uint64_t batch = mfs_schedule_batch(config, consumed);
		const uint64_t end = mfs_min_u64(samples, next_change(config, consumed));
		const uint64_t n = batch ? (end - consumed + batch - 1) / batch : 0;

		if (!n)
			break;
		iterations += n;
		consumed += n * batch;
	}
	return iterations;
}
