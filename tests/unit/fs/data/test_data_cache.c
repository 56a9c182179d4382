/* data/NAME/cache: fs/data/index_cache.h, fs/data/view_cache.c. That Megatron accepts it:
 * tests/interop/test_index_cache.py. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "fs/data/data.h"
#include "fs/data/data_kinds.h"
#include "fs/data/index_cache.h"

#define ONE_EPOCH MFS_GPT_ONE_EPOCH

static struct mfs_error err;

static const char *in(const char *dir, const char *name)
{
	static char text[8][PATH_MAX];
	static unsigned next;
	char *path = text[next++ % 8];

	snprintf(path, PATH_MAX, "%s/%s", dir, name);
	return path;
}

/* ---- names ---- */

START_TEST(names_have_all_that_a_cache_follows_from)
{
	static const struct {
		const char *name;
		uint64_t samples[MFS_SPLITS];
		uint32_t seq_length, seed;
		const char *split;
	} good[] = {
		{"s1", {ONE_EPOCH, ONE_EPOCH, ONE_EPOCH}, 1, 1234, NULL},
		{"s4096-train0-valid1-test2", {0, 1, 2}, 4096, 1234, NULL},
		{"s8-test5-seed0", {ONE_EPOCH, ONE_EPOCH, 5}, 8, 0, NULL},
		{"s8-seed4294967295-split1", {ONE_EPOCH, ONE_EPOCH, ONE_EPOCH}, 8, UINT32_MAX, "1"},
		{"s2147483646-train9007199254740992-split969, 30, 1",
		 {(uint64_t)1 << 53, ONE_EPOCH, ONE_EPOCH},
		 INT32_MAX - 1,
		 1234,
		 "969, 30, 1"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(good); i++) {
		struct mfs_cache_spec s;

		unit_ok(mfs_cache_spec_parse(good[i].name, &s, &err), &err);
		ck_assert_uint_eq(s.seq_length, good[i].seq_length);
		ck_assert_uint_eq(s.seed, good[i].seed);
		ck_assert_mem_eq(s.samples, good[i].samples, sizeof(s.samples));
		ck_assert_pstr_eq(s.split, good[i].split);
	}
}
END_TEST

START_TEST(no_specs)
{
	static const char *const bad[] = {"",
					  "s",
					  "4096",
					  "s04",
					  "s4-",
					  "s4-train",
					  "s4-train-1",
					  "s4-valid1-train1",
					  "s4-n5",
					  "s4-split",
					  "s4-train1-train1",
					  "s4-seed1-test1",
					  "s4 ",
					  "S4",
					  "s4-train01",
					  "train-s4",
					  "s4.5",
					  "s-4",
					  "s+4",
					  "s4-seed",
					  "s4/x"};
	static const char *const impossible[] = {"s0",
						 "s2147483647",
						 "s99999999999999999999999",
						 "s4-train9007199254740993",
						 "s4-test99999999999999999999999",
						 "s4-seed4294967296"};
	struct mfs_cache_spec s;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(mfs_cache_spec_parse(bad[i], &s, &err), &err, -ENOENT,
			   "is not a directory");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(impossible); i++)
		unit_fails(mfs_cache_spec_parse(impossible[i], &s, &err), &err, -EINVAL,
			   "a number is out of range");
}
END_TEST

/* ---- a mount's options, and one dataset of it ---- */

static const char tokenizer[] = "{\"class\": \"T\"}";

static struct mfs_data *open_data(const char *source, const struct mfs_data_options *opt)
{
	struct mfs_data *data;

	unit_ok(mfs_data_open(source, opt, &data, &err), &err);
	return data;
}

static struct mfs_view *open_view(const struct mfs_data *data, const char *name, const char *view)
{
	struct mfs_dataset *d = mfs_data_find(data, name, strlen(name));
	struct mfs_view *v;

	ck_assert_ptr_nonnull(d);
	unit_ok(mfs_views_open(mfs_dataset_views(d), view, &v, &err), &err);
	return v;
}

