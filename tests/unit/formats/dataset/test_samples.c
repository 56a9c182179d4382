/* Samples of a training run: formats/dataset/gpt/gpt_run.h, samples.h, rows_samples.h. Against
 * Megatron itself: tests/interop/test_samples.py. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/dataset/files/npy.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/gpt/rows_samples.h"
#include "formats/dataset/rows/row_ranges.h"
#include "formats/io/guard.h"
#include "tests/unit/fake_idx.h"
#include "tests/unit/fake_rows.h"
#include "tests/unit/npy_file.h"

static struct mfs_error err;

/* ---- datasets by name ---- */

#define MOST 4

struct named {
	const char *name;
	const struct mfs_rows *rows;
};
static struct named known[MOST];

static int resolve(void *arg, const char *prefix, const struct mfs_rows **ret, struct mfs_error *e)
{
	(void)arg;
	for (int i = 0; i < MOST; i++)
		if (known[i].name && !strcmp(known[i].name, prefix)) {
			*ret = known[i].rows;
			return 0;
		}
	return mfs_fail(e, -ENOENT, "no dataset '%s'", prefix);
}

static int open_samples(struct mfs_run *run, const char *words, enum mfs_split split,
			struct mfs_samples **ret)
{
	struct mfs_blend_args args;
	int rc = mfs_blend_args_parse_text(words, strlen(words), &args, &err);

	if (rc)
		return rc;
	if (run->split)
		run->blend = &args;
	else
		run->per_split[split] = &args;
	rc = mfs_samples_new(run, split, resolve, NULL, ret, &err);
	run->blend = NULL;
	run->per_split[split] = NULL;
	mfs_blend_args_release(&args);
	return rc;
}

static struct mfs_run run_of(uint32_t seq_length, uint64_t samples)
{
	return (struct mfs_run){.split = "100",
				.seq_length = seq_length,
				.seed = 1234,
				.samples = {samples, samples, samples},
				.rules = mfs_dataset_rules_default()};
}

/* count rows of up to 20 tokens, some of none. */
static struct fake_rows *random_rows(enum mfs_dtype dtype, uint64_t count)
{
	uint64_t *lengths = calloc(count, sizeof(*lengths));
	struct fake_rows *f;

	for (uint64_t i = 0; i < count; i++)
		lengths[i] = rand() % 4 ? (uint64_t)rand() % 21 : 0;
	lengths[0] = 20;
	f = fake_rows_new(dtype, lengths, count);
	free(lengths);
	return f;
}

static void know(const char *name, struct fake_rows *f)
{
	for (int i = 0; i < MOST; i++)
		if (!known[i].name) {
			known[i] = (struct named){name, &f->rows};
			return;
		}
	ck_abort();
}

static void forget(void)
{
	for (int i = 0; i < MOST; i++)
		if (known[i].name)
			mfs_rows_free((struct mfs_rows *)known[i].rows);
	memset(known, 0, sizeof(known));
}

/* ---- how many are asked for ---- */

START_TEST(a_run_asks_for_megatrons_numbers_of_samples)
{
	struct mfs_run_length l = {
		.train_iters = 41, .global_batch_size = 8, .eval_interval = 20, .eval_iters = 3};
	uint64_t n[MFS_SPLITS];

	/* training.py: 41 * 8, (41 // 20 + 1) * 3 * 8, 3 * 8 */
	unit_ok(mfs_run_samples(&l, n, &err), &err);
	ck_assert_uint_eq(n[MFS_TRAIN], 328);
	ck_assert_uint_eq(n[MFS_VALID], 72);
	ck_assert_uint_eq(n[MFS_TEST], 24);
	/* from iteration 25 on there is one less: 25 // 20; batches of 5 */
	l.start_eval_at_iter = 25;
	l.eval_batch_size = 5;
	unit_ok(mfs_run_samples(&l, n, &err), &err);
	ck_assert_uint_eq(n[MFS_TRAIN], 328);
	ck_assert_uint_eq(n[MFS_VALID], 30);
	ck_assert_uint_eq(n[MFS_TEST], 15);
	l.start_eval_at_iter = 80;
	unit_ok(mfs_run_samples(&l, n, &err), &err);
	ck_assert_uint_eq(n[MFS_VALID], 0);
	l.train_samples = 1000;
	l.full_validation = true;
	unit_ok(mfs_run_samples(&l, n, &err), &err);
	ck_assert_uint_eq(n[MFS_TRAIN], 1000);
	ck_assert_uint_eq(n[MFS_VALID], MFS_GPT_ONE_EPOCH);
	l.full_validation = false;
	l.eval_interval = 0;
	unit_fails(mfs_run_samples(&l, n, &err), &err, -EINVAL, "eval_interval");
	l.eval_interval = 1;
	l.train_samples = 0;
	l.train_iters = UINT64_MAX / 2;
	unit_fails(mfs_run_samples(&l, n, &err), &err, -EINVAL, "too many");
	l.global_batch_size = 0;
	unit_fails(mfs_run_samples(&l, n, &err), &err, -EINVAL, "batch size");
}
END_TEST

