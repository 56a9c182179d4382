/* Samples in Megatron's order: formats/dataset/gpt/gpt_dataset.h. Thousands of random cases against
 * Megatron itself: tests/interop/test_gpt_dataset.py. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/files/npy.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/gpt/splits.h"
#include "tests/unit/fake_idx.h"
#include "tests/unit/gpt_tokens.h"
#include "tests/unit/npy_file.h"

static struct mfs_error err;

/* A dataset in memory of one sequence per document. */
struct memory {
	struct mfs_buf idx;
	struct mfs_indexed_dataset *indexed;
	struct mfs_rows *data;
};

static struct memory open_lengths(const int32_t *lengths, uint64_t count)
{
	const struct fake_idx f = {.sequences = count, .code = 4, .lengths = lengths};
	struct memory m = {0};
	const uint64_t bin = fake_idx(&m.idx, &f);

	unit_ok(mfs_indexed_dataset_memory(m.idx.data, m.idx.len, bin, "memory", &m.indexed, &err),
		&err);
	unit_ok(mfs_rows_indexed(m.indexed, &m.data, &err), &err);
	return m;
}

static void close_lengths(struct memory *m)
{
	mfs_rows_free(m->data);
	mfs_indexed_dataset_free(m->indexed);
	mfs_buf_release(&m->idx);
}

/* ---- what Megatron itself has written ---- */

static void *load(const char *name, const char *what, const char *type, uint64_t *ret_rows)
{
	char path[256];
	size_t len;
	uint8_t *bytes;

	snprintf(path, sizeof(path), "data/megatron_index/%s-%s.npy", name, what);
	bytes = unit_slurp(unit_fixture(path), &len);
	memmove(bytes, npy_elements(bytes, len, type, ret_rows), len - NPY_HEADER);
	return bytes;
}

static void compare_with_files(struct mfs_gpt_dataset *g, const char *name)
{
	uint64_t documents, rows, samples;
	int32_t *document = load(name, "document_index", "<i4", &documents), *ours;
	int32_t *sample = load(name, "sample_index", "<i4", &rows);
	uint32_t *shuffle = load(name, "shuffle_index", "<u4", &samples);

	ck_assert_uint_eq(mfs_gpt_dataset_documents(g), documents);
	ck_assert_uint_eq(mfs_gpt_dataset_sizes(g)->samples, samples);
	ck_assert_uint_eq(mfs_gpt_dataset_sample_index_width(g), 4);
	ck_assert_uint_eq(mfs_gpt_dataset_shuffle_index_width(g), 4);
	ours = calloc(documents, sizeof(*ours));
	unit_ok(mfs_gpt_dataset_document_index(g, 0, documents, ours, &err), &err);
	ck_assert_mem_eq(ours, document, documents * sizeof(*ours));
	for (uint64_t i = 0; i < rows; i++) {
		int64_t row[1][2];

		unit_ok(mfs_gpt_dataset_sample_index(g, i, 1, row, &err), &err);
		ck_assert_int_eq(row[0][0], sample[2 * i]);
		ck_assert_int_eq(row[0][1], sample[2 * i + 1]);
	}
	for (uint64_t i = 0; i < samples; i++) {
		uint64_t k;

		unit_ok(mfs_gpt_dataset_shuffle_index(g, i, 1, &k, &err), &err);
		ck_assert_uint_eq(k, shuffle[i]);
	}
	free(ours);
	free(document);
	free(sample);
	free(shuffle);
}

START_TEST(megatrons_files)
{
	static const struct {
		const char *data, *name;
		enum mfs_split split;
		uint64_t samples;
	} cases[] = {
		{"notes", "notes-train-n97-s128", MFS_TRAIN, 97},
		{"notes", "notes-valid-n9-s128", MFS_VALID, 9},
		{"tales", "tales-train-n226-s128", MFS_TRAIN, 226},
		{"tales", "tales-valid-n18-s128", MFS_VALID, 18},
	};
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct mfs_splits splits;

	unit_ok(mfs_splits_parse("90,10,0", &rules, &splits, &err), &err);
	for (unsigned i = 0; i < 4; i++) {
		const struct mfs_gpt_config c = {.seq_length = 128,
						 .seed = 1234,
						 .samples = cases[i].samples,
						 .separate_last_epoch = true};
		struct mfs_indexed_dataset *d;
		struct mfs_rows *rows;
		struct mfs_gpt_dataset *g;
		char prefix[64];
		const char *path;
		uint64_t first, end;

		snprintf(prefix, sizeof(prefix), "data/%s_text_document", cases[i].data);
		path = unit_fixture(prefix);
		unit_ok(mfs_indexed_dataset_open(&path, 1, &d, &err), &err);
		unit_ok(mfs_rows_indexed(d, &rows, &err), &err);
		unit_ok(mfs_splits_range(&splits, cases[i].split, rows->rows, &first, &end, &err),
			&err);
		unit_ok(mfs_gpt_dataset_new(rows, first, end, &c, &g, &err), &err);
		compare_with_files(g, cases[i].name);
		mfs_gpt_dataset_free(g);
		mfs_rows_free(rows);
		mfs_indexed_dataset_free(d);
	}
}
END_TEST