/* The bytes of the view's only file whose name ends so. */
static char *file_of(const struct mfs_view *v, const char *suffix, size_t *ret_len)
{
	struct mfs_vfile *f = NULL;
	char *bytes;

	for (uint32_t i = 0; i < v->count; i++) {
		const size_t len = strlen(v->files[i].name), end = strlen(suffix);

		if (len < end || strcmp(v->files[i].name + len - end, suffix))
			continue;
		ck_assert_msg(!f, "two files end with %s", suffix);
		f = v->files[i].data;
	}
	ck_assert_msg(f != NULL, "no file ends with %s", suffix);
	bytes = calloc(1, mfs_vfile_size(f) + 1);
	unit_ok(mfs_vfile_pread(f, 0, bytes, mfs_vfile_size(f), ret_len, &err), &err);
	ck_assert_uint_eq(*ret_len, mfs_vfile_size(f));
	return bytes;
}

static void same_as_fixture(const struct mfs_view *v, const char *suffix, const char *name)
{
	size_t ours_len, len;
	char *ours = file_of(v, suffix, &ours_len);
	uint8_t *theirs = unit_slurp(unit_fixture(name), &len);

	ck_assert_uint_eq(ours_len, len);
	ck_assert_mem_eq(ours, theirs, len);
	free(ours);
	free(theirs);
}

/* A description of the view holds this line. */
static void says(const struct mfs_view *v, const char *suffix, const char *line)
{
	size_t len;
	char *text = file_of(v, suffix, &len);

	ck_assert_msg(strstr(text, line) != NULL, "not there: %s in %s", line, text);
	free(text);
}

START_TEST(a_run_of_megatrons)
{
	const char *dir = unit_tmpdir();
	const struct mfs_data_options opt = {.tokenizer_id = in(dir, "t.json")};
	const struct mfs_view *v;
	struct mfs_data *data;
	char line[PATH_MAX + 40], *path;

	unit_write(dir, "t.json", tokenizer, strlen(tokenizer));
	data = open_data(unit_fixture("data"), &opt);
	v = open_view(data, "tales_text_document", "cache/s128-train226-valid18-split90,10,0");
	ck_assert_uint_eq(v->count, 8);
	same_as_fixture(v, "-GPTDataset-train-document_index.npy",
			"data/megatron_index/tales-train-n226-s128-document_index.npy");
	same_as_fixture(v, "-GPTDataset-train-sample_index.npy",
			"data/megatron_index/tales-train-n226-s128-sample_index.npy");
	same_as_fixture(v, "-GPTDataset-train-shuffle_index.npy",
			"data/megatron_index/tales-train-n226-s128-shuffle_index.npy");
	same_as_fixture(v, "-GPTDataset-valid-shuffle_index.npy",
			"data/megatron_index/tales-valid-n18-s128-shuffle_index.npy");
	path = realpath(unit_fixture("data"), NULL);
	snprintf(line, sizeof(line), "\"dataset_path\": \"%s/tales_text_document\",", path);
	free(path);
	says(v, "-GPTDataset-valid-description.txt", line);
	says(v, "-GPTDataset-valid-description.txt", "\"num_samples\": 18,");
	says(v, "-GPTDataset-valid-description.txt", "\"split\": \"90,10,0\",");
	ck_assert_uint_eq(v->granted, MFS_ACCESS_ALL);
	ck_assert_int_gt(v->mtime_ns, 0);
	mfs_data_free(data);
}
END_TEST

