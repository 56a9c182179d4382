/* The trainer's loader: trainer/data. Against Megatron itself: tests/interop/test_trainer_data.py.
 * Its thread is begun with pthread_create(), so the Makefile runs this under TSan, too. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "formats/dataset/gpt/rows_samples.h"
#include "formats/io/guard.h"
#include "formats/args/megatron_args.h"
#include "tests/unit/npy_file.h"
#include "trainer/data/batch_fill.h"
#include "trainer/data/loader_i.h"
#include "trainer/data/stall.h"
#include "trainer/data/train_data.h"
#include "trainer/parallel/context_parallel.h"

#define VOCAB	1024
#define ENGINES 3

static struct mfs_error err;

/* ---- what a run is ---- */

static char tales[512], notes[512];
static const char *blend[4] = {"0.7", tales, "0.3", notes};

/* The run of the fixtures: 40 steps of 8 samples of 128 tokens. */
static struct mft_train_config fixtures_run(void)
{
	ck_assert_int_eq(mfs_guard_install(), 0);
	snprintf(tales, sizeof(tales), "%s", unit_fixture("data/tales_text_document"));
	snprintf(notes, sizeof(notes), "%s", unit_fixture("data/notes_text_document"));
	return (struct mft_train_config){
		.model = {.vocab_size = 1000},
		.data_path = {blend, 4},
		.split = "90,10,0",
		.seq_length = 128,
		.micro_batch_size = 2,
		.global_batch_size = 8,
		.train_iters = 40,
		.train_samples = MFS_ABSENT,
		.eval_interval = 10,
		.eval_iters = 2,
		.seed = 1234,
		.mid_level_dataset_surplus = 0.005,
		.num_workers = 2,
		.eod = MFS_ABSENT,
		.pad = MFS_ABSENT,
	};
}

static void *take_memory(void *arg, size_t bytes)
{
	*(int *)arg += 1;
	return aligned_alloc(MFT_BATCH_ALIGN, bytes);
}

static void give_memory(void *arg, void *p, size_t bytes)
{
	(void)bytes;
	*(int *)arg -= 1;
	free(p);
}

static int blocks;
static const struct mft_slot_memory_ops memory = {take_memory, give_memory, &blocks};

static struct mfs_io_engine *engine_of(int i)
{
	struct mfs_io_engine *e;

	if (i == 0 && !mfs_io_uring(MFT_LOADER_DEPTH, &e, &err))
		return e;
	if (i == 1)
		unit_ok(mfs_io_threads(MFT_LOADER_DEPTH, 3, &e, &err), &err);
	else
		unit_ok(mfs_io_calls(MFT_LOADER_DEPTH, &e, &err), &err);
	return e;
}

static struct mft_loader *open_on(const struct mft_train_config *c, enum mfs_split split,
				  uint64_t consumed, uint32_t micro, struct mfs_io_engine *e)
{
	struct mft_loader *l;

	unit_ok(mft_loader_new_on(c, split, 0, consumed, micro, VOCAB, &memory, e, &l, &err), &err);
	return l;
}

static struct mft_loader *open_loader(const struct mft_train_config *c, enum mfs_split split,
				      uint64_t consumed, uint32_t micro)
{
	struct mft_loader *l;

	unit_ok(mft_loader_new(c, split, 0, consumed, micro, VOCAB, &memory, &l, &err), &err);
	return l;
}

static void close_loader(struct mft_loader *l)
{
	mft_loader_free(l);
	ck_assert_int_eq(blocks, 0);
}

/* ---- what Megatron would make of it ---- */

/* GPTDataset.__getitem__ and _get_ltor_masks_and_position_ids, step by step. */
static void megatrons(const struct mft_batch_rules *r, const int64_t *text, struct mft_batch *b,
		      bool *attends)
{
	const int32_t n = (int32_t)r->length;

	for (int32_t i = 0; i < n; i++) {
		b->tokens[i] = (int32_t)text[i];
		b->labels[i] = (int32_t)text[i + 1];
		b->positions[i] = i;
		b->loss_mask[i] = r->eod_mask_loss && text[i] == r->eod ? 0 : 1;
		for (int32_t j = 0; j < n; j++)
			attends[i * n + j] = j <= i;
	}
	if (r->reset_position_ids || r->reset_attention_mask) {
		int32_t before = 0;

		for (int32_t i = 0; i < n; i++) {
			if (text[i] != r->eod)
				continue;
			for (int32_t k = i + 1; k < n; k++) {
				for (int32_t j = 0; r->reset_attention_mask && j <= i; j++)
					attends[k * n + j] = false;
				if (r->reset_position_ids)
					b->positions[k] -= i + 1 - before;
			}
			before = i + 1;
		}
	}
	for (int32_t i = 0; i < n; i++) {
		if (b->labels[i] == r->pad)
			b->loss_mask[i] = b->labels[i] = 0;
		if (b->tokens[i] == r->pad)
			b->tokens[i] = 0;
	}
}

static const int32_t *keys;