/* ---- helpers.cpp's walk, by which every sample is found one after the other ---- */

struct walked {
	int64_t (*rows)[2];
	uint64_t samples;
};

static struct walked megatrons_walk(struct mfs_gpt_dataset *g, const int32_t *lengths)
{
	const struct mfs_gpt_config *c = mfs_gpt_dataset_config(g);
	const uint64_t documents = mfs_gpt_dataset_documents(g);
	const int64_t extra = !c->no_extra_token;
	struct walked w = {.samples = mfs_gpt_dataset_sizes(g)->samples};
	int32_t *order = calloc(documents, sizeof(*order));
	uint64_t doc = 0;
	int64_t off = 0;

	unit_ok(mfs_gpt_dataset_document_index(g, 0, documents, order, &err), &err);
	w.rows = calloc(w.samples + 1, sizeof(*w.rows));
	for (uint64_t k = 1; k <= w.samples; k++) {
		int64_t rest = c->seq_length + extra;

		while (rest) {
			const int64_t length = lengths[order[doc]] - off;

			rest -= length;
			if (rest <= 0) {
				off += rest + length - extra;
				rest = 0;
			} else if (doc == documents - 1) {
				off = lengths[order[doc]] - extra;
				break;
			} else {
				doc++;
				off = 0;
			}
		}
		w.rows[k][0] = (int64_t)doc;
		w.rows[k][1] = off;
	}
	free(order);
	return w;
}

/* Pieces put together as Megatron puts together the documents between two rows. */
struct together {
	const int32_t *order;
	uint64_t document;
	int64_t offset;
	uint64_t tokens;
	const int32_t *lengths;
};

static int follow(void *arg, const struct mfs_gpt_piece *p, struct mfs_error *e)
{
	struct together *t = arg;

	(void)e;
	while (t->offset == t->lengths[t->order[t->document]]) {
		t->document++;
		t->offset = 0;
	}
	ck_assert_uint_eq(p->sequence, (uint64_t)t->order[t->document]);
	ck_assert_int_eq(p->from, t->offset);
	ck_assert_uint_gt(p->count, 0);
	t->offset += p->count;
	t->tokens += p->count;
	return 0;
}

static void check_against_walk(const int32_t *lengths, uint64_t count,
			       const struct mfs_gpt_config *c)
{
	struct memory m = open_lengths(lengths, count);
	struct mfs_gpt_dataset *g;
	struct walked w;
	int32_t *order;
	int rc = mfs_gpt_dataset_new(m.data, 0, count, c, &g, &err);

	if (rc) {
		unit_sentence(err.msg, NULL);
		close_lengths(&m);
		return;
	}
	rc = mfs_gpt_dataset_build(g, 2, &err);
	if (rc) {
		ck_assert(c->keep_last_partial);
		unit_sentence(err.msg, "the last sequence is empty");
	} else {
		w = megatrons_walk(g, lengths);
		order = calloc(mfs_gpt_dataset_documents(g), sizeof(*order));
		unit_ok(mfs_gpt_dataset_document_index(g, 0, mfs_gpt_dataset_documents(g), order,
						       &err),
			&err);
		for (uint64_t k = 0; k < w.samples; k++) {
			struct together t = {order, (uint64_t)w.rows[k][0], w.rows[k][1], 0,
					     lengths};
			int64_t row[1][2];
			uint32_t padding;

			unit_ok(mfs_gpt_dataset_sample_index(g, k + 1, 1, row, &err), &err);
			ck_assert_int_eq(row[0][0], w.rows[k + 1][0]);
			ck_assert_int_eq(row[0][1], w.rows[k + 1][1]);
			unit_ok(mfs_gpt_stream_pieces(g, k, follow, &t, &padding, &err), &err);
			ck_assert_uint_eq(t.tokens + padding, c->seq_length + !c->no_extra_token);
			ck_assert(!padding || c->keep_last_partial);
		}
		free(order);
		free(w.rows);
	}
	mfs_gpt_dataset_free(g);
	close_lengths(&m);
}

