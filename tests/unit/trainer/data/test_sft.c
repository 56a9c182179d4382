/* Samples of conversations: trainer/data/sft. tests/train/sft.sh trains on them. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/sft/documents.h"
#include "formats/sft/packs_write.h"
#include "trainer/data/sft/sft_blend.h"

#define S 8

static struct mfs_error err;

static const char rows[] =
	"{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, 3]}\n"
	"\n"
	"{\"input_ids\": [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}\n"
	"{\"input_ids\": [15, 16, 17, 18, 19, 20], \"loss_mask\": [0, 0, 0, 1, 0, 1]}\n";

static int open_rows(const char *text, bool packs, uint32_t multiple, struct mft_sft **ret)
{
	static char path[256];
	const struct mft_sft_config c = {.path = path,
					 .format = "default",
					 .packs = packs,
					 .length = S,
					 .multiple = multiple,
					 .vocab = 100};
	const char *dir = unit_tmpdir();

	unit_write(dir, "rows.jsonl", text, strlen(text));
	snprintf(path, sizeof(path), "%s/rows.jsonl", dir);
	return mft_sft_open(&c, ret, &err);
}

static struct mft_sft *opened(bool packs, uint32_t multiple)
{
	struct mft_sft *s;

	unit_ok(open_rows(rows, packs, multiple, &s), &err);
	return s;
}

/* A sample as "token/label:position.first " of each place, '!' where the loss counts. */
static const char *sample(struct mft_sft *s, uint64_t n)
{
	static char text[1024];
	int32_t tokens[S], labels[S], positions[S], first[S];
	float mask[S];
	const struct mft_sft_sample to = {tokens, labels, positions, first, mask};
	const uint64_t counted = mft_sft_read(s, n, 0, &to);
	uint64_t seen = 0;
	size_t at = 0;

	for (int i = 0; i < S; i++) {
		seen += mask[i] != 0;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%d/%d:%d.%d%s ", tokens[i],
				       labels[i], positions[i], first[i], mask[i] != 0 ? "!" : "");
	}
	ck_assert_uint_eq(seen, counted);
	return text;
}

START_TEST(a_line_is_a_sample_that_is_cut_and_padded)
{
	struct mft_sft *s = opened(false, 1);

	ck_assert_uint_eq(mft_sft_count(s), 3);
	ck_assert_str_eq(sample(s, 0), "1/2:0.0 2/3:1.0! 3/0:2.0 0/0:3.0 0/0:4.0 0/0:5.0 0/0:6.0 "
				       "0/0:7.0 ");
	ck_assert_str_eq(sample(s, 1), "4/5:0.0! 5/6:1.0! 6/7:2.0! 7/8:3.0! 8/9:4.0! 9/10:5.0! "
				       "10/11:6.0! 11/0:7.0 ");
	ck_assert_str_eq(sample(s, 5), "15/16:0.0 16/17:1.0 17/18:2.0! 18/19:3.0 19/20:4.0! "
				       "20/0:5.0 0/0:6.0 0/0:7.0 ");
	mft_sft_free(s);
}
END_TEST

START_TEST(packed_conversations_are_apart)
{
	struct mft_sft *s = opened(true, 1);
	bool seen = false, whole = false;

	ck_assert_uint_eq(mft_sft_count(s), 2);
	for (uint64_t i = 0; i < 2; i++) {
		const char *text = sample(s, i);

		seen |= !strcmp(text, "1/2:0.0 2/3:1.0! 15/16:0.2 16/17:1.2 17/18:2.2! 18/19:3.2 "
				      "19/20:4.2! 0/0:5.2 ");
		whole |= !strcmp(text, "4/5:0.0! 5/6:1.0! 6/7:2.0! 7/8:3.0! 8/9:4.0! 9/10:5.0! "
				       "10/11:6.0! 11/12:7.0! ");
	}
	ck_assert(seen && whole);
	mft_sft_free(s);
	/* Places of four: two of padding after the first conversation. */
	s = opened(true, 4);
	ck_assert_uint_eq(mft_sft_count(s), 3);
	mft_sft_free(s);
}
END_TEST

