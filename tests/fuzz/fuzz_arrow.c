/* Input: an Arrow stream or file. Its token ids as rows; or, if it has none, its column
 * "indices". */
#include "tests/fuzz/fuzz.h"

#include "formats/base/bytes.h"
#include "formats/dataset/rows/arrow_rows.h"
#include "formats/dataset/rows/rows_eod.h"

#define MANY 4096 /* rows and tokens that are looked at one by one */

/* Every row is found by its tokens, and is as long as it says. */
static void check_rows(const struct mfs_rows *r, const uint64_t *starts)
{
	struct mfs_error err = {0};

	fuzz_require(starts[0] == 0 && starts[r->rows] == r->tokens);
	for (uint64_t i = 0; i < r->rows; i++) {
		const int32_t number = (int32_t)i;
		uint64_t row, start;
		int32_t length;

		fuzz_require(starts[i] <= starts[i + 1]);
		fuzz_require(!mfs_rows_start(r, i, &start, &err) && start == starts[i]);
		fuzz_require(!mfs_rows_gather_starts(r, &number, 1, &start, &err));
		fuzz_require(start == starts[i]);
		fuzz_require(!mfs_rows_gather_lengths(r, &number, 1, &length, &err));
		fuzz_require((uint64_t)length == starts[i + 1] - starts[i]);
		if (!length)
			continue;
		fuzz_require(!mfs_rows_find(r, starts[i], &row, &err) && row == i);
		fuzz_require(!mfs_rows_find(r, starts[i + 1] - 1, &row, &err) && row == i);
	}
}

/* What is read at once is what is read token by token. An id that is none is of both. */
static int check_tokens(const struct mfs_rows *r, struct mfs_error *err)
{
	int64_t *all = calloc(r->tokens + 1, sizeof(*all)), one;
	int rc, each = 0;

	fuzz_require(all);
	rc = mfs_rows_read_int64(r, 0, r->tokens, all, err);
	for (uint64_t t = 0; t < r->tokens; t++) {
		struct mfs_error other = {0};
		const int failed = mfs_rows_read_int64(r, t, 1, &one, &other);

		fuzz_require(failed || rc || one == all[t]);
		each = each ? each : failed;
	}
	fuzz_require(rc == each);
	free(all);
	return rc;
}

/* Checks rows with an end after each. Takes r. */
static void check_eod(struct mfs_rows *r, const uint64_t *starts)
{
	struct mfs_error err = {0};
	struct mfs_rows *e;
	int64_t *all;
	uint64_t at = 0;

	fuzz_require(!mfs_rows_eod(r, 77, &e, &err));
	all = calloc(e->tokens + 1, sizeof(*all));
	fuzz_require(all && e->tokens == r->tokens + r->rows);
	fuzz_require(!mfs_rows_read_int64(e, 0, e->tokens, all, &err));
	for (uint64_t i = 0; i < r->rows; i++) {
		at += starts[i + 1] - starts[i];
		fuzz_require(all[at++] == 77);
	}
	free(all);
	mfs_rows_free(e);
}

static int check(struct mfs_rows *r, struct mfs_error *err)
{
	uint64_t *starts;
	int rc;

	fuzz_require(r->rows <= INT64_MAX && r->tokens <= INT64_MAX && r->token_size);
	if (r->rows > MANY || r->tokens > MANY) {
		mfs_rows_free(r);
		return 0;
	}
	starts = calloc(r->rows + 1, sizeof(*starts));
	fuzz_require(starts);
	rc = mfs_rows_starts(r, 0, r->rows + 1, starts, err);
	if (!rc) {
		check_rows(r, starts);
		rc = check_tokens(r, err);
	}
	if (rc)
		mfs_rows_free(r);
	else
		check_eod(r, starts);
	free(starts);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const struct mfs_arrow_rows_config tokens = {0},
					   indices = {.column = "indices", .integers = true};
	struct mfs_rows *r;
	int rc = mfs_arrow_rows_memory(bytes, len, "input", &tokens, &r, err);

	if (rc == -ENODATA)
		rc = mfs_arrow_rows_memory(bytes, len, "input", &indices, &r, err);
	return rc ? rc : check(r, err);
}

FUZZ_TARGET
