#include "trainer/generate/response.h"

#include <errno.h>
#include <stdlib.h>

void mft_response_release(struct mft_response *r)
{
	free(r->tokens);
	free(r->log_probs);
	*r = (struct mft_response){0};
}

bool mft_sampling_stops(const struct mft_sampling *how, uint32_t token)
{
	if (how->ignore_stops)
		return false;
	for (size_t i = 0; i < how->stop_count; i++)
		if (how->stops[i] == token)
			return true;
	return false;
}

const char *mft_finish_name(enum mft_finish finish)
{
	static const char *const names[] = {[MFT_FINISH_STOP] = "stop",
					    [MFT_FINISH_LENGTH] = "length",
					    [MFT_FINISH_ABORT] = "abort"};

	return names[finish];
}

/* What is not a number is in no range. */
int mft_sampling_check(const struct mft_sampling *how, struct mfs_error *err)
{
	if (!(how->temperature >= 0 && how->temperature <= 1e6))
		return mfs_fail(err, -EINVAL, "temperature: expected 0 to 1e6, found %g",
				how->temperature);
	if (!(how->top_p > 0 && how->top_p <= 1))
		return mfs_fail(err, -EINVAL, "top-p: expected more than 0 and at most 1, found %g",
				how->top_p);
	if (how->top_k < 0)
		return mfs_fail(err, -EINVAL, "top-k: expected at least 0, found %lld",
				(long long)how->top_k);
	if (!how->max_tokens)
		return mfs_fail(err, -EINVAL, "tokens of a response: expected at least 1, found 0");
	return 0;
}
