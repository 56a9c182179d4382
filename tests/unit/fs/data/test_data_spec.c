/* Names of directories of samples, and the words of blends: fs/data/spec.h, fs/data/data_run.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "fs/data/data.h"
#include "fs/data/data_run.h"
#include "fs/data/spec.h"

static struct mfs_error err;

START_TEST(names_are_parsed_and_made_again)
{
	static const struct {
		const char *name;
		struct mfs_samples_spec spec;
	} cases[] = {
		{"train-s4096", {MFS_TRAIN, 4096, MFS_GPT_ONE_EPOCH, 1234, ""}},
		{"valid-s1-n0", {MFS_VALID, 1, 0, 1234, ""}},
		{"test-s128-n1000000-seed0", {MFS_TEST, 128, 1000000, 0, ""}},
		{"train-s8-seed4294967295", {MFS_TRAIN, 8, MFS_GPT_ONE_EPOCH, 4294967295u, ""}},
		{"train-s8-split99,1,0", {MFS_TRAIN, 8, MFS_GPT_ONE_EPOCH, 1234, "99,1,0"}},
		{"valid-s8-n3-seed7-split.5,0.5", {MFS_VALID, 8, 3, 7, ".5,0.5"}},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const struct mfs_samples_spec *want = &cases[i].spec;
		struct mfs_samples_spec got;
		char text[MFS_SPEC_SIZE];

		ck_assert_msg(mfs_samples_spec_parse(cases[i].name, &got), "%s", cases[i].name);
		ck_assert_int_eq(got.of, want->of);
		ck_assert_uint_eq(got.seq_length, want->seq_length);
		ck_assert_uint_eq(got.samples, want->samples);
		ck_assert_uint_eq(got.seed, want->seed);
		ck_assert_str_eq(got.split, want->split);
		ck_assert_str_eq(mfs_samples_spec_name(&got, text), cases[i].name);
	}
}
END_TEST

START_TEST(no_names)
{
	static const char *const names[] = {
		"",
		"train",
		"train-s",
		"train-s0",
		"train-s08",
		"train-s-8",
		"train-s+8",
		"train-s8 ",
		"train-s8-",
		"train-s2147483648",
		"Train-s8",
		"validation-s8",
		"train-s8-n",
		"train-s8-n01",
		"train-s8-n9999999999999999999",
		"train-s8-n99999999999999999999999999999",
		"train-s8-seed4294967296",
		"train-s8-seed7-n3",
		"train-s8-split",
		"train-s8-split,",
		"train-s8-split1,",
		"train-s8-split1,2,3,4",
		"train-s8-split1/2",
		"train-s8-split1-seed3",
		"train-s8/",
	};
	struct mfs_samples_spec s;
	char longest[400] = "train-s8-split";

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		ck_assert_msg(!mfs_samples_spec_parse(names[i], &s), "'%s' is taken", names[i]);
	memset(longest + strlen(longest), '9', 200);
	ck_assert(!mfs_samples_spec_parse(longest, &s));
}
END_TEST

/* ---- words ---- */

START_TEST(words_are_a_blend_or_blends_a_split)
{
	struct mfs_data_words w = {.data_path = " 0.7 a\t0.3 b \n"};
	struct mfs_data_run r;
	char path[600];

	unit_ok(mfs_data_run_parse(&w, &r, &err), &err);
	ck_assert_ptr_eq(r.run.blend, &r.all);
	ck_assert_uint_eq(r.all.count, 2);
	ck_assert_str_eq(r.all.prefixes[1], "b");
	ck_assert(r.all.weights[0] == 0.7);
	mfs_data_run_release(&r);

	unit_write(unit_tmpdir(), "words", "1 x\n2 y\n", 8);
	snprintf(path, sizeof(path), "%s/words", unit_tmpdir());
	w = (struct mfs_data_words){.data_args_path = path};
	unit_ok(mfs_data_run_parse(&w, &r, &err), &err);
	ck_assert_str_eq(r.all.prefixes[1], "y");
	mfs_data_run_release(&r);

	w = (struct mfs_data_words){.split_data_path = {NULL, "v", NULL}};
	unit_ok(mfs_data_run_parse(&w, &r, &err), &err);
	ck_assert_ptr_null(r.run.blend);
	ck_assert_ptr_null(r.run.per_split[MFS_TRAIN]);
	ck_assert_str_eq(r.run.per_split[MFS_VALID]->prefixes[0], "v");
	mfs_data_run_release(&r);
}
END_TEST

START_TEST(words_refused)
{
	struct mfs_data_words w = {0};
	struct mfs_data_run r;

	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -ENODATA, "data path");
	w.data_path = " ";
	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -EINVAL, "is empty");
}
END_TEST

START_TEST(words_contradict)
{
	struct mfs_data_words w = {.data_path = "a", .data_args_path = "f"};
	struct mfs_data_run r;

	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -EINVAL, "exclude");
	w = (struct mfs_data_words){.data_path = "a", .split_data_path = {"b", NULL, NULL}};
	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -EINVAL, "train");
	w = (struct mfs_data_words){.data_path = "a 1 1 b"};
	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -EINVAL, "weight");
	w = (struct mfs_data_words){.data_args_path = "no such file"};
	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -ENOENT, "no such file");
	w = (struct mfs_data_words){.data_args_path = "."};
	unit_fails(mfs_data_run_parse(&w, &r, &err), &err, -EINVAL, "not a file");
}
END_TEST

/* By name, by path however it is spelt, by its last part. */
START_TEST(a_dataset_is_found_by_each_of_its_paths)
{
	static const char *const ways[] = {"tales_text_document", "/elsewhere/tales_text_document",
					   "tests/fixtures/data/tales_text_document",
					   "./tests/fixtures/../fixtures/data/tales_text_document"};
	const struct mfs_data_options none = {0};
	const struct mfs_rows *rows, *first = NULL;
	struct mfs_data *data;

	unit_ok(mfs_data_open(unit_fixture("data"), &none, &data, &err), &err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(ways); i++) {
		unit_ok(mfs_data_resolve(data, ways[i], &rows, &err), &err);
		ck_assert_msg(!first || rows == first, "%s", ways[i]);
		first = rows;
	}
	ck_assert_uint_eq(rows->token_size, 2);
	unit_ok(mfs_data_resolve(data, "notes_text_document", &rows, &err), &err);
	ck_assert_ptr_ne(rows, first);
	unit_fails(mfs_data_resolve(data, "/x/other", &rows, &err), &err, -ENOENT, "'other'");
	mfs_data_free(data);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("data_spec");

	unit_case(s, "names", names_are_parsed_and_made_again);
	unit_case(s, "no names", no_names);
	unit_case(s, "words", words_are_a_blend_or_blends_a_split);
	unit_case(s, "words refused", words_refused);
	unit_case(s, "words contradict", words_contradict);
	unit_case(s, "resolve", a_dataset_is_found_by_each_of_its_paths);
	return s;
}