START_TEST(random_cases)
{
	int32_t lengths[150];

	srand(3);
	for (int i = 0; i < 300; i++) {
		const uint64_t count = 1 + (uint64_t)rand() % 150;
		const int high = 1 + rand() % 40, empty = rand() % 3;
		const struct mfs_gpt_config c = {.seq_length = 1 + (uint32_t)rand() % 30,
						 .seed = (uint32_t)rand(),
						 .samples = rand() % 5 ? (uint64_t)rand() % 300
								       : MFS_GPT_ONE_EPOCH,
						 .no_extra_token = rand() % 3 == 0,
						 .keep_last_partial = rand() % 3 == 0,
						 .separate_last_epoch = rand() % 4 != 0};

		for (uint64_t k = 0; k < count; k++)
			lengths[k] = empty && rand() % 2 ? 0 : rand() % (high + 1);
		check_against_walk(lengths, count, &c);
	}
}
END_TEST

/* ---- sizes ---- */

START_TEST(epochs_and_samples_are_megatrons)
{
	struct mfs_gpt_config c = {
		.seq_length = 10, .samples = MFS_GPT_ONE_EPOCH, .separate_last_epoch = true};
	struct mfs_gpt_sizes s;

	unit_ok(mfs_gpt_sizes(101, &c, &s, &err), &err);
	ck_assert_uint_eq(s.epochs, 1);
	ck_assert_uint_eq(s.samples, 10);
	c.samples = 10;
	unit_ok(mfs_gpt_sizes(101, &c, &s, &err), &err);
	ck_assert_uint_eq(s.epochs, 1);
	/* One more sample needs an epoch more, of which 1 of 10 is used: by itself. */
	c.samples = 11;
	unit_ok(mfs_gpt_sizes(101, &c, &s, &err), &err);
	ck_assert_uint_eq(s.epochs, 2);
	ck_assert(s.separate);
	ck_assert_uint_eq(s.samples_before, 10);
	ck_assert_uint_eq(s.samples, 20);
	/* 8 of 10 is 80 %: not by itself; and before 2020 never. */
	c.samples = 18;
	unit_ok(mfs_gpt_sizes(101, &c, &s, &err), &err);
	ck_assert(!s.separate);
	c.samples = 11;
	c.separate_last_epoch = false;
	unit_ok(mfs_gpt_sizes(101, &c, &s, &err), &err);
	ck_assert(!s.separate);
	ck_assert_uint_eq(s.samples_before, 20);
	/* Without the extra token ten tokens are a sample. */
	c.no_extra_token = true;
	c.samples = 1;
	unit_ok(mfs_gpt_sizes(10, &c, &s, &err), &err);
	ck_assert_uint_eq(s.epochs, 1);
	ck_assert_uint_eq(s.samples, 1);
}
END_TEST

/* ceil(float(a) / S): the exact counts are 48828126 and 4882813 and 1. */
START_TEST(float_count)
{
	struct mfs_gpt_config c = {
		.seq_length = 2048, .samples = MFS_GPT_ONE_EPOCH, .keep_last_partial = true};
	struct mfs_gpt_sizes s;

	unit_ok(mfs_gpt_sizes(100000000002ull, &c, &s, &err), &err);
	ck_assert_uint_eq(s.samples, 48828124);
	unit_ok(mfs_gpt_sizes(10000000002ull, &c, &s, &err), &err);
	ck_assert_uint_eq(s.samples, 4882813);
	unit_ok(mfs_gpt_sizes(2, &c, &s, &err), &err);
	ck_assert_uint_eq(s.samples, 1);
}
END_TEST

/* 15 trillion tokens: all that is known without an index. */
START_TEST(large_sizes)
{
	struct mfs_gpt_config c = {
		.seq_length = 4096, .samples = 4000000000, .separate_last_epoch = true};
	struct mfs_gpt_sizes s;

	unit_ok(mfs_gpt_sizes(15000000000000ull, &c, &s, &err), &err);
	ck_assert_uint_eq(s.epochs, 2);
	ck_assert(s.separate);
	ck_assert_uint_eq(s.samples_before, 3662109374);
	ck_assert_uint_eq(s.samples, 7324218749);
}
END_TEST

