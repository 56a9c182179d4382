/* Input: 8 bytes, the size of the .bin, then the .idx. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/indexed/indexed_dataset.h"

#define MANY 4096 /* sequences and entries that are looked at one by one */

/* What can be located lies inside of the .bin and is what the arrays say. */
static void check_sequences(const struct mfs_indexed_dataset *d,
			    const struct mfs_indexed_report *report, bool valid)
{
	const struct mfs_indexed_info *info = mfs_indexed_dataset_info(d);
	uint64_t tokens = 0, bad = 0;

	for (uint64_t i = 0; i < info->sequences; i++) {
		struct mfs_error err = {0};
		struct mfs_sequence s;
		int32_t length;
		int64_t pointer;

		fuzz_require(mfs_indexed_dataset_pointers(d, i, 1, &pointer, &err) == 0);
		if (mfs_indexed_dataset_sequence(d, i, &s, &err)) {
			fuzz_require(err.msg[0] && !valid);
			bad++;
			continue;
		}
		fuzz_require(mfs_indexed_dataset_lengths(d, i, 1, &length, &err) == 0);
		fuzz_require((uint64_t)length == s.length);
		fuzz_require(!s.length || (uint64_t)pointer == s.offset);
		fuzz_require(mfs_range_ok(s.offset, s.length * info->token_size, info->bin_size));
		tokens += s.length;
	}
	fuzz_require(!valid || (!bad && tokens == report->tokens));
	fuzz_require(bad <= report->outside + report->bad_lengths);
}

static void check_counts(const struct mfs_indexed_dataset *d,
			 const struct mfs_indexed_report *report, bool valid)
{
	const uint64_t n = mfs_indexed_dataset_info(d)->sequences;
	uint64_t all = 0, first = 0, second = 0;
	struct mfs_error err = {0};
	int rc = mfs_indexed_dataset_token_count(d, 0, n, &all, &err);

	fuzz_require(rc <= 0 && (!rc || err.msg[0]));
	fuzz_require(!valid || (!rc && all == report->tokens));
	if (valid) {
		fuzz_require(!mfs_indexed_dataset_token_count(d, 0, n / 3, &first, &err));
		fuzz_require(!mfs_indexed_dataset_token_count(d, n / 3, n, &second, &err));
		fuzz_require(first + second == all);
	}
}

/* The .idx that stands for this one is as long, and says the same of a sound one. */
static void check_rewritten(const struct mfs_indexed_dataset *d, const uint8_t *idx, size_t len,
			    bool valid)
{
	const struct mfs_indexed_info *info = mfs_indexed_dataset_info(d);
	uint8_t *again = malloc(len);
	struct mfs_error err = {0};

	fuzz_require(again && mfs_indexed_dataset_idx_size(d) == len);
	fuzz_require(mfs_indexed_dataset_idx_read(d, 0, again, len, &err) == 0);
	fuzz_require(memcmp(again, idx, MFS_IDX_HEADER + 4 * info->sequences) == 0);
	if (valid && info->pointers != MFS_POINTERS_REPAIRED)
		fuzz_require(memcmp(again, idx, len) == 0);
	free(again);
}

static int count_tokens(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *err)
{
	(void)err;
	*(uint64_t *)arg += piece->count;
	return 0;
}

/* Every sample that there is has its tokens. */
static void check_samples(const struct mfs_indexed_dataset *d)
{
	const struct mfs_gpt_config c = {
		.seq_length = 3, .samples = 50, .separate_last_epoch = true};
	struct mfs_error err = {0};
	struct mfs_gpt_dataset *g;
	struct mfs_rows *rows;

	if (mfs_rows_indexed(d, &rows, &err)) {
		fuzz_require(err.msg[0]);
		return;
	}
	if (mfs_gpt_dataset_new(rows, 0, rows->rows, &c, &g, &err)) {
		fuzz_require(err.msg[0]);
		mfs_rows_free(rows);
		return;
	}
	if (mfs_gpt_dataset_sizes(g)->samples < 10000 && mfs_gpt_dataset_bytes(g) < 1 << 24 &&
	    !mfs_gpt_dataset_build(g, 1, &err))
		for (uint64_t i = 0; i < mfs_gpt_dataset_sizes(g)->samples; i++) {
			uint64_t tokens = 0;
			uint32_t padding;

			fuzz_require(!mfs_gpt_dataset_pieces(g, i, count_tokens, &tokens, &padding,
							     &err));
			fuzz_require(tokens == 4 && !padding);
		}
	mfs_gpt_dataset_free(g);
	mfs_rows_free(rows);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_report report;
	const struct mfs_indexed_info *info;
	int rc;

	if (len < 8)
		return mfs_fail(err, -EINVAL, "no size of the .bin");
	rc = mfs_indexed_dataset_memory(bytes + 8, len - 8, mfs_le64(bytes), "input", &d, err);
	if (rc)
		return rc;
	info = mfs_indexed_dataset_info(d);
	fuzz_require(info->token_size && info->document_entries);
	rc = mfs_indexed_dataset_validate(d, &report, err);
	fuzz_require(!rc ==
		     !(report.outside | report.bad_lengths | report.jumps | report.bad_documents));
	if (info->sequences < MANY && info->document_entries < MANY) {
		check_sequences(d, &report, !rc);
		check_counts(d, &report, !rc);
		check_rewritten(d, bytes + 8, len - 8, !rc);
		check_samples(d);
	}
	mfs_indexed_dataset_free(d);
	return rc;
}

FUZZ_TARGET
