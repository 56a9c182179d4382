/* SentencePiece models: formats/hf/sentencepiece.h. The files are of the package itself, or loaded
 * by it (tests/fuzz/make_sentencepiece_seeds.py); so are the numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/hf/sentencepiece.h"
#include "tests/unit/unit.h"

#define CORPUS "tests/fuzz/corpus/sentencepiece/ok-"

static struct mfs_error err;

START_TEST(models_read_as_the_package_reads_them)
{
	static const struct {
		const char *name;
		uint64_t count;
		int64_t eos, pad;
	} all[] = {
		{"unigram", 200, 2, -1},
		{"bpe", 120, 2, -1},
		{"bytes", 400, 2, -1},
		{"end", 100, 2, -1},
		{"eos-last", 100, 5, 3},
		{"no-eos", 100, -1, -1},
		{"small", 5, 2, -1},
		/* the trainer's eos_id is not looked at */
		{"trainer-says-another-id", 5, 2, -1},
		{"trainer-first", 5, 2, -1},
		{"two-trainers", 5, 1, -1},
		{"empty-eos", 5, 2, -1},
		/* no control symbols */
		{"other-eos", 5, -1, -1},
		{"eos-is-text", 4, -1, -1},
		{"eos-is-users", 2, -1, -1},
		{"unknown-fields", 5, 2, -1},
		{"long-varint", 5, 2, -1},
		{"type-of-the-future", 3, 1, -1},
		{"pad", 6, 2, 5},
		{"other-pad", 7, 2, 6},
		{"pad-is-text", 6, 2, -1},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
		struct mfs_sentencepiece model;
		char path[256];
		uint8_t *bytes;
		size_t len;

		snprintf(path, sizeof(path), CORPUS "%s", all[i].name);
		bytes = unit_slurp(path, &len);
		unit_ok(mfs_sentencepiece_parse("t.model", bytes, len, &model, &err), &err);
		ck_assert_msg(model.count == all[i].count && model.eos == all[i].eos &&
				      model.pad == all[i].pad,
			      "%s: %llu pieces, eos %lld, pad %lld", all[i].name,
			      (unsigned long long)model.count, (long long)model.eos,
			      (long long)model.pad);
		/* Nothing past the end is looked at. */
		for (size_t cut = 0; cut < len; cut += 1 + len / 97) {
			uint8_t *part = malloc(cut + 1);

			memcpy(part, bytes, cut);
			mfs_sentencepiece_parse("t.model", part, cut, &model, &err);
			free(part);
		}
		free(bytes);
	}
}
END_TEST

START_TEST(what_is_no_model_is_refused_by_byte)
{
	struct mfs_sentencepiece model;

	unit_fails(mfs_sentencepiece_parse("t.model", "{}", 2, &model, &err), &err, -EINVAL,
		   "t.model: byte 0: this field is of no known form; expected a SentencePiece");
	unit_fails(mfs_sentencepiece_parse("t.model", "", 0, &model, &err), &err, -EINVAL,
		   "expected one piece for what is unknown, found 0");
	unit_fails(mfs_sentencepiece_parse("t.model", "\x0a\x05", 2, &model, &err), &err, -EINVAL,
		   "t.model: byte 0: this field is cut short");
	unit_fails(
		mfs_sentencepiece_parse("t.model", NULL, MFS_SENTENCEPIECE_MAX + 1, &model, &err),
		&err, -ENOTSUP, "more than the limit");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sentencepiece");
	TCase *c = unit_case(s, "models", models_read_as_the_package_reads_them);

	tcase_add_test(c, what_is_no_model_is_refused_by_byte);
	return s;
}