/* ---- what there is ---- */

static uint64_t count_of(struct mfs_run *run, const char *words, bool blended)
{
	struct mfs_samples *s;
	uint64_t count;

	unit_ok(open_samples(run, words, MFS_TRAIN, &s), &err);
	unit_ok(mfs_samples_check(s, &err), &err);
	count = mfs_samples_count(s);
	ck_assert_int_eq(mfs_samples_blend(s) != NULL, blended);
	mfs_samples_free(s);
	return count;
}

/* By the builder's four cases; 100 tokens an epoch are 9 samples of 10 + 1. */
START_TEST(sizes_follow_the_builders_four_cases)
{
	const uint64_t hundred[] = {60, 0, 40}, fifty[] = {50};
	struct mfs_run run = run_of(10, 30);

	know("a", fake_rows_new(MFS_I32, hundred, 3));
	know("b", fake_rows_new(MFS_I32, fifty, 1));
	/* 30 samples need 301 tokens, four epochs, which have 39. */
	ck_assert_uint_eq(count_of(&run, "a", false), 39);
	ck_assert_uint_eq(count_of(&run, "1.0 a", true), 30);
	/* ceil(30 * 0.7) + ceil(30 * 0.3); 2/3 and 1/3 are 20 and 10 */
	ck_assert_uint_eq(count_of(&run, "7 a 3 b", true), 30);
	ck_assert_uint_eq(count_of(&run, "0.71 a 0.29 b", true), 31);
	/* One epoch each is 9 + 4. */
	ck_assert_uint_eq(count_of(&run, "a b", true), 13);
	run.samples[MFS_TRAIN] = 7;
	ck_assert_uint_eq(count_of(&run, "a b", true), 7);
	run.samples[MFS_TRAIN] = MFS_GPT_ONE_EPOCH;
	ck_assert_uint_eq(count_of(&run, "a b", true), 13);
	ck_assert_uint_eq(count_of(&run, "a", false), 9);
	/* A split's own single prefix is never blended. */
	run.samples[MFS_TRAIN] = 30;
	run.split = NULL;
	ck_assert_uint_eq(count_of(&run, "1.0 a", false), 39);
	unit_ok(mfs_dataset_rules_of("2.6", &run.rules, &err), &err);
	ck_assert_uint_eq(count_of(&run, "1.0 a", true), 31); /* ceil(30 * 1.005) */
	forget();
}
END_TEST

START_TEST(words_that_make_no_samples_are_refused)
{
	const uint64_t hundred[] = {60, 40}, none[] = {0, 0};
	struct mfs_run run = run_of(10, MFS_GPT_ONE_EPOCH);
	struct mfs_samples *s;

	know("a", fake_rows_new(MFS_I32, hundred, 2));
	know("none", fake_rows_new(MFS_I32, none, 2));
	unit_fails(open_samples(&run, "1 a 1 a", MFS_TRAIN, &s), &err, -EINVAL,
		   "number of samples");
	unit_fails(open_samples(&run, "c", MFS_TRAIN, &s), &err, -ENOENT, "'c'");
	unit_fails(open_samples(&run, "none", MFS_TRAIN, &s), &err, -ENODATA, "none: no sequence");
	unit_fails(open_samples(&run, "a none", MFS_TRAIN, &s), &err, -ENODATA, "none");
	unit_fails(open_samples(&run, "a", MFS_VALID, &s), &err, -ENODATA, "valid");
	run.seq_length = 100;
	unit_fails(open_samples(&run, "a", MFS_TRAIN, &s), &err, -ENODATA, "too few for a sample");
	run.seq_length = 0;
	unit_fails(open_samples(&run, "a", MFS_TRAIN, &s), &err, -EINVAL, "sequence length");
	run.seq_length = 10;
	run.split = "0,0,0";
	unit_fails(open_samples(&run, "a", MFS_TRAIN, &s), &err, -EINVAL, "split");
	run.split = NULL;
	unit_fails(open_samples(&run, "2 a", MFS_TRAIN, &s), &err, -EINVAL, "weight");
	unit_fails(mfs_samples_new(&run, MFS_TEST, resolve, NULL, &s, &err), &err, -ENODATA,
		   "test");
	run.rules.before_core = true;
	unit_fails(open_samples(&run, "a a a", MFS_TRAIN, &s), &err, -EINVAL, "before core");
	forget();
}
END_TEST

