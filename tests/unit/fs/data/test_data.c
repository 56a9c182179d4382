/* Which datasets a mount has, and under which names: fs/data/data.h, fs/source/root.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/indexed/indexed_members.h"
#include "formats/io/fileset.h"
#include "fs/data/data.h"
#include "fs/data/data_i.h"
#include "fs/data/data_tokenizer.h"
#include "fs/source/root.h"
#include "tests/unit/fake_idx.h"

static const int32_t lengths[] = {3, 0, 2};

/* PREFIX.idx and PREFIX.bin with the three rows above, of int32. */
static void write_prefix(const char *dir, const char *name)
{
	const struct fake_idx idx = {.sequences = 3, .code = 4, .lengths = lengths};
	const int32_t tokens[] = {1, 2, 3, 4, 5};
	struct mfs_buf b = {0};
	char file[64];

	fake_idx(&b, &idx);
	snprintf(file, sizeof(file), "%s.idx", name);
	unit_write(dir, file, b.data, b.len);
	snprintf(file, sizeof(file), "%s.bin", name);
	unit_write(dir, file, tokens, sizeof(tokens));
	mfs_buf_release(&b);
}

static const char *path(const char *dir, const char *name)
{
	static char text[4][512];
	static unsigned next;

	snprintf(text[next % 4], sizeof(text[0]), "%s/%s", dir, name);
	return text[next++ % 4];
}

static void names_are(const struct mfs_data *data, const char *expected)
{
	char names[256] = "";

	for (uint32_t i = 0; i < mfs_data_count(data); i++) {
		strcat(names, i ? " " : "");
		strcat(names, mfs_dataset_name(mfs_data_at(data, i)));
	}
	ck_assert_str_eq(names, expected);
}

static struct mfs_data *opened(const char *source, const struct mfs_data_options *opt,
			       const char *expected)
{
	struct mfs_data *data;
	struct mfs_error err;

	unit_ok(mfs_data_open(source, opt, &data, &err), &err);
	names_are(data, expected);
	return data;
}

START_TEST(datasets_are_found_by_name_and_by_file)
{
	const struct mfs_data_options none = {0};
	const char *dir = unit_tmpdir();

	write_prefix(dir, "b_document");
	write_prefix(dir, "a.v2");
	mfs_data_free(opened(dir, &none, "a.v2 b_document"));
	mfs_data_free(opened(path(dir, "a.v2"), &none, "a.v2"));
	mfs_data_free(opened(path(dir, "a.v2.idx"), &none, "a.v2"));
	mfs_data_free(opened(path(dir, "b_document.bin"), &none, "b_document"));
	ck_assert(mfs_data_looks_like_one(dir));
	ck_assert(mfs_data_looks_like_one(path(dir, "a.v2")));
	ck_assert(!mfs_data_looks_like_one(path(dir, "a")));
	ck_assert(!mfs_data_looks_like_one("tests/fixtures/weights"));
}
END_TEST

START_TEST(several_paths)
{
	const char *dir = unit_tmpdir(), *other = path(dir, "other");
	struct mfs_data_options opt = {.path_count = 2, .merge = "all", .data_path = "a"};
	struct mfs_views_entry entry;
	struct mfs_dataset *all, *blend;
	struct mfs_data *data;
	uint64_t starts[7];
	struct mfs_error err;

	ck_assert(!mkdir(other, 0700));
	write_prefix(dir, "a");
	write_prefix(other, "b");
	opt.paths[0] = path(dir, "a");
	opt.paths[1] = other;
	data = opened(NULL, &opt, "a all b blend");
	all = mfs_data_find(data, "all", 3);
	ck_assert_uint_eq(all->rows->rows, 6);
	unit_ok(mfs_rows_starts(all->rows, 0, 7, starts, &err), &err);
	ck_assert_uint_eq(starts[3], 5);
	ck_assert_uint_eq(starts[5], 8);
	ck_assert_uint_eq(starts[6], 10);
	blend = mfs_data_find(data, "blend", 5);
	ck_assert_ptr_null(blend->rows);
	ck_assert(mfs_views_entry(mfs_dataset_views(blend), 0, &entry));
	ck_assert_str_eq(entry.name, "samples");
	ck_assert(mfs_views_entry(mfs_dataset_views(all), 0, &entry));
	ck_assert_str_eq(entry.name, "hf");
	ck_assert_ptr_null(mfs_data_find(data, "al", 2));
	mfs_data_free(data);
}
END_TEST