START_TEST(versions_and_splits)
{
	const char *dir = unit_tmpdir();
	struct mfs_data_options opt = {
		.tokenizer_id = in(dir, "t.json"), .split = "8/1/1", .megatron = "0.9"};
	const struct mfs_view *v;
	struct mfs_data *data;
	size_t len;
	char *bytes;

	unit_write(dir, "t.json", tokenizer, strlen(tokenizer));
	data = open_data(unit_fixture("data/tales_text_document"), &opt);
	v = open_view(data, "tales_text_document", "cache/s64-train1");
	ck_assert_uint_eq(v->count, 12);
	says(v, "-GPTDataset-test-description.txt", "\"num_samples\": null,");
	says(v, "-GPTDataset-train-description.txt", "\"split\": \"8,1,1\",");
	bytes = file_of(v, "-GPTDataset-train-sample_index.npy", &len);
	ck_assert_ptr_nonnull(memmem(bytes, 128, "<i8", 3));
	free(bytes);
	mfs_data_free(data);
	/* The first core knew no tokenizer, and named files without the split. */
	opt = (struct mfs_data_options){.megatron = "0.4"};
	data = open_data(unit_fixture("data/tales_text_document"), &opt);
	v = open_view(data, "tales_text_document", "cache/s64-split1");
	ck_assert_uint_eq(v->count, 4);
	says(v, "-GPTDataset-description.txt", "\"path_prefix\": ");
	mfs_data_free(data);
}
END_TEST

START_TEST(equal_datasets_of_a_blend_share_files)
{
	const char *dir = unit_tmpdir();
	struct mfs_data_options opt = {
		.tokenizer_id = in(dir, "t.json"),
		.data_path = "1 tales_text_document 2 notes_text_document 1 tales_text_document"};
	const struct mfs_view *v;
	struct mfs_data *data;
	size_t len;

	unit_write(dir, "t.json", tokenizer, strlen(tokenizer));
	data = open_data(unit_fixture("data"), &opt);
	v = open_view(data, "blend", "cache/s64-train100-split1");
	/* Two of the three datasets are one, asked for as much: 4 files each, and 3 of the
	 * blend. */
	ck_assert_uint_eq(v->count, 11);
	says(v, "-BlendedDataset-train-description.txt",
	     "\"dataset_path\": \"tales_text_document\",");
	says(v, "-BlendedDataset-train-description.txt", "\"size\": 100");
	free(file_of(v, "-BlendedDataset-train-dataset_index.npy", &len));
	ck_assert_uint_eq(len, 128 + 2 * 100);
	free(file_of(v, "-BlendedDataset-train-dataset_sample_index.npy", &len));
	ck_assert_uint_eq(len, 128 + 8 * 100);
	mfs_data_free(data);
	opt.data_path = NULL;
	opt.split_data_path[MFS_TRAIN] = "tales_text_document";
	opt.split_data_path[MFS_VALID] = "tales_text_document notes_text_document";
	data = open_data(unit_fixture("data"), &opt);
	v = open_view(data, "blend", "cache/s64-train100");
	ck_assert_uint_eq(v->count, 4 + 2 * 4 + 3);
	says(v, "-GPTDataset-train-description.txt", "\"split_matrix\": null,");
	says(v, "-BlendedDataset-valid-description.txt", "\"size\": null");
	mfs_data_free(data);
}
END_TEST

/* ---- earlier runs ---- */

/* Writes the view's descriptions into dir, as that run would have left them. */
static void leave_descriptions(const char *dir, const struct mfs_view *v)
{
	for (uint32_t i = 0; i < v->count; i++) {
		const char *name = v->files[i].name;
		size_t len;
		char *text;

		if (!strstr(name, "description.txt"))
			continue;
		text = file_of(v, name, &len);
		unit_write(dir, name, text, len);
		free(text);
	}
}

