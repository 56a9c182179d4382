/*
 * Lines of stdin: "PATH SPLIT COLUMN EOD", with - for what is not given. Each gives one line: "ok
 * DTYPE [[1,2],[3]]", all of its rows, or "open ERRNO SENTENCE", or "read ERRNO SENTENCE".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/rows/hf_dataset.h"
#include "formats/io/guard.h"

#define MANY 100000 /* tokens that are printed */

static const char *given(const char *word)
{
	return strcmp(word, "-") ? word : NULL;
}

static int read_all(const struct mfs_rows *r, uint64_t **ret_starts, int64_t **ret_tokens,
		    struct mfs_error *err)
{
	int rc;

	if (r->rows > MANY || r->tokens > MANY) {
		err->code = -E2BIG;
		return -E2BIG;
	}
	*ret_starts = malloc((r->rows + 1) * sizeof(**ret_starts));
	*ret_tokens = malloc((r->tokens + 1) * sizeof(**ret_tokens));
	if (!*ret_starts || !*ret_tokens)
		exit(EXIT_FAILURE);
	rc = mfs_rows_starts(r, 0, r->rows + 1, *ret_starts, err);
	return rc ? rc : mfs_rows_read_int64(r, 0, r->tokens, *ret_tokens, err);
}

static void print(const struct mfs_rows *r, const uint64_t *starts, const int64_t *tokens)
{
	printf("ok %s [", mfs_dtype_torch(r->dtype));
	for (uint64_t i = 0; i < r->rows; i++) {
		printf("%s[", i ? "," : "");
		for (uint64_t t = starts[i]; t < starts[i + 1]; t++)
			printf("%s%lld", t > starts[i] ? "," : "", (long long)tokens[t]);
		printf("]");
	}
	puts("]");
}

static void answer(const char *path, const char *split, const char *column, const char *eod)
{
	const struct mfs_hf_dataset_options opt = {
		.column = given(column), .has_eod = given(eod), .eod = atoll(eod)};
	struct mfs_error err = {0};
	uint64_t *starts = NULL;
	int64_t *tokens = NULL;
	struct mfs_rows *r;
	int rc = mfs_hf_dataset_open(path, given(split), &opt, &r, &err);

	if (rc) {
		printf("open %d %s\n", -rc, err.msg);
		return;
	}
	rc = read_all(r, &starts, &tokens, &err);
	if (rc)
		printf("read %d %s\n", -rc, err.msg);
	else
		print(r, starts, tokens);
	free(starts);
	free(tokens);
	mfs_rows_free(r);
}

int main(void)
{
	static char line[8192], path[4096], split[256], column[256], eod[64];

	mfs_guard_install();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%4095s %255s %255s %63s", path, split, column, eod) != 4)
			return EXIT_FAILURE;
		answer(path, split, column, eod);
		fflush(stdout);
	}
	return EXIT_SUCCESS;
}