START_TEST(datasets_without_a_sample_are_refused)
{
	static const int32_t none[] = {0, 0, 0}, few[] = {3, 0, 2};
	struct mfs_gpt_config c = {.seq_length = 8, .samples = MFS_GPT_ONE_EPOCH};
	struct mfs_gpt_dataset *g;
	struct mfs_gpt_sizes s;
	struct memory m = open_lengths(none, 3);

	unit_fails(mfs_gpt_dataset_new(m.data, 0, 3, &c, &g, &err), &err, -ENODATA, "token");
	unit_fails(mfs_gpt_dataset_new(m.data, 2, 2, &c, &g, &err), &err, -ENODATA, "no sequence");
	unit_fails(mfs_gpt_dataset_new(m.data, 2, 4, &c, &g, &err), &err, -EINVAL, "among");
	close_lengths(&m);
	m = open_lengths(few, 3);
	unit_fails(mfs_gpt_dataset_new(m.data, 0, 3, &c, &g, &err), &err, -ENODATA,
		   "too few for a sample");
	close_lengths(&m);
	unit_fails(mfs_gpt_sizes(0, &c, &s, &err), &err, -ENODATA, "token");
	c.samples = UINT64_MAX - 1;
	unit_fails(mfs_gpt_sizes(10, &c, &s, &err), &err, -EINVAL, "too many epochs");
	c.seq_length = 0;
	unit_fails(mfs_gpt_sizes(10, &c, &s, &err), &err, -EINVAL, "sequence length");
}
END_TEST

/* Too few tokens for a sample are enough where none is asked for. */
START_TEST(none_asked_for)
{
	static const int32_t few[] = {3, 0, 2};
	const struct mfs_gpt_config c = {.seq_length = 8, .separate_last_epoch = true};
	struct memory m = open_lengths(few, 3);
	struct mfs_gpt_dataset *g;
	int32_t documents[3];
	uint64_t shuffled;
	int64_t row[1][2];

	unit_ok(mfs_gpt_dataset_new(m.data, 0, 3, &c, &g, &err), &err);
	ck_assert_uint_eq(mfs_gpt_dataset_sizes(g)->epochs, 1);
	ck_assert_uint_eq(mfs_gpt_dataset_sizes(g)->samples, 0);
	unit_ok(mfs_gpt_dataset_document_index(g, 0, 3, documents, &err), &err);
	ck_assert_int_eq(documents[0] + documents[1] + documents[2], 3);
	unit_ok(mfs_gpt_dataset_sample_index(g, 0, 1, row, &err), &err);
	ck_assert(!row[0][0] && !row[0][1]);
	unit_fails(mfs_gpt_dataset_shuffle_index(g, 0, 1, &shuffled, &err), &err, -EINVAL, "among");
	mfs_gpt_dataset_free(g);
	close_lengths(&m);
}
END_TEST

/* Both ends and the probes agree, the middle does not: found when the lengths are added up. */
START_TEST(damaged_lengths)
{
	int32_t lengths[1000];
	const struct mfs_gpt_config c = {.seq_length = 8, .samples = MFS_GPT_ONE_EPOCH};
	struct mfs_gpt_dataset *g;
	struct memory m;

	for (int i = 0; i < 1000; i++)
		lengths[i] = 10;
	m = open_lengths(lengths, 1000);
	m.idx.data[MFS_IDX_HEADER + 4 * 501] ^= 64;
	unit_ok(mfs_gpt_dataset_new(m.data, 0, 1000, &c, &g, &err), &err);
	unit_fails(mfs_gpt_dataset_build(g, 1, &err), &err, -EINVAL, "damaged");
	unit_fails(mfs_gpt_dataset_build(g, 3, &err), &err, -EINVAL, "damaged");
	mfs_gpt_dataset_free(g);
	close_lengths(&m);
}
END_TEST

/* ---- tokens, threads ---- */