START_TEST(packs_have_an_order_that_a_run_is_resumed_with)
{
	struct mft_sft *apart = opened(false, 1), *packed = opened(true, 1),
		       *again = opened(true, 1), *wide = opened(true, 4);

	ck_assert_uint_eq(mft_sft_order(apart), 0);
	ck_assert_uint_ne(mft_sft_order(packed), 0);
	ck_assert_uint_le(mft_sft_order(packed), INT64_MAX);
	ck_assert_uint_eq(mft_sft_order(packed), mft_sft_order(again));
	ck_assert_uint_ne(mft_sft_order(packed), mft_sft_order(wide));
	mft_sft_free(apart);
	mft_sft_free(packed);
	mft_sft_free(again);
	mft_sft_free(wide);
}
END_TEST

static int add(void *arg, const struct mfs_turns *turns, struct mfs_error *e)
{
	return mfs_documents_add(arg, turns, S + 1, 0, e);
}

/* The rows as packed samples in JSON lines. */
static char *packed_ahead(uint32_t multiple)
{
	struct mfs_documents d = {0};
	struct mfs_packs packs = {.documents = &d, .multiple = multiple};
	const struct mfs_talk_hooks hooks = {&d, add};
	struct mfs_talk *t;
	const char *dir = unit_tmpdir();
	size_t len;
	char path[256], *text;
	int fd;

	snprintf(path, sizeof(path), "%s/packed.jsonl", dir);
	unit_ok(mfs_talk_open(NULL, "default", false, 0, &t, &err), &err);
	for (const char *at = rows; *at; at = strchr(at, '\n') + 1)
		if (*at != '\n') {
			json_t *row = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);

			unit_ok(mfs_talk_row(t, row, &hooks, &err), &err);
			json_decref(row);
		}
	unit_ok(mfs_documents_pack(&d, S, multiple, &packs.samples, &err), &err);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_eq(mfs_packs_write(&packs, false, fd), 0);
	close(fd);
	text = (char *)unit_slurp(path, &len);
	text[len - 1] = '\0'; /* the last newline */
	mfs_talk_free(t);
	mfs_documents_release(&d);
	return text;
}

START_TEST(samples_that_were_packed_ahead_are_those_of_the_trainer)
{
	for (uint32_t multiple = 1; multiple <= 4; multiple *= 2) {
		char *file = packed_ahead(multiple), *text;
		struct mft_sft *own = opened(true, multiple), *s;

		unit_ok(open_rows(file, multiple == 2, multiple, &s), &err);
		ck_assert_uint_eq(mft_sft_count(s), mft_sft_count(own));
		ck_assert_uint_eq(mft_sft_order(s), mft_sft_order(own));
		/* Two epochs. */
		for (uint64_t i = 0; i < 2 * mft_sft_count(own); i++) {
			text = strdup(sample(own, i));
			ck_assert_str_eq(sample(s, i), text);
			free(text);
		}
		mft_sft_free(own);
		mft_sft_free(s);
		free(file);
	}
}
END_TEST

START_TEST(samples_that_do_not_fit_are_refused)
{
	static const char nine[] = "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9], \"loss_mask\": "
				   "[1, 1, 1, 1, 1, 1, 1, 1, 0], \"seq_start_id\": [0]}\n";
	static const char ten[] = "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], \"loss_mask\": "
				  "[1, 1, 1, 1, 1, 1, 1, 1, 0, 1], \"seq_start_id\": [0, 9]}\n";
	static const char mixed[] = "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2], "
				    "\"loss_mask\": [1, 0], \"seq_start_id\": [0]}\n";
	static const char large[] =
		"{\"input_ids\": [1, 100], \"loss_mask\": [1, 0], \"seq_start_id\": [0]}\n";
	struct mft_sft *s;

	unit_ok(open_rows(nine, false, 1, &s), &err);
	mft_sft_free(s);
	unit_fails(open_rows(nine, false, 3, &s), &err, -EINVAL,
		   "line 1: a packed sample has 9 tokens to train on");
	unit_fails(open_rows(ten, false, 1, &s), &err, -EINVAL,
		   "has 9 tokens to train on, with each document's up to a multiple of 1: expected "
		   "at most 8 (--seq-length)");
	unit_fails(open_rows(mixed, false, 1, &s), &err, -EINVAL,
		   "line 2: expected seq_start_id in all rows or in none: the first one has none");
	unit_fails(open_rows(large, false, 1, &s), &err, -EINVAL,
		   "token 1 is 100: the vocabulary has 0 to 99");
}
END_TEST

/* The first token of a blend's sample. */
static int32_t first_of(struct mft_sft_blend *b, uint64_t n)
{
	int32_t tokens[S], labels[S], positions[S], first[S];
	float mask[S];
	const struct mft_sft_sample to = {tokens, labels, positions, first, mask};
	uint64_t place;

	unit_ok(mft_sft_blend_find(b, n, &place, &err), &err);
	mft_sft_blend_read(b, place, 0, &to);
	return tokens[0];
}

