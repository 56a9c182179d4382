/* Megatron's cached indices as virtual files: formats/dataset/index/index_files.h. Whole runs
 * against Megatron itself: tests/interop/test_index_cache.py. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/index/index_files.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/gpt/splits.h"
#include "tests/unit/fake_idx.h"

static struct mfs_error err;

/* All of a file, read in pieces of so many bytes. */
static uint8_t *read_all(struct mfs_vfile *f, size_t step, size_t *ret_len)
{
	const size_t size = mfs_vfile_size(f);
	uint8_t *bytes = malloc(size + 1);
	size_t n;

	for (size_t at = 0; at < size; at += n) {
		unit_ok(mfs_vfile_pread(f, at, bytes + at, step, &n, &err), &err);
		ck_assert_uint_eq(n, size - at < step ? size - at : step);
	}
	*ret_len = size;
	return bytes;
}

/* The same bytes from anywhere, in any length. */
static void check_at_random(struct mfs_vfile *f, const uint8_t *bytes, size_t size)
{
	uint8_t *part = malloc(size);
	size_t n;

	for (int i = 0; i < 300; i++) {
		const size_t at = (size_t)rand() % size;
		const size_t len = 1 + (size_t)rand() % (i % 2 ? 40 : size - at);

		unit_ok(mfs_vfile_pread(f, at, part, len, &n, &err), &err);
		ck_assert_uint_eq(n, mfs_min_u64(len, size - at));
		ck_assert_mem_eq(part, bytes + at, n);
	}
	free(part);
}

/* ---- what Megatron itself has written ---- */

static void compare_with_fixture(struct mfs_gpt_dataset *g, const char *name)
{
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();

	for (unsigned a = 0; a < MFS_INDEX_GPT_ARRAYS; a++) {
		static const size_t steps[] = {1, 7, 4096, 1 << 20};
		char path[256];
		struct mfs_vfile *f;
		size_t size, len;
		uint8_t *theirs;

		snprintf(path, sizeof(path), "data/megatron_index/%s-%s", name,
			 mfs_index_array_name(a));
		theirs = unit_slurp(unit_fixture(path), &size);
		unit_ok(mfs_index_file_gpt(g, a, &rules, &f, &err), &err);
		ck_assert_uint_eq(mfs_vfile_size(f), size);
		for (unsigned i = 0; i < MFS_ARRAY_SIZE(steps); i++) {
			uint8_t *ours = read_all(f, steps[i], &len);

			ck_assert_mem_eq(ours, theirs, size);
			free(ours);
		}
		check_at_random(f, theirs, size);
		mfs_vfile_free(f);
		free(theirs);
	}
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
	for (unsigned i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		const struct mfs_gpt_config c = {.seq_length = 128,
						 .seed = 1234,
						 .samples = cases[i].samples,
						 .separate_last_epoch = true};
		struct mfs_indexed_dataset *d;
		struct mfs_gpt_dataset *g;
		struct mfs_rows *rows;
		uint64_t first, end;
		char prefix[64];
		const char *path;

		snprintf(prefix, sizeof(prefix), "data/%s_text_document", cases[i].data);
		path = unit_fixture(prefix);
		unit_ok(mfs_indexed_dataset_open(&path, 1, &d, &err), &err);
		unit_ok(mfs_rows_indexed(d, &rows, &err), &err);
		unit_ok(mfs_splits_range(&splits, cases[i].split, rows->rows, &first, &end, &err),
			&err);
		unit_ok(mfs_gpt_dataset_new(rows, first, end, &c, &g, &err), &err);
		compare_with_fixture(g, cases[i].name);
		mfs_gpt_dataset_free(g);
		mfs_rows_free(rows);
		mfs_indexed_dataset_free(d);
	}
}
END_TEST

/* ---- datasets in memory ---- */

struct memory {
	struct mfs_buf idx;
	struct mfs_indexed_dataset *data;
	struct mfs_rows *rows;
	struct mfs_gpt_dataset *gpt;
};