static int by_key(const void *a, const void *b)
{
	const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return keys[x] != keys[y] ? (keys[x] < keys[y] ? -1 : 1) : (x > y) - (x < y);
}

static void check_order(const int32_t *order, const int32_t *key, uint64_t count)
{
	int32_t *want = calloc(count, sizeof(*want));

	for (uint64_t i = 0; i < count; i++)
		want[i] = (int32_t)i;
	keys = key;
	qsort(want, count, sizeof(*want), by_key);
	ck_assert_mem_eq(order, want, count * sizeof(*want));
	free(want);
}

/* text: [B][S + 1] */
static void check_batch(const struct mft_batch_rules *r, const int64_t *text,
			const struct mft_batch *b)
{
	const uint64_t count = (uint64_t)r->sequences * r->length;
	bool *attends = calloc((size_t)r->length * r->length, sizeof(bool));
	void *block = malloc(mft_batch_bytes(r->length, 0, false));
	struct mft_batch want;
	uint64_t counted = 0, wrong = 0;
	bool documents = false;

	mft_batch_place(&want, r->length, 0, false, block);
	for (uint32_t s = 0; s < r->sequences; s++) {
		const uint64_t at = (uint64_t)s * r->length;
		const size_t size = r->length * sizeof(int32_t);

		megatrons(r, text + (uint64_t)s * (r->length + 1), &want, attends);
		ck_assert_mem_eq(b->tokens + at, want.tokens, size);
		ck_assert_mem_eq(b->labels + at, want.labels, size);
		ck_assert_mem_eq(b->positions + at, want.positions, size);
		ck_assert_mem_eq(b->loss_mask + at, want.loss_mask, size);
		for (uint32_t i = 0; i < r->length; i++) {
			for (uint32_t j = 0; j < r->length; j++)
				wrong += attends[i * r->length + j] !=
					 ((int32_t)j >= b->first_key[at + i] && j <= i);
			documents |= b->first_key[at + i] != 0;
			counted += want.loss_mask[i] != 0;
		}
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(b->counted, counted);
	ck_assert(b->documents == documents);
	check_order(b->order, b->tokens, count);
	check_order(b->position_order, b->positions, count);
	free(attends);
	free(block);
}

#define MOST_SAMPLES 2000 /* are looked at */

/* The samples that a split has, read through formats/dataset: [count][S + 1]. */
static int64_t *samples_of(const struct mft_train_config *c, enum mfs_split split,
			   uint64_t *ret_count)
{
	struct mft_train_data d;
	struct mfs_rows *rows;
	int64_t *tokens;

	unit_ok(mft_train_data_open(c, split, 0, 0, 1, VOCAB, &d, &err), &err);
	unit_ok(mfs_rows_samples(d.samples, "samples", 0, &rows, &err), &err);
	*ret_count = rows->rows < MOST_SAMPLES ? rows->rows : MOST_SAMPLES;
	tokens = calloc(*ret_count * rows->row_length, sizeof(*tokens));
	unit_ok(mfs_rows_read_int64(rows, 0, *ret_count * rows->row_length, tokens, &err), &err);
	mfs_rows_free(rows);
	mft_train_data_release(&d);
	return tokens;
}

/* Everything that a loader gives is what its samples say. */
static void check_all(const struct mft_train_config *c, enum mfs_split split, uint32_t micro,
		      struct mft_loader *l)
{
	struct mft_batch_rules rules;
	const struct mft_batch *b;
	uint64_t count;
	int64_t *tokens = samples_of(c, split, &count);

	unit_ok(mft_batch_rules_take(c, micro, VOCAB, &rules, &err), &err);
	if (count < MOST_SAMPLES)
		ck_assert_uint_eq(mft_loader_microbatches(l), count / micro);
	for (uint64_t m = 0; m < count / micro; m++) {
		unit_ok(mft_loader_next(l, &b, &err), &err);
		check_batch(&rules, tokens + m * micro * (rules.length + 1), b);
		mft_loader_give_back(l, b);
	}
	for (int i = 0; count < MOST_SAMPLES && i < 2; i++)
		unit_fails(mft_loader_next(l, &b, &err), &err, -ENODATA, "the data ends");
	free(tokens);
}

/* ---- tests ---- */

/* What megatron-core 0.16.1 gives for steps 1 and 40. */
START_TEST(megatrons_steps)
{
	const struct mft_train_config c = fixtures_run();

	for (unsigned step = 1; step <= 40; step += 39) {
		struct mft_loader *l = open_on(&c, MFS_TRAIN, (step - 1) * 8, 2, engine_of(_i));
		uint64_t samples;
		int64_t *text;
		uint8_t *bytes;
		char path[64];
		size_t len;

		snprintf(path, sizeof(path), "data/megatron_samples/train-step-%u.npy", step);
		bytes = unit_slurp(unit_fixture(path), &len);
		text = npy_elements(bytes, len, "<i8", &samples);
		ck_assert_uint_eq(samples, 8);
		for (int m = 0; m < 4; m++) {
			const struct mft_batch *b;

			unit_ok(mft_loader_next(l, &b, &err), &err);
			for (int s = 0; s < 2; s++)
				for (int i = 0; i < 128; i++) {
					const int64_t *t = text + (m * 2 + s) * 129 + i;

					ck_assert_int_eq(b->tokens[s * 128 + i], t[0]);
					ck_assert_int_eq(b->labels[s * 128 + i], t[1]);
				}
			ck_assert_uint_eq(b->counted, 256);
			ck_assert(!b->documents);
			mft_loader_give_back(l, b);
		}
		free(bytes);
		close_loader(l);
	}
}
END_TEST

/* A token that is frequent ends documents here: there are many to a sequence. */
START_TEST(masks_and_positions_follow_documents)
{
	struct mft_train_config c = fixtures_run();
	struct mft_loader *l;
	uint64_t count, most = 0;
	int64_t second = MFS_ABSENT;
	int64_t *tokens = samples_of(&c, MFS_TRAIN, &count);
	unsigned seen[VOCAB] = {0};

	for (uint64_t i = 0; i < count * 129; i++)
		if (++seen[tokens[i]] > most) {
			most = seen[tokens[i]];
			second = c.eod != tokens[i] ? c.eod : second;
			c.eod = tokens[i];
		}
	ck_assert_int_ne(second, MFS_ABSENT);
	free(tokens);
	c.reset_position_ids = _i & 1;
	c.reset_attention_mask = _i & 2;
	c.eod_mask_loss = _i & 4;
	if (_i & 8) /* with one that ends documents, too: --allow-ambiguous-pad-tokens */
		c.pad = _i & 1 ? c.eod : second;
	l = open_loader(&c, MFS_TRAIN, 0, 4);
	check_all(&c, MFS_TRAIN, 4, l);
	close_loader(l);
}
END_TEST

static void check_ahead(const struct mft_batch *b, int64_t count, int64_t length)
{
	for (int64_t k = 0; k < b->ahead_count; k++) {
		const struct mft_batch_ahead *a = &b->ahead[k];
		uint64_t counted = 0;

		for (int64_t t = 0; t < count; t++) {
			const bool inside = t % length + k + 1 < length;
			const int64_t from = t + k + 1;

			ck_assert_int_eq(a->tokens[t], inside ? b->tokens[from] : 0);
			ck_assert_int_eq(a->labels[t], inside ? b->labels[from] : 0);
			ck_assert_int_eq(a->positions[t], inside ? b->positions[from] : 0);
			ck_assert(a->loss_mask[t] == (inside ? b->loss_mask[from] : 0));
			counted += a->loss_mask[t] != 0;
		}
		ck_assert_uint_eq(a->counted, counted);
		check_order(a->order, a->tokens, (uint64_t)count);
		check_order(a->position_order, a->positions, (uint64_t)count);
	}
}

START_TEST(tokens_further_on)
{
	struct mft_train_config c = fixtures_run();
	const struct mft_batch *b;
	struct mft_loader *l;

	c.model.mtp_num_layers = 3;
	c.eod = 11;
	c.eod_mask_loss = c.reset_position_ids = true;
	l = open_on(&c, MFS_TRAIN, 0, 3, engine_of(1));
	for (int i = 0; i < 4; i++) {
		unit_ok(mft_loader_next(l, &b, &err), &err);
		ck_assert_uint_eq(b->ahead_count, 3);
		check_ahead(b, INT64_C(3) * 128, 128);
		mft_loader_give_back(l, b);
	}
	close_loader(l);
}
END_TEST

/* Each of the processes that share sequences has its pieces of what one has. */
static void check_part(const struct mft_batch *b, const struct mft_batch *whole, uint32_t parts,
		       uint32_t part)
{
	const int64_t length = 128, own = length / parts;

	for (int64_t t = 0; t < 3 * own; t++) {
		const int64_t at =
			t / own * length + mft_context_position(parts, part, length, t % own);

		ck_assert_int_eq(b->tokens[t], whole->tokens[at]);
		ck_assert_int_eq(b->labels[t], whole->labels[at]);
		ck_assert_int_eq(b->positions[t], whole->positions[at]);
		ck_assert_int_eq(b->first_key[t], whole->first_key[at]);
		ck_assert(b->loss_mask[t] == whole->loss_mask[at]);
	}
	ck_assert_uint_eq(b->counted, whole->counted);
	ck_assert(b->documents == whole->documents);
	check_order(b->order, b->tokens, (uint64_t)(3 * own));
	check_order(b->position_order, b->positions, (uint64_t)(3 * own));
}

static void check_part_ahead(const struct mft_batch_ahead *a, const struct mft_batch_ahead *whole,
			     uint32_t parts, uint32_t part)
{
	const int64_t length = 128, own = length / parts;

	for (int64_t t = 0; t < 3 * own; t++) {
		const int64_t at =
			t / own * length + mft_context_position(parts, part, length, t % own);

		ck_assert_int_eq(a->tokens[t], whole->tokens[at]);
		ck_assert_int_eq(a->labels[t], whole->labels[at]);
		ck_assert_int_eq(a->positions[t], whole->positions[at]);
		ck_assert(a->loss_mask[t] == whole->loss_mask[at]);
	}
	ck_assert_uint_eq(a->counted, whole->counted);
	check_order(a->order, a->tokens, (uint64_t)(3 * own));
	check_order(a->position_order, a->positions, (uint64_t)(3 * own));
}

START_TEST(parts_of_a_sequence_are_the_whole)
{
	struct mft_train_config c = fixtures_run();
	const uint32_t parts = 1u << _i;
	struct mft_loader *whole, *of[8];
	const struct mft_batch *b, *all;

	c.eod = 11;
	c.reset_position_ids = c.reset_attention_mask = c.eod_mask_loss = true;
	c.model.mtp_num_layers = 2;
	/* Several at once, and not by io_uring: its rings take the place of memory that another
	 * thread has freed. ThreadSanitizer does not see them come, and calls that a race. */
	whole = open_on(&c, MFS_TRAIN, 0, 3, engine_of(1));
	c.context_parallel_size = parts;
	for (uint32_t i = 0; i < parts; i++) {
		c.context_parallel_rank = i;
		of[i] = open_on(&c, MFS_TRAIN, 0, 3, engine_of(1));
	}
	for (int m = 0; m < 5; m++) {
		unit_ok(mft_loader_next(whole, &all, &err), &err);
		for (uint32_t i = 0; i < parts; i++) {
			unit_ok(mft_loader_next(of[i], &b, &err), &err);
			check_part(b, all, parts, i);
			for (uint32_t k = 0; k < 2; k++)
				check_part_ahead(&b->ahead[k], &all->ahead[k], parts, i);
			mft_loader_give_back(of[i], b);
		}
		mft_loader_give_back(whole, all);
	}
	for (uint32_t i = 0; i < parts; i++)
		mft_loader_free(of[i]);
	close_loader(whole);
}
END_TEST

START_TEST(a_resumed_run_goes_on_where_it_was)
{
	const struct mft_train_config c = fixtures_run();
	uint64_t count;
	int64_t *tokens = samples_of(&c, MFS_TRAIN, &count);
	struct mft_batch_rules rules;

	for (uint64_t consumed = 0; consumed < 320; consumed += consumed % 7 + 1) {
		const uint32_t micro = consumed % 3 + 1;
		struct mft_loader *l = open_on(&c, MFS_TRAIN, consumed, micro, engine_of(_i));
		const struct mft_batch *b[2];
		const uint64_t left = (320 - consumed) / micro;

		unit_ok(mft_batch_rules_take(&c, micro, VOCAB, &rules, &err), &err);
		for (unsigned i = 0; i < 2 && i < left; i++) {
			unit_ok(mft_loader_next(l, &b[i], &err), &err);
			check_batch(&rules, tokens + (consumed + i * micro) * 129, b[i]);
		}
		/* Two are out when it ends: nothing waits for them. */
		close_loader(l);
	}
	free(tokens);
}
END_TEST

static void one_of(const struct mft_train_config *c, enum mfs_split split, uint32_t micro)
{
	for (int i = 0; i < ENGINES; i++) {
		struct mft_loader *l = open_on(c, split, 0, micro, engine_of(i));

		check_all(c, split, micro, l);
		close_loader(l);
	}
}

static const char *of_file(const char *name, const char *text)
{
	static char path[2][600];
	static int turn;

	turn = !turn;
	unit_write(unit_tmpdir(), name, text, strlen(text));
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", unit_tmpdir(), name);
	return path[turn];
}

START_TEST(each_way_to_give_data_is_taken)
{
	const char *const two[] = {tales, notes, tales};
	struct mft_train_config c = fixtures_run();
	char text[1200];

	one_of(&c, MFS_VALID, 1);
	c.data_path = (struct mfs_arg_words){two, 3}; /* one epoch of each */
	one_of(&c, MFS_TRAIN, 3);
	c.data_path = (struct mfs_arg_words){0};
	snprintf(text, sizeof(text), "1 %s\n2 %s\n", tales, notes);
	c.data_args_path = of_file("words", text);
	one_of(&c, MFS_TRAIN, 2);
	c.data_args_path = c.split = NULL;
	c.split_data_path[MFS_TRAIN] = (struct mfs_arg_words){two, 1};
	c.split_data_path[MFS_VALID] = (struct mfs_arg_words){blend, 4};
	one_of(&c, MFS_TRAIN, 2);
	one_of(&c, MFS_VALID, 2);
	c.split_data_path[MFS_TRAIN] = c.split_data_path[MFS_VALID] = (struct mfs_arg_words){0};
	snprintf(text, sizeof(text),
		 "{\"train\": [0.5, \"%s\", \"0.5\", \"%s\"], \"valid\": \"%s\", \"test\": null}",
		 tales, notes, notes);
	c.per_split_data_args_path = of_file("splits.json", text);
	one_of(&c, MFS_TRAIN, 2);
	one_of(&c, MFS_VALID, 5);
}
END_TEST

/* Datasets of three types of tokens in one blend; rows that lie in no file. */
START_TEST(datasets_of_several_types_blend)
{
	char saved[512], many[512];
	const char *const all[] = {"1", saved, "1", tales, "1", many};
	struct mft_train_config c = fixtures_run();

	snprintf(saved, sizeof(saved), "%s", unit_fixture("data/hf_dataset/indices"));
	snprintf(many, sizeof(many), "%s", unit_fixture("data/hf_dataset/cache"));
	c.data_path = (struct mfs_arg_words){all, 6};
	c.split = "1";
	c.seq_length = 10;
	one_of(&c, MFS_TRAIN, 4);
}
END_TEST

START_TEST(mock_data_are_megatrons)
{
	static const int64_t megatrons_ends[] = {3484, 6093, 8187, 9292, 10553};
	struct mft_train_config c = fixtures_run();
	struct mft_loader_stats stats;
	struct mft_train_data d;
	struct mft_loader *l;

	c.data_path = (struct mfs_arg_words){0};
	c.mock_data = true;
	c.eod = 999;
	unit_ok(mft_train_data_open(&c, MFS_TRAIN, 0, 0, 2, VOCAB, &d, &err), &err);
	/* numpy.random.default_rng(0).integers(1, 4096, 100000, numpy.int32).cumsum() */
	for (uint64_t i = 0; i < 5; i++) {
		uint64_t start;

		unit_ok(mfs_rows_start(d.mock, i + 1, &start, &err), &err);
		ck_assert_uint_eq(start, (uint64_t)megatrons_ends[i]);
	}
	ck_assert_uint_eq(d.mock->tokens, 204637097);
	mft_train_data_release(&d);
	l = open_loader(&c, MFS_TRAIN, 0, 2);
	check_all(&c, MFS_TRAIN, 2, l);
	mft_loader_stats(l, &stats);
	ck_assert_str_eq(stats.engine, "generated");
	close_loader(l);
	/* A third of it is each split's: Megatron does not ask --split. */
	c.split = "100,0,0";
	unit_ok(mft_train_data_open(&c, MFS_TEST, 0, 0, 2, VOCAB, &d, &err), &err);
	ck_assert_uint_gt(mfs_samples_count(d.samples), 0);
	mft_train_data_release(&d);
}
END_TEST

START_TEST(a_cyclic_loader_shuffles_each_epoch)
{
	struct mft_train_config c = fixtures_run();
	struct mft_batch_rules rules;
	struct mft_train_data d;
	uint64_t count, drawn[3], samples[3];
	int64_t *tokens = samples_of(&c, MFS_TRAIN, &count), *text = calloc(3, 129 * 8);
	struct mft_loader *l;
	uint32_t own;

	c.dataloader_type = "cyclic";
	unit_ok(mft_batch_rules_take(&c, 3, VOCAB, &rules, &err), &err);
	unit_ok(mft_train_data_open(&c, MFS_TRAIN, 0, 30, 3, VOCAB, &d, &err), &err);
	l = open_loader(&c, MFS_TRAIN, 30, 3);
	ck_assert_uint_eq(mft_loader_microbatches(l), UINT64_MAX);
	for (uint64_t m = 0; m < 250; m++) { /* more than two epochs */
		const struct mft_batch *b;

		unit_ok(mfs_sampler_draw(d.sampler, m, 0, samples, &err), &err);
		unit_ok(mft_train_data_draw(&d, m, drawn, &own, &err), &err);
		ck_assert_mem_eq(drawn, samples, sizeof(drawn));
		for (int s = 0; s < 3; s++)
			memcpy(text + s * 129, tokens + samples[s] * 129, 129 * 8);
		unit_ok(mft_loader_next(l, &b, &err), &err);
		check_batch(&rules, text, b);
		mft_loader_give_back(l, b);
	}
	close_loader(l);
	mft_train_data_release(&d);
	free(text);
	free(tokens);
}
END_TEST

/* Each sample of the split once, then again. */
START_TEST(each_sample_of_the_split_comes_once_then_again)
{
	const char *const one[] = {notes};
	struct mft_train_config c = fixtures_run();
	uint64_t count, own = 0, micro = 2;
	struct mft_loader *l;
	int64_t *tokens;

	c.data_path = (struct mfs_arg_words){one, 1};
	c.full_validation = true;
	tokens = samples_of(&c, MFS_VALID, &count);
	while (count % micro == 0) /* the last microbatch is not full */
		micro++;
	l = open_loader(&c, MFS_VALID, 17, (uint32_t)micro);
	ck_assert_uint_eq(mft_loader_microbatches(l), count / micro + 1);
	for (int pass = 0; pass < 2; pass++)
		for (uint64_t m = 0; m < mft_loader_microbatches(l); m++) {
			const struct mft_batch *b;

			unit_ok(mft_loader_next(l, &b, &err), &err);
			for (uint64_t s = 0; s < micro; s++) {
				const bool counts = m * micro + s < count;
				const uint64_t k = counts ? m * micro + s : count - 1;

				own += counts;
				for (int i = 0; i < 128; i++) {
					ck_assert_int_eq(b->tokens[s * 128 + i],
							 tokens[k * 129 + i]);
					ck_assert(b->loss_mask[s * 128 + i] == counts);
				}
			}
			ck_assert_uint_eq(b->counted,
					  128 * (m == count / micro ? count % micro : micro));
			mft_loader_give_back(l, b);
		}
	ck_assert_uint_eq(own, 2 * count);
	close_loader(l);
	free(tokens);
}
END_TEST

static void refused(const struct mft_train_config *c, enum mfs_split split, int want,
		    const char *part)
{
	struct mft_loader *l;

	unit_fails(mft_loader_new(c, split, 0, 0, 2, VOCAB, &memory, &l, &err), &err, want, part);
	ck_assert_int_eq(blocks, 0);
}

/* A set gives what a run gives that has no other. */
static void check_set(const struct mft_train_config *all, uint32_t set,
		      const struct mft_train_config *alone)
{
	const struct mft_batch *a, *b;
	struct mft_loader *of_all, *of_one;
	uint64_t count;

	unit_ok(mft_loader_new(all, MFS_VALID, set, 0, 3, VOCAB, &memory, &of_all, &err), &err);
	of_one = open_loader(alone, MFS_VALID, 0, 3);
	count = mft_loader_microbatches(of_one);
	ck_assert_uint_eq(mft_loader_microbatches(of_all), count);
	for (uint64_t i = 0; i < count + 1; i++) {
		unit_ok(mft_loader_next(of_all, &a, &err), &err);
		unit_ok(mft_loader_next(of_one, &b, &err), &err);
		ck_assert_mem_eq(a->tokens, b->tokens, 3 * 128 * sizeof(*a->tokens));
		ck_assert_mem_eq(a->loss_mask, b->loss_mask, 3 * 128 * sizeof(*a->loss_mask));
		ck_assert_uint_eq(a->counted, b->counted);
		mft_loader_give_back(of_all, a);
		mft_loader_give_back(of_one, b);
	}
	mft_loader_free(of_one);
	close_loader(of_all);
}

START_TEST(validation_sets)
{
	const char *const both[] = {notes, tales}, *const weighted[] = {"1", notes, "2", tales};
	struct mft_train_config c = fixtures_run(), alone;
	uint32_t sets;

	c.full_validation = c.multiple_validation_sets = true;
	/* What all splits are parts of is one blend, and it has weights here. */
	unit_ok(mft_loader_sets(&c, MFS_VALID, &sets, &err), &err);
	ck_assert_uint_eq(sets, 1);
	refused(&c, MFS_VALID, -EINVAL, "a blend by weights needs a number of samples");
	c.split = NULL;
	c.data_path = (struct mfs_arg_words){0};
	c.split_data_path[MFS_TRAIN] = (struct mfs_arg_words){both, 2};
	refused(&c, MFS_VALID, -ENODATA, "split has no dataset");
	c.split_data_path[MFS_VALID] = (struct mfs_arg_words){both, 2};
	unit_ok(mft_loader_sets(&c, MFS_TRAIN, &sets, &err), &err);
	ck_assert_uint_eq(sets, 1);
	unit_ok(mft_loader_sets(&c, MFS_VALID, &sets, &err), &err);
	ck_assert_uint_eq(sets, 2);
	for (uint32_t i = 0; i < sets; i++) {
		alone = c;
		alone.multiple_validation_sets = false;
		alone.split_data_path[MFS_VALID] = (struct mfs_arg_words){both + i, 1};
		check_set(&c, i, &alone);
	}
	c.split_data_path[MFS_VALID] = (struct mfs_arg_words){weighted, 4};
	refused(&c, MFS_VALID, -EINVAL, "has a weight, but no number of samples");
	c.eval_interval = MFS_ABSENT;
	unit_fails(mft_loader_sets(&c, MFS_VALID, &sets, &err), &err, -ENODATA, "--eval-interval");
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(outside_of_the_vocabulary)
{
	const struct mft_train_config c = fixtures_run();
	struct mft_loader *l;
	const struct mft_batch *b;
	uint64_t count, first = 0;
	int64_t *tokens = samples_of(&c, MFS_TRAIN, &count);
	int64_t most = 0, limit;
	char want[128];

	for (uint64_t i = 0; i < count * 129; i++)
		most = tokens[i] > most ? tokens[i] : most;
	limit = most;
	while (tokens[first] < limit)
		first++;
	unit_ok(mft_loader_new(&c, MFS_TRAIN, 0, 0, 1, (uint64_t)limit, &memory, &l, &err), &err);
	for (uint64_t s = 0; s < first / 129; s++) { /* those before it are good */
		unit_ok(mft_loader_next(l, &b, &err), &err);
		mft_loader_give_back(l, b);
	}
	snprintf(want, sizeof(want),
		 "token %llu of sample %llu is %lld: the vocabulary has 0 to %lld",
		 (unsigned long long)first % 129, (unsigned long long)first / 129, (long long)limit,
		 (long long)limit - 1);
	for (int i = 0; i < 2; i++)
		unit_fails(mft_loader_next(l, &b, &err), &err, -EINVAL, want);
	close_loader(l);
	free(tokens);
}
END_TEST

/* An engine that reads a few bytes at a time, and fails when told. */
struct awkward {
	size_t most;
	int fail_at, calls, failure;
	struct mfs_io *queue[MFT_LOADER_DEPTH];
	ssize_t done[MFT_LOADER_DEPTH];
	unsigned count;
};

static int awkward_start(void *state, struct mfs_io *w)
{
	struct awkward *a = state;
	struct iovec first = w->iov[0];

	first.iov_len = first.iov_len < a->most ? first.iov_len : a->most;
	a->queue[a->count] = w;
	a->done[a->count++] =
		++a->calls == a->fail_at ? a->failure : preadv(w->fd, &first, 1, (off_t)w->off);
	return 0;
}

/* Last in, first out. */
static int awkward_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct awkward *a = state;

	*ret = a->queue[--a->count];
	*ret_done = a->done[a->count];
	return 0;
}

static void awkward_free(void *state)
{
	(void)state;
}

static struct mfs_io_engine *awkward_engine(struct awkward *a)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "awkward",
		.start = awkward_start,
		.reap = awkward_reap,
		.free = awkward_free,
	};
	struct mfs_io_engine *e;

	unit_ok(mfs_io_engine_with(&ops, a, MFT_LOADER_DEPTH, &e, &err), &err);
	return e;
}