static struct mft_sft_blend *blended(const char *const *words, size_t count, uint64_t samples)
{
	const struct mft_sft_config c = {
		.format = "default", .length = S, .multiple = 1, .vocab = 100};
	struct mfs_blend_args paths = {0};
	const struct mfs_run run = {.blend = &paths,
				    .samples = {[MFS_TRAIN] = samples},
				    .rules = mfs_dataset_rules_default()};
	struct mft_sft_blend *b;

	unit_ok(mfs_blend_args_parse(words, count, &paths, &err), &err);
	unit_ok(mft_sft_blend_open(&c, &run, &b, &err), &err);
	mfs_blend_args_release(&paths);
	return b;
}

static int open_split(const char *path, const char *shares, enum mfs_split split,
		      struct mft_sft **ret)
{
	const struct mft_sft_config c = {.path = path,
					 .shares = shares,
					 .split = split,
					 .format = "default",
					 .length = S,
					 .multiple = 1,
					 .vocab = 100};

	return mft_sft_open(&c, ret, &err);
}

START_TEST(a_split_without_rows_is_no_error_of_the_file)
{
	char path[256];
	struct mft_sft *s;

	unit_write(unit_tmpdir(), "few.jsonl", rows, strlen(rows));
	snprintf(path, sizeof(path), "%s/few.jsonl", unit_tmpdir());
	unit_ok(open_split(path, "969, 30, 1", MFS_TRAIN, &s), &err);
	ck_assert_uint_eq(mft_sft_count(s), 3);
	mft_sft_free(s);
	unit_fails(open_split(path, "969, 30, 1", MFS_TEST, &s), &err, -ENODATA,
		   "the test split has none of the 3 sequences");
}
END_TEST

/* Zeros, as a crash leaves them, before a row. */
START_TEST(zeros_are_no_blank_line)
{
	static const char text[] = "{\"input_ids\": [1]}\n\0\0\0{\"input_ids\": [2]}\n";
	char path[256];
	struct mft_sft *s;

	unit_write(unit_tmpdir(), "hole.jsonl", text, sizeof(text) - 1);
	snprintf(path, sizeof(path), "%s/hole.jsonl", unit_tmpdir());
	unit_fails(open_split(path, NULL, MFS_TRAIN, &s), &err, -EINVAL,
		   "hole.jsonl, line 2: no JSON");
}
END_TEST

/* Writes a file with one row in a directory of the test. */
static void write_row(const char *dir, const char *name)
{
	static const char row[] = "{\"input_ids\": [1]}\n";

	unit_write(dir, name, row, strlen(row));
}

START_TEST(a_split_is_in_one_form)
{
	static const struct {
		const char *names[2], *part; /* NULL: it is taken */
	} cases[] = {
		{{"train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"}, NULL},
		{{"train.jsonl", "train.parquet"},
		 "a split is in two forms: expected one file, or shards of one number, found "
		 "train.jsonl and train.parquet"},
		{{"train-00000-of-00001.jsonl", "train.jsonl"},
		 "found train-00000-of-00001.jsonl and train.jsonl"},
		{{"train-00000-of-00002.jsonl", "train-00001-of-00003.jsonl"},
		 "found train-00000-of-00002.jsonl and train-00001-of-00003.jsonl"},
	};
	const char *dir = unit_tmpdir();
	char path[512];
	struct mft_sft *s;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		snprintf(path, sizeof(path), "%s/form%zu", dir, i);
		ck_assert_int_eq(mkdir(path, 0700), 0);
		write_row(path, cases[i].names[0]);
		write_row(path, cases[i].names[1]);
		if (cases[i].part) {
			unit_fails(open_split(path, NULL, MFS_TRAIN, &s), &err, -EINVAL,
				   cases[i].part);
			continue;
		}
		unit_ok(open_split(path, NULL, MFS_TRAIN, &s), &err);
		ck_assert_uint_eq(mft_sft_count(s), 2);
		mft_sft_free(s);
	}
}
END_TEST