/* The others' shares are less than a sample, of which each is asked for one: the first fills up to
 * them. */
START_TEST(one_dataset_among_many_is_drawn_beyond_its_surplus)
{
	const uint64_t hundred[] = {60, 40};
	struct mfs_run run = run_of(10, 20);
	char words[2000] = "0.9 a";
	struct mfs_samples *s;

	know("a", fake_rows_new(MFS_I32, hundred, 2));
	for (int i = 0; i < 100; i++)
		strcat(words, " 0.001 a");
	unit_ok(open_samples(&run, words, MFS_TRAIN, &s), &err);
	/* 18 and a hundred times 1, of which 0.9 are 106; three epochs of it have 29. */
	ck_assert_uint_eq(mfs_samples_count(s), 118);
	unit_fails(mfs_samples_check(s, &err), &err, -ERANGE, "surplus");
	mfs_samples_free(s);
	forget();
}
END_TEST

/* ---- tokens, by the definitions ---- */

struct truth {
	struct mfs_samples *samples;
	int16_t *part;
	int64_t *sample;
	int64_t *tokens; /* of all samples */
	uint64_t length;
};

/* helpers.cpp: build_blending_indices */
static void draw(struct truth *t, const double *weights, uint64_t size)
{
	double counts[MOST] = {0};

	for (uint64_t s = 0; s < size; s++) {
		const double m = s > 1 ? (double)s : 1;
		double error = -INFINITY;
		int16_t who = 0;

		for (int16_t d = 0; d < (int16_t)mfs_samples_members(t->samples); d++)
			if (weights[d] * m - counts[d] > error) {
				error = weights[d] * m - counts[d];
				who = d;
			}
		t->part[s] = who;
		t->sample[s] = (int64_t)counts[who]++;
	}
}

static int64_t token_of(const struct mfs_rows *r, uint64_t t)
{
	int64_t wide;

	mfs_dtype_widen(r->dtype, fake_rows_of(r)->tokens + t * r->token_size, 1, &wide);
	return wide;
}

/* Documents one after the other, in the order of the document index. */
static int64_t *stream_of(const struct mfs_samples_member *part)
{
	const uint64_t documents = mfs_gpt_dataset_documents(part->gpt);
	const uint64_t *starts = fake_rows_of(part->rows)->starts;
	int64_t *stream = calloc(mfs_gpt_dataset_sizes(part->gpt)->tokens + 1, sizeof(*stream));
	int32_t *order = calloc(documents, sizeof(*order));
	uint64_t at = 0;

	unit_ok(mfs_gpt_dataset_document_index(part->gpt, 0, documents, order, &err), &err);
	for (uint64_t i = 0; i < documents; i++)
		for (uint64_t t = starts[order[i]]; t < starts[order[i] + 1]; t++)
			stream[at++] = token_of(part->rows, t);
	free(order);
	return stream;
}

static void fill(struct truth *t, int64_t pad)
{
	int64_t *streams[MOST];

	for (uint32_t i = 0; i < mfs_samples_members(t->samples); i++)
		streams[i] = stream_of(mfs_samples_member(t->samples, i));
	for (uint64_t s = 0; s < mfs_samples_count(t->samples); s++) {
		struct mfs_gpt_dataset *g =
			mfs_samples_member(t->samples, (uint32_t)t->part[s])->gpt;
		uint64_t k;

		unit_ok(mfs_gpt_dataset_shuffle_index(g, (uint64_t)t->sample[s], 1, &k, &err),
			&err);
		for (uint64_t i = 0; i < t->length; i++) {
			const uint64_t at = k * mfs_gpt_dataset_config(g)->seq_length + i;

			t->tokens[s * t->length + i] = at < mfs_gpt_dataset_sizes(g)->tokens
							       ? streams[t->part[s]][at]
							       : pad;
		}
	}
	for (uint32_t i = 0; i < mfs_samples_members(t->samples); i++)
		free(streams[i]);
}

static struct truth truth_of(struct mfs_samples *s, const double *weights, int64_t pad)
{
	const uint64_t count = mfs_samples_count(s), length = mfs_samples_length(s);
	struct truth t = {s, calloc(count, 2), calloc(count, 8), calloc(count * length, 8), length};