START_TEST(short_reads)
{
	const struct mft_train_config c = fixtures_run();
	struct awkward a = {.most = 33};
	struct mft_loader *l = open_on(&c, MFS_TRAIN, 0, 2, awkward_engine(&a));

	check_all(&c, MFS_TRAIN, 2, l);
	close_loader(l);
	ck_assert_int_gt(a.calls, 1000);
}
END_TEST

START_TEST(failed_reads)
{
	static const struct {
		int at, failure;
		const char *part; /* NULL: it is read again */
	} cases[] = {{1, -EIO, "cannot be read: Input/output error"},
		     {77, -EIO, "text_document.bin: bytes"},
		     {200, -ESTALE, "cannot be read"},
		     {5, 0, "cannot be read"},
		     {9, -EINTR, NULL},
		     {9, -EAGAIN, NULL}};
	const struct mft_train_config c = fixtures_run();
	struct awkward a = {.most = 100, .fail_at = cases[_i].at, .failure = cases[_i].failure};
	struct mft_loader *l = open_on(&c, MFS_TRAIN, 0, 2, awkward_engine(&a));
	const struct mft_batch *b;
	int rc = 0;

	if (!cases[_i].part) {
		check_all(&c, MFS_TRAIN, 2, l);
	} else {
		while (!rc) {
			rc = mft_loader_next(l, &b, &err);
			if (!rc)
				mft_loader_give_back(l, b);
		}
		ck_assert_int_eq(rc, cases[_i].failure ? cases[_i].failure : -EIO);
		unit_sentence(err.msg, cases[_i].part);
	}
	close_loader(l);
}
END_TEST