static const char *merged_name(const struct mfs_data *data, size_t part)
{
	return mfs_data_find(data, "all", 3)->indexed->members[part].name;
}

/* A merge is in the order of names, not of options: both have the same files, and so one
 * fingerprint. */
START_TEST(order_of_a_merge)
{
	const char *dir = unit_tmpdir();
	struct mfs_data_options opt = {.path_count = 3, .merge = "all"};
	struct mfs_data *data;

	write_prefix(dir, "a");
	write_prefix(dir, "b");
	write_prefix(dir, "b-2");
	opt.paths[0] = path(dir, "b-2");
	opt.paths[1] = path(dir, "b");
	opt.paths[2] = path(dir, "a");
	data = opened(NULL, &opt, "a all b b-2");
	ck_assert_str_eq(merged_name(data, 0), path(dir, "a"));
	ck_assert_str_eq(merged_name(data, 1), path(dir, "b"));
	ck_assert_str_eq(merged_name(data, 2), path(dir, "b-2"));
	mfs_data_free(data);
}
END_TEST

START_TEST(directories_without_a_dataset_are_refused)
{
	const char *dir = unit_tmpdir(), *other = path(dir, "other");
	struct mfs_data_options opt = {.path_count = 2};
	struct mfs_data *data;
	struct mfs_error err;

	ck_assert(!mkdir(other, 0700) && !mkdir(path(dir, "odd"), 0700));
	unit_fails(mfs_data_open(other, &opt, &data, &err), &err, -ENODATA, "holds no dataset");
	write_prefix(dir, "a");
	write_prefix(other, "a");
	opt.paths[0] = dir;
	opt.paths[1] = other;
	unit_fails(mfs_data_open(NULL, &opt, &data, &err), &err, -EEXIST,
		   "two datasets are named 'a'");
	opt.path_count = 1;
	unit_fails(mfs_data_open(path(dir, "nothing"), &opt, &data, &err), &err, -ENOENT,
		   "nothing");
	unit_write(dir, "bad.idx", "MMIDIDX\0\0", 9);
	unit_write(dir, "bad.bin", "", 0);
	unit_fails(mfs_data_open(path(dir, "bad"), &opt, &data, &err), &err, -EINVAL, "bad.idx");
	unit_write(dir, "old.idx", "TNTIDX\0\0\1\0\0\0\0\0\0\0", 16);
	unit_write(dir, "old.bin", "", 0);
	unit_fails(mfs_data_open(path(dir, "old"), &opt, &data, &err), &err, -ENOTSUP, "TNTIDX");
	write_prefix(path(dir, "odd"), "..");
	unit_fails(mfs_data_open(path(dir, "odd"), &opt, &data, &err), &err, -EINVAL,
		   "odd/..': '..' cannot be the name of a directory");
	opt = (struct mfs_data_options){.merge = "all"};
	unit_fails(mfs_data_open(NULL, &opt, &data, &err), &err, -ENODATA, "merge=all");
}
END_TEST

START_TEST(views_are_opened_once)
{
	const struct mfs_data_options none = {0};
	struct mfs_view *view = NULL, *again = NULL;
	const char *dir = unit_tmpdir();
	struct mfs_dataset *d;
	struct mfs_data *data;
	struct mfs_error err;

	write_prefix(dir, "a");
	data = opened(dir, &none, "a");
	d = mfs_data_at(data, 0);
	unit_ok(mfs_views_check(mfs_dataset_views(d), "npy", &err), &err);
	unit_ok(mfs_views_open(mfs_dataset_views(d), "npy", &view, &err), &err);
	unit_ok(mfs_views_open(mfs_dataset_views(d), "npy", &again, &err), &err);
	ck_assert_ptr_eq(view, again);
	ck_assert_uint_ge(view->set_count, 1);
	unit_ok(mfs_view_check_sources(view, &err), &err);
	unit_fails(mfs_views_open(mfs_dataset_views(d), "samples", &view, &err), &err, -ENOENT,
		   "samples");
	unit_fails(mfs_views_open(mfs_dataset_views(d), "samples/", &view, &err), &err, -ENOENT,
		   NULL);
	unit_fails(mfs_views_check(mfs_dataset_views(d), "nonsense", &err), &err, -ENOENT,
		   "nonsense");
	unit_fails(mfs_views_check(mfs_dataset_views(d), "samples/nonsense", &err), &err, -ENOENT,
		   NULL);
	write_prefix(dir, "a"); /* other files by the same names */
	unit_fails(mfs_view_check_sources(again, &err), &err, -ESTALE, NULL);
	mfs_data_free(data);
}
END_TEST

