#include "trainer/config/batch_schedule.h"

#include "formats/base/bytes.h"

static uint64_t count_of(int64_t number)
{
	return number > 0 ? (uint64_t)number : 0;
}

/* Consumed samples at which the batch size changes next; UINT64_MAX: never. */
static uint64_t next_change(const struct mft_train_config *c, uint64_t consumed)
{
	for (uint32_t i = 0; i < c->batch_step_count; i++)
		if (c->batch_steps[i].threshold > consumed)
			return c->batch_steps[i].threshold;
	return UINT64_MAX;
}

uint64_t mft_schedule_global_batch(const struct mft_train_config *config, uint64_t consumed)
{
	uint64_t batch = count_of(config->global_batch_size);

	for (uint32_t i = 0; i < config->batch_step_count; i++) {
		if (i && consumed < config->batch_steps[i].threshold)
			break;
		batch = config->batch_steps[i].batch;
	}
	return batch;
}

uint64_t mft_schedule_batch(const struct mft_train_config *config, uint64_t consumed)
{
	const uint64_t batch = mft_schedule_global_batch(config, consumed);
	const uint64_t processes = count_of(config->data_parallel_size);
	const uint64_t least = count_of(config->micro_batch_size) * (processes ? processes : 1);

	return config->decrease_batch_size_if_needed && least ? batch / least * least : batch;
}

/* Iterations from *consumed on, which goes up to or beyond `until`. */
static uint64_t iterate(const struct mft_train_config *c, uint64_t until, uint64_t *consumed)
{
	uint64_t iterations = 0;

	while (*consumed < until) {
		const uint64_t batch = mft_schedule_global_batch(c, *consumed);
		const uint64_t end = mfs_min_u64(until, next_change(c, *consumed));
		const uint64_t n = batch ? (end - *consumed + batch - 1) / batch : 0;

		if (!n)
			break;
		iterations += n;
		*consumed += n * batch;
	}
	return iterations;
}

uint64_t mft_schedule_iterations(const struct mft_train_config *config)
{
	const uint64_t samples = count_of(config->train_samples);
	const uint64_t batch = count_of(config->global_batch_size);
	uint64_t iterations, consumed = 0;

	if (config->train_iters > 0)
		return (uint64_t)config->train_iters;
	if (!batch)
		return 0;
	if (config->batch_step_count && !config->rampup_samples)
		return iterate(config, samples, &consumed);
	if (!config->batch_step_count)
		return samples / batch;
	iterations = iterate(config, mfs_min_u64(samples, config->rampup_samples) + 1, &consumed);
	return iterations + (samples > consumed ? (samples - consumed) / batch : 0);
}

bool mft_schedule_skips(const struct mft_train_config *config, uint64_t iteration)
{
	for (size_t i = 0; i < config->skip_count; i++)
		if (config->iterations_to_skip[i] >= 0 &&
		    (uint64_t)config->iterations_to_skip[i] == iteration)
			return true;
	return false;
}