/* A .bin that changes under a run. */
START_TEST(changed_file)
{
	char prefix[400];
	const char *const one[] = {prefix};
	struct mft_train_config c = fixtures_run();
	struct mft_loader *l;
	const struct mft_batch *b;
	uint8_t *bytes;
	size_t len;
	char path[500];
	int rc = 0;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s.%s", tales, i ? "bin" : "idx");
		bytes = unit_slurp(path, &len);
		unit_write(unit_tmpdir(), i ? "c.bin" : "c.idx", bytes, len);
		free(bytes);
	}
	snprintf(prefix, sizeof(prefix), "%s/c", unit_tmpdir());
	snprintf(path, sizeof(path), "%s.bin", prefix);
	c.data_path = (struct mfs_arg_words){one, 1};
	l = open_loader(&c, MFS_TRAIN, 0, 2);
	unit_ok(mft_loader_next(l, &b, &err), &err);
	mft_loader_give_back(l, b);
	ck_assert_int_eq(truncate(path, 100), 0);
	while (!rc) {
		rc = mft_loader_next(l, &b, &err);
		if (!rc)
			mft_loader_give_back(l, b);
	}
	ck_assert(rc == -ESTALE || rc == -EIO);
	unit_sentence(err.msg, "c.bin");
	close_loader(l);
}
END_TEST

