/* What programs and servers are asked, and what they answer. */
#include <errno.h>
#include <stdlib.h>

#include "trainer/rl/reward/reward_i.h"

static void add_json(struct mfs_buf *to, const char *name, const json_t *value)
{
	char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

	mfs_buf_printf(to, "\"%s\": ", name);
	mfs_buf_adds(to, text ? text : "null");
	mfs_buf_adds(to, ", ");
	to->failed |= value && !text;
	free(text);
}

static void add_text(struct mfs_buf *to, const char *name, const char *text, size_t len)
{
	if (!text)
		return;
	mfs_buf_printf(to, "\"%s\": ", name);
	mfs_buf_add_json_bytes(to, text, len);
	mfs_buf_adds(to, ", ");
}

static void add_ids(struct mfs_buf *to, const char *name, const uint32_t *ids, uint32_t count)
{
	mfs_buf_printf(to, "\"%s\": [", name);
	for (uint32_t i = 0; i < count; i++)
		mfs_buf_printf(to, i ? ", %u" : "%u", ids[i]);
	mfs_buf_adds(to, "], ");
}

void mft_reward_add_row(struct mfs_buf *to, const struct mft_reward_row *row)
{
	mfs_buf_adds(to, "{");
	add_text(to, "prompt", row->prompt, row->prompt_len);
	add_text(to, "response", row->response, row->response_len);
	add_json(to, "label", row->label);
	add_json(to, "metadata", row->row);
	add_ids(to, "prompt_ids", row->prompt_ids, row->prompt_count);
	add_ids(to, "response_ids", row->response_ids, row->response_count);
	mfs_buf_printf(to, "\"finish_reason\": \"%s\"}", mft_finish_name(row->finish));
}

int mft_reward_add_answer(const json_t *answer, const char *key, double *ret, struct mfs_error *err)
{
	const json_t *number = answer;

	if (json_is_object(answer)) {
		number = json_object_get(answer, key ? key : "reward");
		if (!number && !key)
			number = json_object_get(answer, "score");
	}
	if (!json_is_number(number))
		return mfs_fail(err, -EPROTO, "expected a number, or an object whose '%s' is one",
				key ? key : "reward' or 'score");
	*ret += json_number_value(number);
	return 0;
}