	if (weights)
		draw(&t, weights, count);
	for (uint64_t i = 0; i < count && !weights; i++)
		t.sample[i] = (int64_t)i;
	fill(&t, pad);
	return t;
}

static void free_truth(struct truth *t)
{
	free(t->part);
	free(t->sample);
	free(t->tokens);
}

static void check_rows(const struct mfs_rows *r, const struct truth *t)
{
	int64_t *wide = calloc(r->tokens + 1, sizeof(*wide));

	ck_assert_uint_eq(r->rows, mfs_samples_count(t->samples));
	ck_assert_uint_eq(r->row_length, t->length);
	for (int i = 0; i < 60; i++) {
		const uint64_t first = i ? (uint64_t)rand() % r->tokens : 0;
		const uint64_t most = r->tokens - first;
		uint64_t count = i ? (uint64_t)rand() % (i % 4 ? 3 * t->length : r->tokens) : most;

		count = count < most ? count : most;
		unit_ok(mfs_rows_read_int64(r, first, count, wide, &err), &err);
		ck_assert_mem_eq(wide, t->tokens + first, count * sizeof(*wide));
	}
	free(wide);
}

static void check_ids(const struct mfs_rows *r, const struct truth *t)
{
	int16_t *ids = calloc(r->rows, sizeof(*ids));

	ck_assert_uint_eq(r->column_count, 1);
	ck_assert_str_eq(r->columns[0].name, "dataset_id");
	ck_assert_int_eq(r->columns[0].dtype, MFS_I16);
	unit_ok(mfs_rows_column(r, 0, 0, r->rows, ids, &err), &err);
	ck_assert_mem_eq(ids, t->part, r->rows * sizeof(*ids));
	free(ids);
}

START_TEST(samples_of_one_dataset_are_its_tokens)
{
	static const enum mfs_dtype dtypes[] = {MFS_U16, MFS_I32, MFS_I64, MFS_U8};

	srand(5);
	for (int i = 0; i < 40; i++) {
		struct mfs_run run = run_of(1 + (uint32_t)rand() % 30, (uint64_t)rand() % 300);
		const enum mfs_split split = i % 2 ? MFS_VALID : MFS_TRAIN;
		struct mfs_samples *s;
		struct mfs_rows *rows;
		struct truth t;

		run.no_extra_token = i % 3 == 0;
		run.keep_last_partial = i % 5 == 0;
		run.split = "1,1,0";
		run.seed = (uint32_t)rand();
		know("a", random_rows(dtypes[i % 4], 100));
		if (open_samples(&run, "a", split, &s) || mfs_samples_build(s, NULL, 0, 2, &err)) {
			unit_sentence(err.msg, "the last sequence is empty");
			forget();
			continue;
		}
		unit_ok(mfs_rows_samples(s, "samples", 5, &rows, &err), &err);
		ck_assert_int_eq(rows->dtype, dtypes[i % 4]);
		ck_assert_uint_eq(rows->column_count, 0);
		t = truth_of(s, NULL, 5);
		check_rows(rows, &t);
		free_truth(&t);
		mfs_rows_free(rows);
		mfs_samples_free(s);
		forget();
	}
}
END_TEST

/* Types are widened to one that holds all of them. */
START_TEST(types_of_a_blend_are_widened)
{
	static const double weights[] = {0.5, 0.2, 0.3};
	static const struct {
		enum mfs_dtype of[3], all;
	} types[] = {
		{{MFS_U16, MFS_U16, MFS_U16}, MFS_U16}, {{MFS_U16, MFS_I32, MFS_U8}, MFS_I32},
		{{MFS_U8, MFS_I8, MFS_U8}, MFS_I16},	{{MFS_I32, MFS_U32, MFS_I8}, MFS_I64},
		{{MFS_I16, MFS_U16, MFS_U8}, MFS_I32},	{{MFS_I64, MFS_U16, MFS_I32}, MFS_I64}};

	srand(6);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++) {
		struct mfs_run run = run_of(1 + (uint32_t)rand() % 20, 200);
		struct mfs_samples *s;
		struct mfs_rows *rows;
		struct truth t;

		know("a", random_rows(types[i].of[0], 80));
		know("b", random_rows(types[i].of[1], 70));
		know("c", random_rows(types[i].of[2], 30));
		unit_ok(open_samples(&run, "5 a 2 b 3 c", MFS_TRAIN, &s), &err);
		unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
		ck_assert_int_eq(rows->dtype, types[i].all);
		t = truth_of(s, weights, 0);
		check_rows(rows, &t);
		check_ids(rows, &t);
		free_truth(&t);
		mfs_rows_free(rows);
		mfs_samples_free(s);
		forget();
	}
}
END_TEST