START_TEST(splits_without_samples_are_refused)
{
	const char *const no_such[] = {"/no/such/prefix"};
	struct mft_train_config c = fixtures_run();

	refused(&c, MFS_TEST, -ENODATA, "split");
	c.eval_interval = MFS_ABSENT;
	refused(&c, MFS_VALID, -ENODATA, "--eval-interval");
	c.eval_interval = 10;
	c.eval_iters = 0;
	refused(&c, MFS_VALID, -ENODATA, "no sample");
	c.reset_attention_mask = true;
	refused(&c, MFS_TRAIN, -EINVAL, "--reset-attention-mask needs a token");
	c.reset_attention_mask = false;
	c.mock_data = true;
	refused(&c, MFS_TRAIN, -EINVAL, "exclude each other");
	c.data_path = (struct mfs_arg_words){0};
	refused(&c, MFS_TRAIN, -EINVAL, "a token that ends a document");
	c.mock_data = false;
	refused(&c, MFS_TRAIN, -ENODATA, "there is no data");
	c.data_path = (struct mfs_arg_words){no_such, 1};
	refused(&c, MFS_TRAIN, -ENOENT, "/no/such/prefix");
	c.seq_length = 0;
	refused(&c, MFS_TRAIN, -EINVAL, "--seq-length");
	c.seq_length = 128;
	c.seed = -1;
	refused(&c, MFS_TRAIN, -EINVAL, "--seed");
	c.seed = 1234;
	c.data_args_path = "words";
	refused(&c, MFS_TRAIN, -EINVAL, "exclude each other");
	c.data_path = (struct mfs_arg_words){0};
	c.data_args_path = NULL;
	c.per_split_data_args_path = of_file("bad.json", "{\"train\": [true]}");
	refused(&c, MFS_TRAIN, -EINVAL, "bad.json: train: word 0");
	c.per_split_data_args_path = of_file("less.json", "{\"train\": null}");
	refused(&c, MFS_TRAIN, -EINVAL, "\"valid\" is missing");
	c.per_split_data_args_path = of_file("no.json", "[");
	refused(&c, MFS_TRAIN, -EINVAL, "no.json");
}
END_TEST

