/*
 * Input: a byte, and a file of a run's datasets: 's' and the JSON of --per-split-data-args-path, or
 * 'w' and the words of --data-args-path. What is accepted are blends: all prefixes there, with
 * weights or without, which read again as they are.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/dataset/gpt/run_words.h"

/* The blend as words: "0.5 a 0.5 b". */
static void show(const struct mfs_blend_args *a, struct mfs_buf *out)
{
	for (uint32_t i = 0; i < a->count; i++) {
		if (a->weights)
			mfs_buf_printf(out, "%.17g ", a->weights[i]);
		mfs_buf_printf(out, "%s\n", a->prefixes[i]);
	}
}

/* Prefixes with white space in them, or none, are one thing as a list's word and another in a
 * text. */
static bool is_plain(const struct mfs_blend_args *a)
{
	for (uint32_t i = 0; i < a->count; i++)
		if (!a->prefixes[i][0] || strpbrk(a->prefixes[i], " \t\n\v\f\r\x1c\x1d\x1e\x1f"))
			return false;
	return true;
}

static void check_blend(const struct mfs_blend_args *a)
{
	struct mfs_blend_args again;
	struct mfs_error err = {0};
	struct mfs_buf text = {0}, shown = {0};

	fuzz_require(a->count);
	for (uint32_t i = 0; i < a->count; i++)
		fuzz_require(a->prefixes[i]);
	if (!is_plain(a))
		return;
	show(a, &text);
	fuzz_require(!text.failed);
	fuzz_require(!mfs_blend_args_parse_text(text.data, text.len, &again, &err));
	show(&again, &shown);
	fuzz_require(shown.len == text.len && !memcmp(shown.data, text.data, text.len));
	mfs_blend_args_release(&again);
	mfs_buf_release(&text);
	mfs_buf_release(&shown);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_data_run r;
	int rc;

	if (!len || (bytes[0] != 's' && bytes[0] != 'w'))
		return mfs_fail(err, -EINVAL, "neither 's' nor 'w'");
	rc = mfs_data_run_parse_bytes((const char *)bytes + 1, len - 1, bytes[0] == 's', &r, err);
	if (rc)
		return rc;
	fuzz_require(!r.run.blend == (bytes[0] == 's'));
	if (r.run.blend)
		check_blend(r.run.blend);
	for (int i = 0; i < MFS_SPLITS; i++) {
		fuzz_require(!r.run.per_split[i] || r.run.per_split[i] == &r.split[i]);
		if (r.run.per_split[i])
			check_blend(r.run.per_split[i]);
	}
	mfs_data_run_release(&r);
	return 0;
}

FUZZ_TARGET