/* The directory of an earlier run is as good as a file. */
START_TEST(earlier_run)
{
	const char *dir = unit_tmpdir(), *run = in(dir, "run");
	char words[2 * PATH_MAX + 16];
	struct mfs_data_options opt = {.tokenizer_id = in(dir, "t.json"), .data_path = words};
	const struct mfs_data_options later = {.tokenizer_id = run};
	struct mfs_data *before, *after;
	const struct mfs_view *a, *b;
	const char *const *names;
	uint32_t count;

	ck_assert_int_eq(mkdir(run, 0700), 0);
	unit_write(dir, "t.json", tokenizer, strlen(tokenizer));
	snprintf(words, sizeof(words), "0.3 %s 0.7 %s", unit_fixture("data/tales_text_document"),
		 unit_fixture("data/notes_text_document"));
	before = open_data(unit_fixture("data"), &opt);
	leave_descriptions(run, open_view(before, "blend",
					  "cache/s64-train300-valid10-test3-seed5-split8,1,1"));
	/* Not its own name, without a tokenizer, nothing of the kind: passed over. */
	unit_write(run, "00000000000000000000000000000000-GPTDataset-train-description.txt", "{}",
		   2);
	unit_write(run, "99914b932bd37a50b983c5e7c90ae93b-GPTDataset-train-description.txt", "{}",
		   2);
	unit_write(run, "other.txt", "{}", 2);
	after = open_data(unit_fixture("data"), &later);
	a = open_view(before, "tales_text_document", "cache/s64-train5-split1");
	b = open_view(after, "tales_text_document", "cache/s64-train5-split1");
	ck_assert_uint_eq(b->count, 4);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_str_eq(a->files[i].name, b->files[i].name);
	unit_ok(mfs_views_list(mfs_dataset_views(mfs_data_at(after, 0)), &mfs_view_kind_data_cache,
			       &names, &count, &err),
		&err);
	ck_assert_uint_eq(count, 1);
	mfs_data_free(after);
	mfs_data_free(before);
}
END_TEST

START_TEST(tokenizers_are_taken_from_descriptions)
{
	static const char description[] =
		"{\"class\": \"GPTDataset\", \"tokenizer\": {\"class\": \"U\"}}";
	static const char blend[] =
		"{\"class\": \"BlendedDataset\", \"datasets\": [{\"tokenizer\": {\"class\": "
		"\"V\"}}]}";
	const char *dir = unit_tmpdir();
	json_t *t;

	unit_write(dir, "own", tokenizer, strlen(tokenizer));
	unit_write(dir, "description", description, strlen(description));
	unit_write(dir, "blend", blend, strlen(blend));
	unit_write(dir, "list", "[]", 2);
	unit_write(dir, "twice", "{\"a\": 1, \"a\": 2}", 16);
	unit_ok(mfs_cache_tokenizer(in(dir, "own"), &t, NULL, &err), &err);
	ck_assert_str_eq(json_string_value(json_object_get(t, "class")), "T");
	json_decref(t);
	unit_ok(mfs_cache_tokenizer(in(dir, "description"), &t, NULL, &err), &err);
	ck_assert_str_eq(json_string_value(json_object_get(t, "class")), "U");
	json_decref(t);
	unit_ok(mfs_cache_tokenizer(in(dir, "blend"), &t, NULL, &err), &err);
	ck_assert_str_eq(json_string_value(json_object_get(t, "class")), "V");
	json_decref(t);
	unit_fails(mfs_cache_tokenizer(in(dir, "list"), &t, NULL, &err), &err, -EINVAL,
		   "not a JSON object");
	unit_fails(mfs_cache_tokenizer(in(dir, "twice"), &t, NULL, &err), &err, -EINVAL,
		   "not a JSON object");
	unit_fails(mfs_cache_tokenizer(in(dir, "none"), &t, NULL, &err), &err, -EINVAL, "none");
	unit_fails(mfs_cache_tokenizer(dir, &t, NULL, &err), &err, -ENODATA, "would have written");
}
END_TEST

START_TEST(two_tokenizers)
{
	const char *dir = unit_tmpdir(), *run = in(dir, "run");
	json_t *t;

	ck_assert_int_eq(mkdir(run, 0700), 0);
	for (int i = 0; i < 2; i++) {
		const struct mfs_data_options opt = {.tokenizer_id = in(dir, "t.json")};
		const char *text = i ? "{\"class\": \"A\"}" : "{\"class\": \"B\"}";
		struct mfs_data *data;

		unit_write(dir, "t.json", text, strlen(text));
		data = open_data(unit_fixture("data/tales_text_document"), &opt);
		leave_descriptions(run, open_view(data, "tales_text_document", "cache/s64-split1"));
		mfs_data_free(data);
	}
	unit_fails(mfs_cache_tokenizer(run, &t, NULL, &err), &err, -EINVAL, "two tokenizers");
}
END_TEST