static struct memory open_lengths(const int32_t *lengths, uint64_t count,
				  const struct mfs_gpt_config *c)
{
	const struct fake_idx f = {.sequences = count, .code = 4, .lengths = lengths};
	struct memory m = {0};
	const uint64_t bin = fake_idx(&m.idx, &f);

	unit_ok(mfs_indexed_dataset_memory(m.idx.data, m.idx.len, bin, "memory", &m.data, &err),
		&err);
	unit_ok(mfs_rows_indexed(m.data, &m.rows, &err), &err);
	unit_ok(mfs_gpt_dataset_new(m.rows, 0, count, c, &m.gpt, &err), &err);
	return m;
}

static void close_memory(struct memory *m)
{
	mfs_gpt_dataset_free(m->gpt);
	mfs_rows_free(m->rows);
	mfs_indexed_dataset_free(m->data);
	mfs_buf_release(&m->idx);
}

/* The rows of the sample index as helpers.cpp finds them, one after the other. */
static int32_t (*walk(const struct memory *m, const int32_t *lengths, uint64_t samples))[2]
{
	const struct mfs_gpt_config *c = mfs_gpt_dataset_config(m->gpt);
	const uint64_t documents = mfs_gpt_dataset_documents(m->gpt);
	const int32_t extra = !c->no_extra_token;
	int32_t *order = calloc(documents, sizeof(*order)), off = 0;
	int32_t(*rows)[2] = calloc(samples + 1, sizeof(*rows));
	uint64_t doc = 0;

	unit_ok(mfs_gpt_dataset_document_index(m->gpt, 0, documents, order, &err), &err);
	for (uint64_t k = 1; k <= samples; k++) {
		int32_t rest = (int32_t)c->seq_length + extra;

		while (rest) {
			const int32_t length = lengths[order[doc]] - off;

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
		rows[k][0] = (int32_t)doc;
		rows[k][1] = off;
	}
	free(order);
	return rows;
}

/* The whole sample index in pieces of any length, in both widths. */
static void check_samples(const struct memory *m, const int32_t *lengths, size_t step)
{
	const uint64_t samples = mfs_gpt_dataset_sizes(m->gpt)->samples;
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	int32_t(*rows)[2] = walk(m, lengths, samples);
	struct mfs_vfile *f;
	size_t size;
	uint8_t *bytes;

	unit_ok(mfs_index_file_gpt(m->gpt, MFS_INDEX_SAMPLES, &rules, &f, &err), &err);
	bytes = read_all(f, step, &size);
	ck_assert_uint_eq(size, 128 + 8 * (samples + 1));
	ck_assert_mem_eq(bytes + 128, rows, 8 * (samples + 1));
	check_at_random(f, bytes, size);
	mfs_vfile_free(f);
	free(bytes);
	unit_ok(mfs_dataset_rules_of("0.9", &rules, &err), &err);
	unit_ok(mfs_index_file_gpt(m->gpt, MFS_INDEX_SAMPLES, &rules, &f, &err), &err);
	bytes = read_all(f, step, &size);
	ck_assert_uint_eq(size, 128 + 16 * (samples + 1));
	ck_assert_ptr_nonnull(memmem(bytes, 128, "'<i8'", 5));
	for (uint64_t k = 0; k <= samples; k++) {
		ck_assert_int_eq((int64_t)mfs_le64(bytes + 128 + 16 * k), rows[k][0]);
		ck_assert_int_eq((int64_t)mfs_le64(bytes + 136 + 16 * k), rows[k][1]);
	}
	mfs_vfile_free(f);
	free(bytes);
	free(rows);
}

START_TEST(sample_rows_as_megatron_walks)
{
	static int32_t lengths[5000];

	srand(5);
	for (int i = 0; i < 60; i++) {
		const uint64_t count = 1 + (uint64_t)rand() % (i % 10 ? 300 : 5000);
		const int high = 1 + rand() % 40, empty = rand() % 3;
		const struct mfs_gpt_config c = {
			/* Also samples of many documents, which are passed in blocks. */
			.seq_length = 1 + (uint32_t)rand() % (i % 3 ? 30 : 3000),
			.seed = (uint32_t)rand(),
			.samples = 1 + (uint64_t)rand() % 100,
			.no_extra_token = rand() % 3 == 0,
			.separate_last_epoch = true};
		struct memory m;

		for (uint64_t k = 0; k < count; k++)
			lengths[k] = empty && rand() % 2 ? 0 : rand() % (high + 1);
		lengths[rand() % (int)count] += 3100;
		m = open_lengths(lengths, count, &c);
		check_samples(&m, lengths, 1 + (size_t)rand() % 50000);
		close_memory(&m);
	}
}
END_TEST

START_TEST(many_documents)
{
	const struct mfs_gpt_config c = {
		.seq_length = 2, .seed = 7, .samples = 9000, .separate_last_epoch = true};
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	static int32_t lengths[4000];
	struct memory m;
	bool *seen;

	for (int i = 0; i < 4000; i++)
		lengths[i] = 1 + i % 5;
	m = open_lengths(lengths, 4000, &c);
	seen = calloc(mfs_gpt_dataset_sizes(m.gpt)->samples, 1);
	for (unsigned a = 0; a < MFS_INDEX_GPT_ARRAYS; a++) {
		struct mfs_vfile *f;
		uint8_t *bytes;
		size_t size;

		unit_ok(mfs_index_file_gpt(m.gpt, a, &rules, &f, &err), &err);
		bytes = read_all(f, 100001, &size);
		check_at_random(f, bytes, size);
		/* A permutation, so nothing is shifted between pieces. */
		for (size_t at = 128; a == MFS_INDEX_SHUFFLE && at < size; at += 4) {
			const uint32_t k = mfs_le32(bytes + at);

			ck_assert_uint_lt(k, mfs_gpt_dataset_sizes(m.gpt)->samples);
			ck_assert(!seen[k]);
			seen[k] = true;
		}
		mfs_vfile_free(f);
		free(bytes);
	}
	free(seen);
	close_memory(&m);
}
END_TEST

/* ---- blends ---- */

START_TEST(a_blend_has_the_indices_of_its_order)
{
	/* By 3 to 1 the first one is drawn from at 0, 2 and 3 of every four: its error is the
	 * larger or the same. */
	static const double weights[] = {3, 1};
	static const int16_t dataset[] = {0, 1, 0, 0, 0, 1, 0, 0};
	static const int64_t sample[] = {0, 0, 1, 2, 3, 1, 4, 5};
	static const char head16[] =
		"\x93NUMPY\1\0v\0{'descr': '<i2', 'fortran_order': False, 'shape': (8,), }";
	static const char head64[] =
		"\x93NUMPY\1\0v\0{'descr': '<i8', 'fortran_order': False, 'shape': (8,), }";
	struct mfs_vfile *f;
	struct mfs_blend *b;
	uint8_t *bytes;
	size_t size;

	unit_ok(mfs_blend_new(weights, 2, 8, &b, &err), &err);
	unit_ok(mfs_index_file_blend(b, MFS_INDEX_DATASET, &f, &err), &err);
	bytes = read_all(f, 5, &size);
	ck_assert_uint_eq(size, 128 + sizeof(dataset));
	ck_assert_mem_eq(bytes, head16, sizeof(head16) - 1);
	ck_assert_mem_eq(bytes + 128, dataset, sizeof(dataset));
	mfs_vfile_free(f);
	free(bytes);
	unit_ok(mfs_index_file_blend(b, MFS_INDEX_DATASET_SAMPLE, &f, &err), &err);
	bytes = read_all(f, 1000, &size);
	ck_assert_uint_eq(size, 128 + sizeof(sample));
	ck_assert_mem_eq(bytes, head64, sizeof(head64) - 1);
	ck_assert_mem_eq(bytes + 128, sample, sizeof(sample));
	mfs_vfile_free(f);
	free(bytes);
	mfs_blend_free(b);
}
END_TEST

START_TEST(wrong_arrays)
{
	static const int32_t lengths[] = {10, 10};
	const struct mfs_gpt_config c = {
		.seq_length = 4, .samples = 2, .separate_last_epoch = true};
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	struct memory m = open_lengths(lengths, 2, &c);
	static const uint64_t sizes[] = {4};
	struct mfs_blend *b;
	struct mfs_vfile *f;

	unit_ok(mfs_blend_new_exhaustive(sizes, 1, &b, &err), &err);
	unit_fails(mfs_index_file_gpt(m.gpt, MFS_INDEX_DATASET, &rules, &f, &err), &err, -EINVAL,
		   "dataset_index.npy");
	unit_fails(mfs_index_file_blend(b, MFS_INDEX_SHUFFLE, &f, &err), &err, -EINVAL,
		   "shuffle_index.npy");
	mfs_blend_free(b);
	close_memory(&m);
}
END_TEST

/* ---- files that change, readers at once ---- */

START_TEST(a_changed_file)
{
	static const int32_t lengths[] = {5, 6, 7, 8};
	const struct fake_idx fake = {.sequences = 4, .code = 4, .lengths = lengths};
	const struct mfs_gpt_config c = {
		.seq_length = 4, .samples = 2, .separate_last_epoch = true};
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	const char *dir = unit_tmpdir(), *path;
	static uint8_t tokens[26 * 4];
	struct mfs_indexed_dataset *d;
	struct mfs_gpt_dataset *g;
	struct mfs_buf idx = {0};
	struct mfs_rows *rows;
	struct mfs_vfile *f;
	char prefix[512];
	uint8_t byte;
	size_t n;

	ck_assert_uint_eq(fake_idx(&idx, &fake), sizeof(tokens));
	unit_write(dir, "x.idx", idx.data, idx.len);
	unit_write(dir, "x.bin", tokens, sizeof(tokens));
	snprintf(prefix, sizeof(prefix), "%s/x", dir);
	path = prefix;
	unit_ok(mfs_indexed_dataset_open(&path, 1, &d, &err), &err);
	unit_ok(mfs_rows_indexed(d, &rows, &err), &err);
	unit_ok(mfs_gpt_dataset_new(rows, 0, 4, &c, &g, &err), &err);
	unit_ok(mfs_index_file_gpt(g, MFS_INDEX_DOCUMENTS, &rules, &f, &err), &err);
	unit_ok(mfs_vfile_pread(f, 128, &byte, 1, &n, &err), &err);
	unit_write(dir, "x.idx", idx.data, idx.len - 1);
	unit_fails(mfs_vfile_pread(f, 128, &byte, 1, &n, &err), &err, -ESTALE, "x.idx");
	mfs_vfile_free(f);
	mfs_gpt_dataset_free(g);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&idx);
}
END_TEST

