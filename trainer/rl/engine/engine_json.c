/* What answers of engines have in common. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/rl/engine/engine_i.h"

int mft_engine_room(struct mft_response *ret, size_t count, struct mfs_error *err)
{
	if (count > UINT32_MAX)
		return mfs_fail(err, -EPROTO, "%zu tokens are too many", count);
	ret->tokens = calloc(count, sizeof(*ret->tokens));
	ret->log_probs = calloc(count, sizeof(*ret->log_probs));
	ret->count = (uint32_t)count;
	return ret->tokens && ret->log_probs ? 0 : mfs_fail_nomem(err);
}

json_t *mft_engine_ids(const uint32_t *ids, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

int mft_engine_token(const json_t *id, const json_t *log_prob, uint32_t *ret_id,
		     float *ret_log_prob, struct mfs_error *err)
{
	const json_int_t value = json_integer_value(id);
	const double p = json_number_value(log_prob);

	if (!json_is_integer(id) || value < 0 || value > UINT32_MAX)
		return mfs_fail(err, -EPROTO, "expected token ids");
	/* fp32 of a certain token may be a little above 0. */
	if (!json_is_number(log_prob) || !isfinite(p) || p > 1e-3)
		return mfs_fail(err, -EPROTO,
				"token %lld: expected a log-prob, a number that is not above 0",
				(long long)value);
	*ret_id = (uint32_t)value;
	*ret_log_prob = (float)p;
	return 0;
}

int mft_engine_finish(const json_t *reason, enum mft_finish *ret, struct mfs_error *err)
{
	const char *word = json_string_value(reason);

	for (int f = MFT_FINISH_STOP; f <= MFT_FINISH_ABORT; f++)
		if (word && !strcmp(word, mft_finish_name((enum mft_finish)f))) {
			*ret = (enum mft_finish)f;
			return 0;
		}
	return mfs_fail(err, -EPROTO, "finish_reason: expected stop, length or abort, found %.40s",
			word ? word : "none");
}

uint64_t mft_engine_version(const json_t *text)
{
	const char *word = json_string_value(text);

	return word ? strtoull(word, NULL, 10) : 0;
}