START_TEST(types_refused)
{
	struct mfs_run run = run_of(4, 10);
	struct mfs_samples *s;
	struct mfs_rows *rows;

	know("a", random_rows(MFS_F32, 20));
	know("b", random_rows(MFS_U16, 20));
	unit_ok(open_samples(&run, "1 a 1 b", MFS_TRAIN, &s), &err);
	unit_fails(mfs_rows_samples(s, "samples", 0, &rows, &err), &err, -ENOTSUP, "uint16");
	mfs_samples_free(s);
	unit_ok(open_samples(&run, "b", MFS_TRAIN, &s), &err);
	unit_fails(mfs_rows_samples(s, "samples", -1, &rows, &err), &err, -EINVAL, "-1");
	mfs_samples_free(s);
	/* As they are, floats are samples too. */
	unit_ok(open_samples(&run, "a", MFS_TRAIN, &s), &err);
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	ck_assert_int_eq(rows->dtype, MFS_F32);
	mfs_rows_free(rows);
	mfs_samples_free(s);
	forget();
}
END_TEST

/* ---- the fixtures' run: 40 steps of 8 ---- */

static const char *const prefixes[] = {"data/tales_text_document", "data/notes_text_document"};

struct files {
	struct mfs_indexed_dataset *data[2];
	struct mfs_rows *rows[2];
};

static void open_fixtures(struct files *f)
{
	for (int i = 0; i < 2; i++) {
		const char *path = unit_fixture(prefixes[i]);

		unit_ok(mfs_indexed_dataset_open(&path, 1, &f->data[i], &err), &err);
		unit_ok(mfs_rows_indexed(f->data[i], &f->rows[i], &err), &err);
		known[i] = (struct named){prefixes[i], f->rows[i]};
	}
}

static void close_files(struct files *f)
{
	for (int i = 0; i < 2; i++) {
		mfs_rows_free(f->rows[i]);
		mfs_indexed_dataset_free(f->data[i]);
	}
	memset(known, 0, sizeof(known));
}

static struct mfs_samples *fixtures_run(void)
{
	struct mfs_run run = run_of(128, 320);
	struct mfs_samples *s;

	run.split = "90,10,0";
	unit_ok(open_samples(&run, "0.7 data/tales_text_document 0.3 data/notes_text_document",
			     MFS_TRAIN, &s),
		&err);
	return s;
}

/* What megatron-core 0.16.1 gives for steps 1 and 40. */
START_TEST(megatrons_steps)
{
	struct files f;
	struct mfs_samples *s;
	struct mfs_rows *rows;

	open_fixtures(&f);
	s = fixtures_run();
	ck_assert_uint_eq(mfs_samples_count(s), 320);
	ck_assert_uint_eq(mfs_gpt_dataset_config(mfs_samples_member(s, 0)->gpt)->samples, 226);
	ck_assert_uint_eq(mfs_gpt_dataset_config(mfs_samples_member(s, 1)->gpt)->samples, 97);
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	for (unsigned step = 1; step <= 40; step += 39) {
		int64_t tokens[8 * 129];
		char path[64];
		uint64_t samples;
		uint8_t *bytes;
		size_t len;

		snprintf(path, sizeof(path), "data/megatron_samples/train-step-%u.npy", step);
		bytes = unit_slurp(unit_fixture(path), &len);
		unit_ok(mfs_rows_read_int64(rows, (step - 1) * 8 * 129, 8 * 129, tokens, &err),
			&err);
		ck_assert_mem_eq(tokens, npy_elements(bytes, len, "<i8", &samples), sizeof(tokens));
		ck_assert_uint_eq(samples, 8);
		free(bytes);
	}
	mfs_rows_free(rows);
	mfs_samples_free(s);
	close_files(&f);
}
END_TEST

