/* Input: a file of mcorefs sum. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/sums/sums.h"

/* A file has one form: printed again it is the same. */
static void check(const struct mfs_sums *sums, const uint8_t *bytes, size_t len)
{
	char *text = NULL;
	size_t text_len = 0;
	FILE *to = open_memstream(&text, &text_len);

	fuzz_require(to);
	mfs_sums_print_begin(to);
	for (uint32_t i = 0; i < sums->count; i++) {
		mfs_sums_print(to, &sums->list[i]);
		fuzz_require(mfs_sums_find(sums, sums->list[i].name) == &sums->list[i]);
	}
	mfs_sums_print_end(to, sums->count);
	fclose(to);
	fuzz_require(text_len == len && !memcmp(text, bytes, len));
	free(text);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_sums sums;
	int rc = mfs_sums_parse((const char *)bytes, len, "sums", &sums, err);

	if (rc)
		return rc;
	check(&sums, bytes, len);
	mfs_sums_release(&sums);
	return 0;
}

FUZZ_TARGET