/* ---- what cannot be ---- */

static void refused(const struct mfs_data_options *opt, const char *name, const char *view,
		    int code, const char *sentence)
{
	struct mfs_data *data = open_data(unit_fixture("data"), opt);
	struct mfs_dataset *d = mfs_data_find(data, name, strlen(name));
	struct mfs_view *v;

	unit_fails(mfs_views_open(mfs_dataset_views(d), view, &v, &err), &err, code, sentence);
	if (code == -EINVAL || code == -ENOENT)
		unit_fails(mfs_views_check(mfs_dataset_views(d), view, &err), &err, code, sentence);
	mfs_data_free(data);
}

START_TEST(a_cache_that_cannot_be_says_why)
{
	const char *dir = unit_tmpdir(), *file = in(dir, "t.json");
	const char *const tales = "tales_text_document";

	unit_write(dir, "t.json", tokenizer, strlen(tokenizer));
	refused(&(struct mfs_data_options){0}, tales, "cache/s64", -EINVAL, "tokenizer_id");
	refused(&(struct mfs_data_options){.megatron = "2.6"}, tales, "cache/s64", -EINVAL,
		"core 0.4");
	refused(&(struct mfs_data_options){.tokenizer_id = file}, tales, "cache/x", -ENOENT,
		"is not a directory");
	refused(&(struct mfs_data_options){.tokenizer_id = file}, tales, "cache/s64-splitx",
		-EINVAL, "--split");
	refused(&(struct mfs_data_options){.tokenizer_id = file}, tales, "cache/s10000000",
		-ENODATA, "no split");
	refused(&(struct mfs_data_options){.tokenizer_id = file, .merge = "all"}, "all",
		"cache/s64", -EINVAL, "megatron/all");
	refused(&(struct mfs_data_options){.tokenizer_id = file,
					   .split_data_path = {"tales_text_document", NULL, NULL}},
		"blend", "cache/s64-split1", -EINVAL, "each split has datasets of its own");
}
END_TEST

/* That can be seen when it is opened alone. */
START_TEST(no_tokenizer)
{
	const struct mfs_data_options opt = {.tokenizer_id = in(unit_tmpdir(), "none")};
	struct mfs_data *data = open_data(unit_fixture("data"), &opt);
	struct mfs_view *v;

	unit_ok(mfs_views_check(mfs_dataset_views(mfs_data_at(data, 0)), "cache/s64", &err), &err);
	unit_fails(mfs_views_open(mfs_dataset_views(mfs_data_at(data, 0)), "cache/s64", &v, &err),
		   &err, -EINVAL, "No such file");
	mfs_data_free(data);
}
END_TEST

START_TEST(nothing_to_list)
{
	const struct mfs_data_options opt = {0};
	struct mfs_data *data = open_data(unit_fixture("data"), &opt);
	const char *const *names;
	uint32_t count;

	unit_ok(mfs_views_list(mfs_dataset_views(mfs_data_at(data, 0)), &mfs_view_kind_data_cache,
			       &names, &count, &err),
		&err);
	ck_assert_uint_eq(count, 0);
	mfs_data_free(data);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("data_cache");
	TCase *c = unit_case(s, "names", names_have_all_that_a_cache_follows_from);

	tcase_add_test(c, no_specs);
	c = unit_case(s, "runs", a_run_of_megatrons);
	tcase_add_test(c, versions_and_splits);
	tcase_add_test(c, equal_datasets_of_a_blend_share_files);
	c = unit_case(s, "earlier runs", earlier_run);
	tcase_add_test(c, tokenizers_are_taken_from_descriptions);
	tcase_add_test(c, two_tokenizers);
	c = unit_case(s, "impossible", a_cache_that_cannot_be_says_why);
	tcase_add_test(c, no_tokenizer);
	tcase_add_test(c, nothing_to_list);
	return s;
}