START_TEST(a_blend_takes_turns_by_weights)
{
	/* helpers.cpp: build_blending_indices of 0.3 and 0.7. */
	static const int32_t want[] = {50, 1, 60, 70, 4, 50, 60, 15, 70, 50};
	static const char others[] =
		"{\"input_ids\": [50]}\n{\"input_ids\": [60]}\n{\"input_ids\": [70]}\n";
	char one[256], other[256];
	const char *const words[] = {"0.3", one, "0.7", other};
	const char *const more[] = {"0.4", one, "0.6", other};
	struct mft_sft_blend *b, *c;

	unit_write(unit_tmpdir(), "one.jsonl", rows, strlen(rows));
	unit_write(unit_tmpdir(), "other.jsonl", others, strlen(others));
	snprintf(one, sizeof(one), "%s/one.jsonl", unit_tmpdir());
	snprintf(other, sizeof(other), "%s/other.jsonl", unit_tmpdir());
	b = blended(words, 4, 10);
	c = blended(more, 4, 10);
	for (uint64_t i = 10; i-- > 0;)
		ck_assert_int_eq(first_of(b, i), want[i]);
	ck_assert_uint_eq(mft_sft_blend_total(b), 10);
	ck_assert_uint_eq(mft_sft_blend_count(b), 6);
	ck_assert_uint_ne(mft_sft_blend_order(b), mft_sft_blend_order(c));
	mft_sft_blend_free(b);
	mft_sft_blend_free(c);
	b = blended(words + 1, 1, 10);
	ck_assert_int_eq(first_of(b, 4), 4);
	ck_assert_uint_eq(mft_sft_blend_order(b), 0);
	mft_sft_blend_free(b);
}
END_TEST

/* Opens the validation split of a blend. */
static int open_valid(const char *const *words, size_t count, struct mft_sft_blend **ret)
{
	const struct mft_sft_config c = {.split = MFS_VALID,
					 .shares = "2,1,0",
					 .format = "default",
					 .length = S,
					 .multiple = 1,
					 .vocab = 100};
	struct mfs_blend_args paths = {0};
	const struct mfs_run run = {.blend = &paths,
				    .samples = {[MFS_VALID] = 4},
				    .rules = mfs_dataset_rules_default()};
	int rc;

	unit_ok(mfs_blend_args_parse(words, count, &paths, &err), &err);
	rc = mft_sft_blend_open(&c, &run, ret, &err);
	mfs_blend_args_release(&paths);
	return rc;
}

START_TEST(a_blend_has_rows_of_all_paths_or_of_none)
{
	char one[256], all[256];
	const char *const some[] = {"0.3", one, "0.7", all};
	const char *const none[] = {"0.3", one, "0.7", one};
	struct mft_sft_blend *b;

	/* A third of one row is none. */
	write_row(unit_tmpdir(), "single.jsonl");
	unit_write(unit_tmpdir(), "all.jsonl", rows, strlen(rows));
	snprintf(one, sizeof(one), "%s/single.jsonl", unit_tmpdir());
	snprintf(all, sizeof(all), "%s/all.jsonl", unit_tmpdir());
	unit_fails(open_valid(none, 4, &b), &err, -ENODATA, "the valid");
	unit_fails(open_valid(some, 4, &b), &err, -EINVAL,
		   "a blend needs rows of each of its paths: ");
	ck_assert_ptr_nonnull(strstr(err.msg, "single.jsonl"));
}
END_TEST

START_TEST(first_fit_is_that_of_megatron_bridge)
{
	static const uint32_t lengths[] = {3, 7, 5, 2, 2, 8}, order[] = {5, 1, 2, 0, 3, 4},
			      want[] = {2, 1, 2, 3, 3, 0};
	uint32_t bins[6];

	ck_assert_uint_eq(mfs_first_fit(lengths, order, 6, 8, bins), 4);
	for (int i = 0; i < 6; i++)
		ck_assert_uint_eq(bins[i], want[i]);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sft");
	TCase *c = unit_case(s, "sft", a_line_is_a_sample_that_is_cut_and_padded);

	tcase_add_test(c, packed_conversations_are_apart);
	tcase_add_test(c, packs_have_an_order_that_a_run_is_resumed_with);
	tcase_add_test(c, samples_that_were_packed_ahead_are_those_of_the_trainer);
	tcase_add_test(c, samples_that_do_not_fit_are_refused);
	tcase_add_test(c, a_blend_takes_turns_by_weights);
	tcase_add_test(c, a_split_without_rows_is_no_error_of_the_file);
	tcase_add_test(c, zeros_are_no_blank_line);
	tcase_add_test(c, a_split_is_in_one_form);
	tcase_add_test(c, a_blend_has_rows_of_all_paths_or_of_none);
	tcase_add_test(c, first_fit_is_that_of_megatron_bridge);
	return s;
}