/* Validation sets that are kept apart: each is its dataset alone, whatever the others are. */
START_TEST(validation_sets)
{
	struct mfs_blend_args args, one;
	struct mfs_run run = run_of(128, 40);
	struct mfs_samples *s;
	struct mfs_run_set set;
	struct files f;
	const char *words[] = {prefixes[0], prefixes[1], prefixes[0]};

	open_fixtures(&f);
	unit_ok(mfs_blend_args_parse(words, 3, &args, &err), &err);
	run.samples[MFS_VALID] = MFS_GPT_ONE_EPOCH;
	run.split = NULL;
	run.per_split[MFS_TRAIN] = run.per_split[MFS_VALID] = &args;
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_VALID), 1);
	run.multiple_validation_sets = true;
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_TRAIN), 1);
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_TEST), 1);
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_VALID), 3);
	for (uint32_t i = 0; i < 3; i++) {
		mfs_run_set(&run, MFS_VALID, i, &set);
		unit_ok(mfs_samples_new(&set.run, MFS_VALID, resolve, NULL, &s, &err), &err);
		ck_assert_ptr_null(mfs_samples_blend(s));
		ck_assert_str_eq(mfs_samples_member(s, 0)->prefix, words[i]);
		ck_assert_uint_eq(mfs_gpt_dataset_config(mfs_samples_member(s, 0)->gpt)->samples,
				  MFS_GPT_ONE_EPOCH);
		mfs_samples_free(s);
	}
	mfs_run_set(&run, MFS_TRAIN, 0, &set);
	ck_assert_ptr_eq(set.run.per_split[MFS_TRAIN], &args);
	/* What all splits are parts of is one blend. */
	run.blend = &args;
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_VALID), 1);
	run.blend = NULL;
	unit_ok(mfs_blend_args_parse(words, 1, &one, &err), &err);
	run.per_split[MFS_VALID] = &one;
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_VALID), 1);
	run.per_split[MFS_VALID] = NULL;
	ck_assert_uint_eq(mfs_run_sets(&run, MFS_VALID), 1);
	mfs_blend_args_release(&one);
	mfs_blend_args_release(&args);
	close_files(&f);
}
END_TEST

struct reader {
	struct mfs_rows *rows;
	uint64_t sum;
	int rc;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	int64_t tokens[700];

	for (uint64_t at = 0, n; at < r->rows->tokens && !r->rc; at += n) {
		n = r->rows->tokens - at < 700 ? r->rows->tokens - at : 700;
		r->rc = mfs_rows_read_int64(r->rows, at, n, tokens, NULL);
		for (uint64_t i = 0; i < n; i++)
			r->sum = r->sum * 31 + (uint64_t)tokens[i];
	}
	return NULL;
}

/* The first thread has the indices made. */
START_TEST(the_first_thread_has_the_indices_made)
{
	enum { READERS = 4 };
	struct reader readers[READERS];
	pthread_t threads[READERS];
	struct files f;
	struct mfs_samples *s;
	struct mfs_rows *rows;

	open_fixtures(&f);
	s = fixtures_run();
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	for (int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){.rows = rows};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
	}
	for (int i = 0; i < READERS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(readers[i].rc, 0);
		ck_assert_uint_eq(readers[i].sum, readers[0].sum);
	}
	mfs_rows_drop(rows);
	mfs_rows_free(rows);
	mfs_samples_free(s);
	close_files(&f);
}
END_TEST

/* ---- damage ---- */

#define DOCUMENTS 60
#define LENGTH	  10

/* "b" of 60 documents of 10 tokens, the token saying its document; the .bin ends after so many. */
static void write_short(const char *dir, unsigned documents)
{
	int32_t lengths[DOCUMENTS], tokens[DOCUMENTS * LENGTH];
	const struct fake_idx f = {.sequences = DOCUMENTS, .code = 4, .lengths = lengths};
	struct mfs_buf idx = {0};

	for (int i = 0; i < DOCUMENTS * LENGTH; i++) {
		tokens[i] = i / LENGTH;
		lengths[i / LENGTH] = LENGTH;
	}
	fake_idx(&idx, &f);
	unit_write(dir, "b.idx", idx.data, idx.len);
	unit_write(dir, "b.bin", tokens, documents * LENGTH * sizeof(*tokens));
	mfs_buf_release(&idx);
}

static void open_short(const char *dir, struct files *f)
{
	char path[512];
	const char *prefix = path;

	snprintf(path, sizeof(path), "%s/b", dir);
	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &f->data[0], &err), &err);
	unit_ok(mfs_rows_indexed(f->data[0], &f->rows[0], &err), &err);
	f->data[1] = NULL;
	f->rows[1] = NULL;
	known[0] = (struct named){"b", f->rows[0]};
}

struct needs {
	bool bad;
};

static int look(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *e)
{
	struct needs *n = arg;

	(void)e;
	n->bad |= piece->sequence >= DOCUMENTS - 4;
	return 0;
}

static bool listed(const struct mfs_rows *r, uint64_t row)
{
	for (size_t i = 0; i < r->bad.count; i++)
		if (row >= r->bad.list[i].first && row < r->bad.list[i].end)
			return true;
	return false;
}