static sem_t npy_begun, npy_go;
static const struct mfs_open_ops *views_ops;

static int open_slowly(void *owner, const char *name, void **ret, struct mfs_error *err)
{
	if (!strcmp(name, "npy")) {
		sem_post(&npy_begun);
		sem_wait(&npy_go);
	}
	return views_ops->open(owner, name, ret, err);
}

static void *open_npy(void *arg)
{
	struct mfs_view *view;
	struct mfs_error err;

	unit_ok(mfs_views_open(mfs_dataset_views(arg), "npy", &view, &err), &err);
	return NULL;
}

/* While "npy" is opened by another thread nothing else waits for it. */
START_TEST(views_do_not_wait_for_each_other)
{
	struct mfs_open_ops slow = {.open = open_slowly};
	const struct mfs_data_options none = {0};
	const char *dir = unit_tmpdir();
	struct mfs_view *view = NULL;
	const char *const *names;
	struct mfs_dataset *d;
	struct mfs_data *data;
	struct mfs_error err;
	pthread_t thread;
	uint32_t count;

	write_prefix(dir, "a");
	data = opened(dir, &none, "a");
	d = mfs_data_at(data, 0);
	views_ops = d->views.open.ops;
	slow.close = views_ops->close;
	d->views.open.ops = &slow;
	sem_init(&npy_begun, 0, 0);
	sem_init(&npy_go, 0, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, open_npy, d), 0);
	sem_wait(&npy_begun);
	unit_ok(mfs_views_open(mfs_dataset_views(d), "hf", &view, &err), &err);
	unit_ok(mfs_views_open(mfs_dataset_views(d), "samples/train-s4", &view, &err), &err);
	unit_ok(mfs_views_list(mfs_dataset_views(d), &mfs_view_kind_data_samples, &names, &count,
			       &err),
		&err);
	sem_post(&npy_go);
	pthread_join(thread, NULL);
	mfs_data_free(data);
}
END_TEST

/* Specs that nobody reads any more are let go of, however many were entered; who holds one keeps
 * it. */
START_TEST(idle_views_are_let_go)
{
	const struct mfs_data_options none = {0};
	const char *dir = unit_tmpdir();
	struct mfs_view *view, *first;
	struct mfs_held *held, *other;
	struct mfs_dataset *d;
	struct mfs_data *data;
	struct mfs_error err;
	char name[64];

	write_prefix(dir, "a");
	data = opened(dir, &none, "a");
	d = mfs_data_at(data, 0);
	unit_ok(mfs_views_hold(mfs_dataset_views(d), "samples/train-s4", &held, &first, &err),
		&err);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "samples/train-s4-n%d", i + 1);
		unit_ok(mfs_views_hold(mfs_dataset_views(d), name, &other, &view, &err), &err);
		mfs_keeper_drop(other);
	}
	ck_assert_uint_eq(mfs_open_set_count(&d->views.open), 1 + MFS_DATA_KEEP_OPEN);
	/* A few digits ask for no terabytes. */
	unit_fails(mfs_views_hold(mfs_dataset_views(d), "samples/train-s1-n5000000000", &other,
				  &view, &err),
		   &err, -EINVAL, "5000000000 samples are too many: their indices would take");
	unit_ok(mfs_views_hold(mfs_dataset_views(d), "samples/train-s4", &other, &view, &err),
		&err);
	ck_assert_ptr_eq(view, first);
	mfs_keeper_drop(held);
	mfs_keeper_drop(other);
	mfs_data_free(data);
}
END_TEST

static void place_is(struct mfs_root *root, const char *name, const char *expected)
{
	char text[MFS_PLACE_NAME];
	struct mfs_place place;
	struct mfs_error err;

	unit_ok(mfs_root_find(root, name, &place, &err), &err);
	ck_assert_str_eq(mfs_place_name(root, &place, text), expected);
}

