/* How many epochs and samples a GPTDataset has. Products are checked in 128 bits. */
#include <errno.h>
#include <math.h>

#include "formats/dataset/gpt/gpt_dataset.h"

typedef unsigned __int128 wide;

/* The smallest E >= 1 with E T >= n S + x (gpt_dataset.py: _get_num_epochs). */
static wide epochs_for(uint64_t tokens, const struct mfs_gpt_config *c, unsigned extra)
{
	wide wanted, epochs;

	if (c->samples == MFS_GPT_ONE_EPOCH)
		return 1;
	wanted = (wide)c->samples * c->seq_length + extra;
	epochs = (wanted + tokens - 1) / tokens;
	return epochs ? epochs : 1;
}

/* helpers.cpp: build_sample_idx. It counts the last partial sample in 32-bit floats, which is
 * wrong by some samples in either direction for large datasets. The same is done here. */
static uint64_t samples_in(uint64_t tokens, const struct mfs_gpt_config *c, unsigned extra)
{
	const int64_t starts = (int64_t)tokens - (int64_t)extra;

	if (!c->keep_last_partial)
		return (uint64_t)starts / c->seq_length;
	return (uint64_t)ceilf((float)starts / (float)c->seq_length);
}

static int separate_last(uint64_t tokens, const struct mfs_gpt_config *c, unsigned extra,
			 struct mfs_gpt_sizes *s, struct mfs_error *err)
{
	const uint64_t before = ((s->epochs - 1) * tokens - extra) / c->seq_length;
	const uint64_t per_epoch = (tokens - extra) / c->seq_length;
	const uint64_t last = c->samples - before;

	if (before > c->samples || last > per_epoch + 1)
		return mfs_fail(
			err, -EINVAL,
			"Megatron refuses %llu samples of a split with %llu tokens: the last "
			"epoch would give %lld of its %llu samples",
			(unsigned long long)c->samples, (unsigned long long)tokens, (long long)last,
			(unsigned long long)per_epoch);
	s->separate = last < (uint64_t)(0.80 * (double)per_epoch);
	if (s->separate)
		s->samples_before = before;
	return 0;
}

int mfs_gpt_sizes(uint64_t tokens, const struct mfs_gpt_config *config, struct mfs_gpt_sizes *ret,
		  struct mfs_error *err)
{
	const unsigned extra = config->no_extra_token ? 0 : 1;
	struct mfs_gpt_sizes s = {0};
	wide epochs;

	if (!config->seq_length || config->seq_length >= INT32_MAX)
		return mfs_fail(err, -EINVAL, "a sequence length of %u is impossible",
				config->seq_length);
	if (!tokens)
		return mfs_fail(err, -ENODATA, "no sequence of the split has a token");
	epochs = epochs_for(tokens, config, extra);
	if (epochs * tokens > INT64_MAX || epochs > INT32_MAX)
		return mfs_fail(err, -EINVAL,
				"%llu samples of %u tokens need too many epochs of %llu tokens",
				(unsigned long long)config->samples, config->seq_length,
				(unsigned long long)tokens);
	s.epochs = (uint64_t)epochs;
	s.tokens = s.epochs * tokens;
	s.samples = s.samples_before = samples_in(s.tokens, config, extra);
	if (s.epochs > 1 && config->separate_last_epoch) {
		int rc = separate_last(tokens, config, extra, &s, err);

		if (rc)
			return rc;
	}
	/* A run that does not validate asks for no sample and gets a dataset without any. */
	if ((!s.samples && config->samples) || s.samples_before > s.samples)
		return mfs_fail(err, -ENODATA, "%llu tokens are too few for a sample of %u+%u",
				(unsigned long long)tokens, config->seq_length, extra);
	*ret = s;
	return 0;
}