/* Each sample by itself: -EIO if it needs one of the four documents that are not there, and only
 * then. */
static void check_short(const struct mfs_rows *r, struct mfs_samples *s)
{
	int32_t tokens[32];
	unsigned bad = 0;

	for (uint64_t i = 0; i < r->rows; i++) {
		struct needs n = {false};
		int16_t part;
		int64_t sample;
		uint32_t padding;
		int rc = mfs_rows_read(r, i * r->row_length, r->row_length, tokens, &err);

		unit_ok(mfs_samples_locate(s, i, 1, &part, &sample, &err), &err);
		unit_ok(mfs_gpt_dataset_pieces(mfs_samples_member(s, (uint32_t)part)->gpt,
					       (uint64_t)sample, look, &n, &padding, &err),
			&err);
		ck_assert_int_eq(rc, n.bad ? -EIO : 0);
		ck_assert_int_eq(listed(r, i), n.bad);
		bad += n.bad;
	}
	ck_assert_uint_gt(bad, 3);
	ck_assert_uint_lt(bad, r->rows / 2);
}

START_TEST(short_bin)
{
	static const char *const words[] = {"b", "0.4 b 0.6 b"};
	const char *dir = unit_tmpdir();
	struct mfs_run run = run_of(7, 150);
	struct files f;

	write_short(dir, DOCUMENTS - 4);
	open_short(dir, &f);
	for (int i = 0; i < 4; i++) {
		struct mfs_samples *s;
		struct mfs_rows *rows;

		run.no_extra_token = i / 2;
		unit_ok(open_samples(&run, words[i % 2], MFS_TRAIN, &s), &err);
		unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
		check_short(rows, s);
		mfs_rows_free(rows);
		mfs_samples_free(s);
	}
	close_files(&f);
}
END_TEST

/* So many epochs that a list of bad samples is full: those after it are errors all the same. */
START_TEST(short_bin_of_many_epochs)
{
	const char *dir = unit_tmpdir();
	struct mfs_run run = run_of(7, 200000);
	struct mfs_rows *rows;
	struct mfs_samples *s;
	struct files f;
	int32_t tokens[8];
	unsigned refused = 0, read = 0;

	write_short(dir, DOCUMENTS - 4);
	open_short(dir, &f);
	unit_ok(open_samples(&run, "b", MFS_TRAIN, &s), &err);
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	ck_assert_uint_eq(rows->bad.count, MFS_ROW_RANGES_MAX);
	for (uint64_t i = rows->bad.list[rows->bad.count - 1].end; i < rows->rows; i++) {
		int rc = mfs_rows_read(rows, i * 8, 8, tokens, &err);

		ck_assert(!rc || rc == -EIO);
		refused += rc != 0;
		read += !rc;
	}
	ck_assert_uint_gt(refused, 1000);
	ck_assert_uint_gt(read, refused);
	mfs_rows_free(rows);
	mfs_samples_free(s);
	close_files(&f);
}
END_TEST

/* No sample is asked for, and none fits: there is none to mark either. */
START_TEST(short_bin_of_no_sample)
{
	const char *dir = unit_tmpdir();
	struct mfs_run run = run_of(DOCUMENTS * LENGTH, 0);
	struct mfs_rows *rows;
	struct mfs_samples *s;
	struct files f;

	write_short(dir, 1);
	open_short(dir, &f);
	unit_ok(open_samples(&run, "b", MFS_TRAIN, &s), &err);
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	ck_assert_uint_eq(rows->rows, 0);
	ck_assert_uint_eq(rows->bad.count, 0);
	mfs_rows_free(rows);
	mfs_samples_free(s);
	close_files(&f);
}
END_TEST

/* What takes long is not tried: two of these three could be read, with 320 MB each. */
START_TEST(short_bin_of_long_samples)
{
	static const int32_t lengths[] = {240000001, 1};
	const struct fake_idx fake = {.sequences = 2, .code = 4, .lengths = lengths};
	struct mfs_run run = run_of(80000000, MFS_GPT_ONE_EPOCH);
	const char *dir = unit_tmpdir();
	struct mfs_buf idx = {0};
	struct mfs_rows *rows;
	struct mfs_samples *s;
	struct files f;
	char path[512];

	fake_idx(&idx, &fake);
	unit_write(dir, "b.idx", idx.data, idx.len);
	unit_write(dir, "b.bin", "", 0);
	mfs_buf_release(&idx);
	snprintf(path, sizeof(path), "%s/b.bin", dir);
	ck_assert_int_eq(truncate(path, 4 * 240000000L), 0);
	open_short(dir, &f);
	run.split = "1";
	unit_ok(open_samples(&run, "b", MFS_TRAIN, &s), &err);
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	ck_assert_uint_eq(rows->rows, 3);
	ck_assert_uint_eq(rows->bad.count, 1);
	ck_assert_uint_eq(rows->bad.list[0].end - rows->bad.list[0].first, 3);
	mfs_rows_free(rows);
	mfs_samples_free(s);
	close_files(&f);
}
END_TEST