START_TEST(root_of_datasets)
{
	const struct mfs_view_options none = {0};
	const char *dir = unit_tmpdir();
	struct mfs_place place;
	struct mfs_root *root;
	struct mfs_error err;

	write_prefix(dir, "a");
	unit_ok(mfs_root_open(path(dir, "a"), &none, &root, &err), &err);
	ck_assert(!mfs_root_has_model(root) && !mfs_root_has_iterations(root));
	place_is(root, NULL, "data/a/hf");
	place_is(root, "data/a/samples/train-s4/", "data/a/samples/train-s4");
	place_is(root, "data/a", "data/a");
	place_is(root, "data", "data/");
	unit_fails(mfs_root_find(root, "hf", &place, &err), &err, -ENODATA, "no model");
	unit_fails(mfs_root_find(root, "data/b/hf", &place, &err), &err, -ENOENT, "NAME of: a");
	mfs_root_free(root);
	write_prefix(dir, "b");
	unit_ok(mfs_root_open(dir, &none, &root, &err), &err);
	unit_fails(mfs_root_find(root, NULL, &place, &err), &err, -ENOENT, "a, b");
	mfs_root_free(root);
}
END_TEST

START_TEST(next_to_a_model)
{
	const char *dir = unit_tmpdir();
	struct mfs_data_options data = {.path_count = 1, .paths = {dir}};
	const struct mfs_view_options opt = {.data = &data};
	struct mfs_place place;
	struct mfs_root *root;
	struct mfs_error err;

	write_prefix(dir, "a");
	unit_ok(mfs_root_open(unit_fixture("resume/llama-torch_dist-tp2-pp2"), &opt, &root, &err),
		&err);
	ck_assert(mfs_root_has_model(root) && mfs_root_has_iterations(root));
	place_is(root, NULL, "iter_0000040/hf");
	place_is(root, "data/a/npy", "data/a/npy");
	mfs_root_free(root);
	data.path_count = 0;
	unit_ok(mfs_root_open(unit_fixture("resume/llama-torch_dist-tp2-pp2"), &opt, &root, &err),
		&err);
	unit_fails(mfs_root_find(root, "data/a/npy", &place, &err), &err, -ENOENT, "-o data=");
	mfs_root_free(root);
}
END_TEST

static void copy_model(const char *dir, const char *from, const char *name)
{
	char path[256];
	uint8_t *bytes;
	size_t len;

	snprintf(path, sizeof(path), "tests/fixtures/tokenizers/models/%s", from);
	bytes = unit_slurp(path, &len);
	unit_write(dir, name, bytes, len);
	free(bytes);
}

/* What datasets' text is made of is known by all files that may be read. */
START_TEST(a_tokenizers_files_are_noted)
{
	const struct mfs_named_tokens *names;
	struct mfs_data_tokenizer *t;
	struct mfs_fileset *files;
	struct mfs_error err;

	copy_model(unit_tmpdir(), "small.tiktoken", "qwen.tiktoken");
	copy_model(unit_tmpdir(), "tiktoken.json", "tiktoken.json");
	unit_ok(mfs_data_tokenizer_new(unit_tmpdir(), &t, &err), &err);
	unit_ok(mfs_data_tokenizer_names(t, &names, &err), &err);
	files = mfs_data_tokenizer_files(t);
	ck_assert_uint_eq(mfs_fileset_count(files), 2);
	ck_assert_str_eq(mfs_fileset_name(files, 0), "tiktoken.json");
	ck_assert_str_eq(mfs_fileset_name(files, 1), "qwen.tiktoken");
	mfs_data_tokenizer_free(t);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("data");
	TCase *c = unit_case(s, "data", datasets_are_found_by_name_and_by_file);

	tcase_add_test(c, several_paths);
	unit_case(s, "order of a merge", order_of_a_merge);
	tcase_add_test(c, directories_without_a_dataset_are_refused);
	tcase_add_test(c, views_are_opened_once);
	unit_case(s, "views do not wait for each other", views_do_not_wait_for_each_other);
	unit_case(s, "idle views", idle_views_are_let_go);
	tcase_add_test(c, root_of_datasets);
	tcase_add_test(c, next_to_a_model);
	tcase_add_test(c, a_tokenizers_files_are_noted);
	return s;
}