struct reader {
	struct mfs_vfile *f;
	uint8_t *bytes;
	size_t size;
};

static void *read_file(void *arg)
{
	struct reader *r = arg;

	r->bytes = read_all(r->f, 333, &r->size);
	return NULL;
}

START_TEST(readers_at_once)
{
	const struct mfs_gpt_config c = {
		.seq_length = 3, .seed = 1, .samples = 3000, .separate_last_epoch = true};
	const struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	static int32_t lengths[1000];
	struct reader readers[6];
	pthread_t threads[6];
	struct memory m;

	for (int i = 0; i < 1000; i++)
		lengths[i] = 1 + i % 7;
	m = open_lengths(lengths, 1000, &c);
	for (int i = 0; i < 6; i++) {
		unit_ok(mfs_index_file_gpt(m.gpt, (unsigned)i % 3, &rules, &readers[i].f, &err),
			&err);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_file, &readers[i]), 0);
	}
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(readers[i].size, readers[i + 3].size);
		ck_assert_mem_eq(readers[i].bytes, readers[i + 3].bytes, readers[i].size);
	}
	for (int i = 0; i < 6; i++) {
		mfs_vfile_free(readers[i].f);
		free(readers[i].bytes);
	}
	close_memory(&m);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("index_files");
	TCase *c = unit_case(s, "datasets", megatrons_files);

	tcase_add_test(c, sample_rows_as_megatron_walks);
	tcase_add_test(c, many_documents);
	c = unit_case(s, "others", a_blend_has_the_indices_of_its_order);
	tcase_add_test(c, wrong_arrays);
	tcase_add_test(c, a_changed_file);
	tcase_add_test(c, readers_at_once);
	return s;
}
