/* Input: a row of training data with ids, as JSON. What is accepted is documents with tokens. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "formats/sft/conversation.h"

struct seen {
	size_t documents, tokens;
};

static int take(void *arg, const struct mfs_turns *turns, struct mfs_error *err)
{
	struct seen *seen = arg;

	(void)err;
	for (size_t i = 0; i < turns->count; i++)
		fuzz_require(turns->ids[i] <= INT32_MAX && turns->counts[i] <= 1);
	seen->documents++;
	seen->tokens += turns->count;
	return 0;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct seen seen = {0, 0};
	const struct mfs_talk_hooks hooks = {&seen, take};
	json_t *row = json_loadb((const char *)bytes, len, 0, NULL);
	struct mfs_talk *t;
	int rc;

	if (!row)
		return mfs_fail(err, -EINVAL, "no JSON");
	rc = mfs_talk_open(NULL, "default", false, 0, &t, err);
	fuzz_require(!rc);
	rc = mfs_talk_row(t, row, &hooks, err);
	if (!rc && mfs_row_is_packed(row))
		fuzz_require(seen.documents &&
			     seen.tokens == json_array_size(json_object_get(row, "input_ids")));
	mfs_talk_free(t);
	json_decref(row);
	return rc;
}

FUZZ_TARGET