START_TEST(samples_are_the_tokens_in_shuffled_order)
{
	const char *path = unit_fixture("data/notes_text_document");
	const struct mfs_gpt_config c = {.seq_length = 100,
					 .seed = 7,
					 .samples = MFS_GPT_ONE_EPOCH,
					 .keep_last_partial = true};
	struct mfs_indexed_dataset *d;
	struct mfs_rows *rows;
	struct mfs_gpt_dataset *g;
	uint64_t samples, padded = 0, at = 0;
	int64_t *stream, tokens[101];
	int32_t order[70];

	unit_ok(mfs_indexed_dataset_open(&path, 1, &d, &err), &err);
	unit_ok(mfs_rows_indexed(d, &rows, &err), &err);
	unit_ok(mfs_gpt_dataset_new(rows, 0, 70, &c, &g, &err), &err);
	samples = mfs_gpt_dataset_sizes(g)->samples;
	stream = calloc(mfs_gpt_dataset_sizes(g)->tokens, sizeof(*stream));
	unit_ok(mfs_gpt_dataset_document_index(g, 0, 70, order, &err), &err);
	for (int i = 0; i < 70; i++) {
		struct mfs_sequence s;

		unit_ok(mfs_indexed_dataset_sequence(d, (uint64_t)order[i], &s, &err), &err);
		unit_ok(mfs_indexed_dataset_tokens(d, (uint64_t)order[i], 0, s.length, stream + at,
						   &err),
			&err);
		at += s.length;
	}
	for (uint64_t i = 0; i < samples; i++) {
		uint64_t k;

		unit_ok(mfs_gpt_dataset_shuffle_index(g, i, 1, &k, &err), &err);
		unit_ok(gpt_tokens(g, i, -7, tokens, &err), &err);
		for (uint64_t t = 0; t < 101; t++) {
			const bool pad = k * 100 + t >= at;

			padded += pad;
			ck_assert_int_eq(tokens[t], pad ? -7 : stream[k * 100 + t]);
		}
	}
	ck_assert_uint_eq(padded, samples * 100 + 1 - at);
	unit_fails(gpt_tokens(g, samples, 0, tokens, &err), &err, -EINVAL, "sample");
	free(stream);
	mfs_gpt_dataset_free(g);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(d);
}
END_TEST

struct reader {
	struct mfs_gpt_dataset *g;
	uint64_t sum;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	uint64_t k;

	for (uint64_t i = 0; i < mfs_gpt_dataset_sizes(r->g)->samples; i++) {
		if (mfs_gpt_dataset_shuffle_index(r->g, i, 1, &k, NULL))
			return NULL;
		r->sum = r->sum * 31 + k;
	}
	return r;
}

/* However many threads build it, and whichever comes first, it is the same. */
START_TEST(any_number_of_threads_builds_the_same)
{
	enum { N = 50000, READERS = 4 };
	int32_t *lengths = calloc(N, sizeof(*lengths));
	struct mfs_gpt_config c = {
		.seq_length = 30, .seed = 1234, .samples = 80000, .separate_last_epoch = true};
	struct mfs_gpt_dataset *g[4];
	struct reader readers[READERS];
	pthread_t threads[READERS];
	struct memory m;
	int64_t rows[4][100][2];

	srand(5);
	for (int i = 0; i < N; i++)
		lengths[i] = rand() % 60;
	m = open_lengths(lengths, N);
	for (int i = 0; i < 4; i++)
		unit_ok(mfs_gpt_dataset_new(m.data, 0, N, &c, &g[i], &err), &err);
	for (int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){g[0], 0};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
	}
	for (int i = 0; i < READERS; i++) {
		void *done;

		pthread_join(threads[i], &done);
		ck_assert_ptr_nonnull(done);
		ck_assert_uint_eq(readers[i].sum, readers[0].sum);
	}
	unit_ok(mfs_gpt_dataset_build(g[1], 1, &err), &err);
	unit_ok(mfs_gpt_dataset_build_all(g, 4, 3, &err), &err);
	for (int i = 0; i < 4; i++) {
		struct reader r = {g[i], 0};

		ck_assert_ptr_nonnull(read_all(&r));
		ck_assert_uint_eq(r.sum, readers[0].sum);
		unit_ok(mfs_gpt_dataset_sample_index(g[i], 40000, 100, rows[i], &err), &err);
		ck_assert_mem_eq(rows[i], rows[0], sizeof(rows[0]));
	}
	for (int i = 0; i < 4; i++)
		mfs_gpt_dataset_free(g[i]);
	close_lengths(&m);
	free(lengths);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gpt_dataset");

	unit_case(s, "Megatron's files", megatrons_files);
	unit_case(s, "random cases", random_cases);
	unit_case(s, "sizes", epochs_and_samples_are_megatrons);
	unit_case(s, "float count", float_count);
	unit_case(s, "large sizes", large_sizes);
	unit_case(s, "refused", datasets_without_a_sample_are_refused);
	unit_case(s, "none asked for", none_asked_for);
	unit_case(s, "damaged lengths", damaged_lengths);
	unit_case(s, "tokens", samples_are_the_tokens_in_shuffled_order);
	unit_case(s, "threads", any_number_of_threads_builds_the_same);
	return s;
}