/* ---- times ---- */

START_TEST(percentiles_of_stalls_are_near)
{
	struct mft_stall s = {0};

	ck_assert_uint_eq(mft_stall_percentile(&s, 0.5), 0);
	for (uint64_t i = 1; i <= 1000; i++)
		mft_stall_add(&s, i * i * 1000);
	ck_assert_uint_eq(s.count, 1000);
	ck_assert_uint_eq(s.max_ns, 1000000000);
	for (int p = 1; p < 100; p++) {
		const uint64_t want = (uint64_t)(p * 10) * (uint64_t)(p * 10) * 1000;
		const uint64_t got = mft_stall_percentile(&s, p / 100.0);

		ck_assert_msg(got >= want && got <= want + want / 16, "%d%%: %llu, not %llu", p,
			      (unsigned long long)got, (unsigned long long)want);
	}
	ck_assert_uint_eq(mft_stall_percentile(&s, 1), s.max_ns);
	mft_stall_add(&s, UINT64_MAX);
	ck_assert_uint_eq(mft_stall_percentile(&s, 1), UINT64_MAX);
}
END_TEST

START_TEST(statistics_count_what_was_read)
{
	const struct mft_train_config c = fixtures_run();
	struct mft_loader *l = open_on(&c, MFS_TRAIN, 0, 2, engine_of(1));
	struct mft_loader_stats stats;

	check_all(&c, MFS_TRAIN, 2, l);
	mft_loader_stats(l, &stats);
	ck_assert_str_eq(stats.engine, "threads");
	ck_assert_ptr_null(stats.why);
	ck_assert_uint_eq(stats.batches, 160);
	ck_assert_uint_eq(stats.tokens, 160 * 256);
	ck_assert_uint_eq(stats.bytes, 320 * 129 * 2); /* uint16 */
	ck_assert_uint_gt(stats.open_ns, 0);
	ck_assert_uint_le(stats.stall_p50_ns, stats.stall_p99_ns);
	ck_assert_uint_le(stats.stall_p99_ns, stats.stall_max_ns);
	ck_assert_uint_le(stats.stall_max_ns, stats.stall_ns);
	close_loader(l);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("loader");
	TCase *c = unit_case(s, "what goes wrong", outside_of_the_vocabulary);

	tcase_add_test(c, short_reads);
	tcase_add_loop_test(c, failed_reads, 0, 6);
	tcase_add_test(c, changed_file);
	tcase_add_test(c, splits_without_samples_are_refused);
	c = unit_case(s, "sources", each_way_to_give_data_is_taken);
	tcase_add_test(c, datasets_of_several_types_blend);
	tcase_add_test(c, mock_data_are_megatrons);
	tcase_add_test(c, a_cyclic_loader_shuffles_each_epoch);
	tcase_add_test(c, each_sample_of_the_split_comes_once_then_again);
	tcase_add_test(c, validation_sets);
	c = unit_case(s, "times", percentiles_of_stalls_are_near);
	tcase_add_test(c, statistics_count_what_was_read);
	tcase_add_loop_test(c, megatrons_steps, 0, ENGINES);
	tcase_add_loop_test(c, masks_and_positions_follow_documents, 0, UNIT_TSAN ? 4 : 16);
	tcase_add_test(c, tokens_further_on);
	tcase_add_loop_test(c, parts_of_a_sequence_are_the_whole, 1, 4);
	tcase_add_loop_test(c, a_resumed_run_goes_on_where_it_was, 0, ENGINES);
	return s;
}