/* Reads of good tokens next to a bad one are good. */
START_TEST(a_bad_token_spoils_its_own_reads_alone)
{
	const char *dir = unit_tmpdir();
	struct mfs_run run = run_of(7, MFS_GPT_ONE_EPOCH);
	struct mfs_rows *checked, *rows, *all;
	struct mfs_samples *s, *t;
	struct files f;
	unsigned refused = 0;

	write_short(dir, DOCUMENTS);
	open_short(dir, &f);
	unit_ok(mfs_rows_indexed(f.data[0], &checked, &err), &err);
	unit_ok(mfs_rows_set_vocab(checked, DOCUMENTS - 3, &err), &err);
	known[1] = (struct named){"checked", checked};
	unit_ok(open_samples(&run, "b", MFS_TRAIN, &s), &err);
	unit_ok(open_samples(&run, "checked", MFS_TRAIN, &t), &err);
	unit_ok(mfs_rows_samples(s, "samples", 0, &all, &err), &err);
	unit_ok(mfs_rows_samples(t, "checked", 0, &rows, &err), &err);
	for (uint64_t i = 0; i < rows->tokens; i++) {
		int32_t want, got;
		int rc = mfs_rows_read(rows, i, 1, &got, &err);

		unit_ok(mfs_rows_read(all, i, 1, &want, &err), &err);
		ck_assert_int_eq(rc, want < DOCUMENTS - 3 ? 0 : -EIO);
		ck_assert(rc || got == want);
		refused += rc != 0;
	}
	ck_assert_uint_gt(refused, 20);
	mfs_rows_free(rows);
	mfs_rows_free(all);
	mfs_samples_free(s);
	mfs_samples_free(t);
	mfs_rows_free(checked);
	close_files(&f);
}
END_TEST

START_TEST(changed_file)
{
	const char *dir = unit_tmpdir();
	struct mfs_run run = run_of(7, MFS_GPT_ONE_EPOCH);
	struct mfs_rows *rows;
	struct mfs_samples *s;
	struct files f;
	int32_t token;

	write_short(dir, DOCUMENTS);
	open_short(dir, &f);
	unit_ok(open_samples(&run, "b", MFS_TRAIN, &s), &err);
	unit_ok(mfs_rows_samples(s, "samples", 0, &rows, &err), &err);
	unit_ok(mfs_rows_read(rows, 3, 1, &token, &err), &err);
	unit_ok(mfs_rows_check(rows, &err), &err);
	write_short(dir, DOCUMENTS - 1);
	unit_fails(mfs_rows_read(rows, 3, 1, &token, &err), &err, -ESTALE, NULL);
	unit_fails(mfs_rows_check(rows, &err), &err, -ESTALE, NULL);
	mfs_rows_free(rows);
	mfs_samples_free(s);
	close_files(&f);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("samples");

	mfs_guard_install();
	unit_case(s, "lengths", a_run_asks_for_megatrons_numbers_of_samples);
	unit_case(s, "shapes", sizes_follow_the_builders_four_cases);
	unit_case(s, "refused", words_that_make_no_samples_are_refused);
	unit_case(s, "oversampled", one_dataset_among_many_is_drawn_beyond_its_surplus);
	unit_case(s, "single", samples_of_one_dataset_are_its_tokens);
	unit_case(s, "blended", types_of_a_blend_are_widened);
	unit_case(s, "types refused", types_refused);
	unit_case(s, "Megatron's steps", megatrons_steps);
	unit_case(s, "validation sets", validation_sets);
	unit_case(s, "threads", the_first_thread_has_the_indices_made);
	unit_case(s, "short .bin", short_bin);
	unit_case(s, "short .bin of many epochs", short_bin_of_many_epochs);
	unit_case(s, "short .bin of no sample", short_bin_of_no_sample);
	unit_case(s, "short .bin of long samples", short_bin_of_long_samples);
	unit_case(s, "vocabulary", a_bad_token_spoils_its_own_reads_alone);
	unit_case(s, "changed file", changed_file);
	return s;
}
