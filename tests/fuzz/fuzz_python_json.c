/* Input: a description of an index, which fs/data/cache_tokenizer.c reads and writes again. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "formats/dataset/index/python_json.h"

/* What was written reads back as the same value, and is written the same again. */
static void check(json_t *value, const char *text, size_t len)
{
	json_t *read = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	struct mfs_error err;
	size_t again_len;
	char *again;

	fuzz_require(read && json_equal(value, read));
	fuzz_require(!mfs_python_json(read, &again, &again_len, &err));
	fuzz_require(again_len == len && !memcmp(again, text, len));
	free(again);
	json_decref(read);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	json_error_t why;
	json_t *value = json_loadb((const char *)bytes, len, JSON_REJECT_DUPLICATES, &why);
	size_t text_len;
	char *text;
	int rc;

	if (!value)
		return mfs_fail(err, -EINVAL, "%s", why.text);
	rc = mfs_python_json(value, &text, &text_len, err);
	if (!rc) {
		check(value, text, text_len);
		if (text_len != len || memcmp(text, bytes, len))
			rc = mfs_fail(err, -EINVAL, "Python writes it otherwise");
		free(text);
	}
	json_decref(value);
	return rc;
}

FUZZ_TARGET
