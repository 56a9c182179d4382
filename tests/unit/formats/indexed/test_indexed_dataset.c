/* Indexed datasets: formats/indexed/indexed_dataset.h. Refused files: tests/fuzz/reject/idx. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/fake_idx.h"

static struct mfs_error err;

static const char *at(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", unit_tmpdir(), name);
	return path;
}

static struct mfs_indexed_dataset *open_one(const char *prefix)
{
	struct mfs_indexed_dataset *d;

	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
	return d;
}

static struct mfs_indexed_dataset *open_memory(struct mfs_buf *b, const struct fake_idx *f,
					       int64_t bin_more)
{
	struct mfs_indexed_dataset *d;
	uint64_t bin = fake_idx(b, f);

	unit_ok(mfs_indexed_dataset_memory(b->data, b->len, bin + (uint64_t)bin_more, "memory", &d,
					   &err),
		&err);
	return d;
}

/* The tokens of a sequence that write_files() makes: what no other has. */
static int64_t token_of(uint64_t sequence, uint64_t i)
{
	return (int64_t)((sequence * 131 + i * 7) % 50000);
}

/* PREFIX.idx and .bin of uint16 below unit_tmpdir(). */
static const char *write_files(const char *name, const struct fake_idx *f)
{
	struct mfs_buf idx = {0}, bin = {0};
	char file[64];

	fake_idx(&idx, f);
	for (uint64_t i = 0; i < f->sequences; i++)
		for (int32_t k = 0; k < f->lengths[i]; k++) {
			const uint16_t t = (uint16_t)token_of(i, (uint64_t)k);

			mfs_buf_add(&bin, &t, sizeof(t));
		}
	snprintf(file, sizeof(file), "%s.idx", name);
	unit_write(unit_tmpdir(), file, idx.data, idx.len);
	snprintf(file, sizeof(file), "%s.bin", name);
	unit_write(unit_tmpdir(), file, bin.len ? bin.data : "", bin.len);
	mfs_buf_release(&idx);
	mfs_buf_release(&bin);
	return at(name);
}

static const int32_t five[] = {3, 0, 5, 1, 2};
static const struct fake_idx five_idx = {.sequences = 5, .code = 8, .lengths = five};

START_TEST(megatrons_file_reads_as_it_was_written)
{
	struct mfs_indexed_dataset *d = open_one(unit_fixture("data/tales_text_document"));
	const struct mfs_indexed_info *info = mfs_indexed_dataset_info(d);
	struct mfs_indexed_report report;
	uint64_t count;
	int64_t last[2];

	ck_assert_int_eq(info->dtype, MFS_U16);
	ck_assert_uint_eq(info->sequences, 240);
	ck_assert_uint_eq(info->document_entries, 241);
	ck_assert_int_eq(info->pointers, MFS_POINTERS_CONTIGUOUS);
	ck_assert(!info->multimodal && !info->bin_short);
	ck_assert_str_eq(mfs_indexed_dataset_warning(d), "");
	unit_ok(mfs_indexed_dataset_token_count(d, 0, 240, &count, &err), &err);
	ck_assert_uint_eq(count * 2, info->bin_size);
	unit_ok(mfs_indexed_dataset_validate(d, &report, &err), &err);
	ck_assert_uint_eq(report.tokens, count);
	/* --append-eod: each document ends with the same token. */
	for (uint64_t i = 0; i < 240; i++) {
		struct mfs_sequence s;

		unit_ok(mfs_indexed_dataset_sequence(d, i, &s, &err), &err);
		unit_ok(mfs_indexed_dataset_tokens(d, i, s.length - 1, 1, &last[i > 0], &err),
			&err);
		ck_assert_int_eq(last[i > 0], last[0]);
	}
	unit_ok(mfs_indexed_dataset_check(d, &err), &err);
	mfs_indexed_dataset_drop(d);
	mfs_indexed_dataset_free(d);
}
END_TEST

START_TEST(each_code_has_its_type)
{
	static const enum mfs_dtype want[] = {MFS_U8,  MFS_I8,	MFS_I16, MFS_I32,
					      MFS_I64, MFS_F64, MFS_F32, MFS_U16};

	for (uint8_t code = 1; code <= 8; code++) {
		const struct fake_idx f = {.sequences = 5, .code = code, .lengths = five};
		struct mfs_buf b = {0};
		struct mfs_indexed_dataset *d = open_memory(&b, &f, 0);
		struct mfs_sequence s;

		ck_assert_int_eq(mfs_indexed_dataset_info(d)->dtype, want[code - 1]);
		ck_assert_uint_eq(mfs_idx_code(want[code - 1]), code);
		unit_ok(mfs_indexed_dataset_sequence(d, 3, &s, &err), &err);
		ck_assert_uint_eq(s.offset, 8 * mfs_dtype_size(want[code - 1]));
		ck_assert_uint_eq(s.length, 1);
		mfs_indexed_dataset_free(d);
		mfs_buf_release(&b);
	}
	ck_assert_int_eq(mfs_idx_dtype(0), MFS_DTYPE_NONE);
	ck_assert_int_eq(mfs_idx_dtype(9), MFS_DTYPE_NONE);
	ck_assert_uint_eq(mfs_idx_code(MFS_BF16), 0);
}
END_TEST

START_TEST(a_file_that_was_cut_anywhere_is_refused)
{
	struct mfs_indexed_dataset *d;
	struct mfs_buf b = {0};
	const uint64_t bin = fake_idx(&b, &five_idx);
	uint8_t *bytes = (uint8_t *)b.data;

	/* Cut anywhere, or longer than it says. */
	for (size_t len = 0; len < b.len; len++)
		unit_fails(mfs_indexed_dataset_memory(bytes, len, bin, "x", &d, &err), &err,
			   -EINVAL, "x.idx");
	mfs_buf_add(&b, "123456", 6);
	bytes = (uint8_t *)b.data;
	unit_fails(mfs_indexed_dataset_memory(bytes, b.len, bin, "x", &d, &err), &err, -EINVAL,
		   "expected");
	bytes[9] = 2;
	unit_fails(mfs_indexed_dataset_memory(bytes, b.len - 6, bin, "x", &d, &err), &err, -ENOTSUP,
		   "version 2");
	bytes[9] = 1;
	bytes[17] = 9;
	unit_fails(mfs_indexed_dataset_memory(bytes, b.len - 6, bin, "x", &d, &err), &err, -EINVAL,
		   "dtype code is 9");
	bytes[17] = 8;
	mfs_put_le64(bytes + 18, UINT64_MAX / 4);
	unit_fails(mfs_indexed_dataset_memory(bytes, b.len - 6, bin, "x", &d, &err), &err, -EINVAL,
		   "it cannot have");
	memcpy(bytes, "TNTIDX\0", 8);
	unit_fails(mfs_indexed_dataset_memory(bytes, b.len, bin, "x", &d, &err), &err, -ENOTSUP,
		   "TNTIDX");
	mfs_buf_release(&b);
}
END_TEST

START_TEST(wrong_documents)
{
	static const int64_t wrong[][3] = {{1, 2, 5}, {0, 2, 4}, {0, 2, 6}, {0, 2, -1}};
	struct mfs_indexed_dataset *d;

	for (unsigned i = 0; i < 4; i++) {
		const struct fake_idx f = {.sequences = 5,
					   .code = 8,
					   .lengths = five,
					   .documents = wrong[i],
					   .entries = 3};
		struct mfs_buf b = {0};
		const uint64_t bin = fake_idx(&b, &f);

		unit_fails(mfs_indexed_dataset_memory(b.data, b.len, bin, "x", &d, &err), &err,
			   -EINVAL, "documents");
		mfs_buf_release(&b);
	}
}
END_TEST

/* Nothing at all: what preprocess_data.py makes of an empty file. */
START_TEST(datasets_without_sequences_are_datasets)
{
	static const int64_t none[] = {0}, two[] = {0, 0, 0};
	struct fake_idx f = {.code = 4, .documents = none, .entries = 1};
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d = open_memory(&b, &f, 0);
	struct mfs_indexed_report report;
	struct mfs_sequence s;
	uint64_t count = 1;

	unit_ok(mfs_indexed_dataset_validate(d, &report, &err), &err);
	unit_ok(mfs_indexed_dataset_token_count(d, 0, 0, &count, &err), &err);
	ck_assert_uint_eq(count, 0);
	unit_fails(mfs_indexed_dataset_sequence(d, 0, &s, &err), &err, -EINVAL, "sequences");
	mfs_indexed_dataset_free(d);
	b.len = 0;
	f.documents = two; /* two documents of no sequence */
	f.entries = 3;
	d = open_memory(&b, &f, 0);
	ck_assert_uint_eq(mfs_indexed_dataset_info(d)->document_entries, 3);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

/* Lengths that numpy multiplied in 32 bits: the pointers wrap around at 2 GiB. */
START_TEST(overflowed_pointers)
{
	enum { N = 1000 };
	int32_t lengths[N];
	int64_t pointers[N], repaired[N];
	uint64_t right = 0;
	struct fake_idx f = {.sequences = N, .code = 4, .lengths = lengths, .pointers = pointers};
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_report report;

	for (int i = 0; i < N; i++) {
		lengths[i] = 2000000 + i * 17;
		pointers[i] = (int32_t)(uint32_t)right;
		right += 4 * (uint64_t)lengths[i];
	}
	d = open_memory(&b, &f, 0);
	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_REPAIRED);
	ck_assert(!mfs_indexed_dataset_info(d)->bin_short);
	unit_sentence(mfs_indexed_dataset_warning(d), "overflowed");
	unit_ok(mfs_indexed_dataset_validate(d, &report, &err), &err);
	right = 0;
	for (uint64_t i = 0; i < N; i++) {
		struct mfs_sequence s;

		unit_ok(mfs_indexed_dataset_sequence(d, i, &s, &err), &err);
		ck_assert_uint_eq(s.offset, right);
		right += 4 * (uint64_t)lengths[i];
	}
	for (uint64_t first = 0; first < N; first += 97) {
		uint64_t tokens, sum = 0;
		const uint64_t end = first + 300 < N ? first + 300 : N;

		unit_ok(mfs_indexed_dataset_pointers(d, first, end - first, repaired, &err), &err);
		unit_ok(mfs_indexed_dataset_token_count(d, first, end, &tokens, &err), &err);
		for (uint64_t i = first; i < end; i++)
			sum += (uint64_t)lengths[i];
		ck_assert_uint_eq(tokens, sum);
		ck_assert_int_eq(repaired[1] - repaired[0], 4ll * lengths[first]);
	}
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

/* Pointers that are neither: what lies inside can be had, and what does not cannot. */
START_TEST(pointers_as_written)
{
	static const int64_t pointers[] = {6, 0, 12, -2, 24};
	struct fake_idx f = five_idx;
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_report report;
	struct mfs_sequence s;
	uint64_t count;

	f.pointers = pointers;
	d = open_memory(&b, &f, 4); /* 26 bytes: the last one would need 28 */
	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_AS_WRITTEN);
	ck_assert(mfs_indexed_dataset_info(d)->bin_short);
	unit_ok(mfs_indexed_dataset_sequence(d, 0, &s, &err), &err);
	ck_assert_uint_eq(s.offset, 6);
	unit_ok(mfs_indexed_dataset_sequence(d, 1, &s, &err), &err);
	unit_ok(mfs_indexed_dataset_sequence(d, 2, &s, &err), &err);
	unit_fails(mfs_indexed_dataset_sequence(d, 3, &s, &err), &err, -EIO, "sequence 3");
	unit_fails(mfs_indexed_dataset_sequence(d, 4, &s, &err), &err, -EIO, "sequence 4");
	unit_ok(mfs_indexed_dataset_token_count(d, 1, 5, &count, &err), &err);
	ck_assert_uint_eq(count, 8);
	unit_fails(mfs_indexed_dataset_validate(d, &report, &err), &err, -EINVAL, "sequence 0");
	ck_assert_uint_eq(report.outside, 2);
	ck_assert_uint_eq(report.empty_sequences, 1);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

/* Sequences in another order than they were written in, which somebody meant. */
START_TEST(another_order)
{
	static const int32_t lengths[] = {3, 2, 5};
	static const int64_t pointers[] = {4, 0, 10};
	struct fake_idx f = {.sequences = 3, .code = 8, .lengths = lengths, .pointers = pointers};
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d = open_memory(&b, &f, 0);
	struct mfs_sequence s;
	uint64_t count;

	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_AS_WRITTEN);
	unit_ok(mfs_indexed_dataset_sequence(d, 0, &s, &err), &err);
	ck_assert_uint_eq(s.offset, 4);
	unit_ok(mfs_indexed_dataset_token_count(d, 0, 2, &count, &err), &err);
	ck_assert_uint_eq(count, 5);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

START_TEST(negative_length)
{
	static const int32_t lengths[] = {3, -1, 5, 1, 2};
	struct fake_idx f = five_idx;
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_report report;
	struct mfs_sequence s;
	int32_t read[5];
	const int32_t who[] = {4, 1};
	uint64_t count;

	f.lengths = lengths;
	d = open_memory(&b, &f, 0);
	unit_ok(mfs_indexed_dataset_sequence(d, 0, &s, &err), &err);
	unit_fails(mfs_indexed_dataset_sequence(d, 1, &s, &err), &err, -EINVAL, "length -1");
	unit_fails(mfs_indexed_dataset_lengths(d, 0, 5, read, &err), &err, -EINVAL, "length -1");
	unit_fails(mfs_indexed_dataset_gather_lengths(d, who, 2, read, &err), &err, -EINVAL,
		   "sequence 1");
	unit_fails(mfs_indexed_dataset_token_count(d, 0, 5, &count, &err), &err, -EINVAL, "-1");
	unit_fails(mfs_indexed_dataset_validate(d, &report, &err), &err, -EINVAL, "-1");
	ck_assert_uint_eq(report.bad_lengths, 1);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

/* A .bin that ends early costs the sequences at its end, and no others. */
START_TEST(short_bin)
{
	const char *prefix = write_files("short", &five_idx);
	struct mfs_indexed_dataset *d;
	int64_t tokens[8];

	ck_assert_int_eq(truncate(at("short.bin"), 2 * 9 - 1), 0);
	d = open_one(prefix);
	ck_assert(mfs_indexed_dataset_info(d)->bin_short);
	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_CONTIGUOUS);
	unit_sentence(mfs_indexed_dataset_warning(d), "byte 17");
	unit_ok(mfs_indexed_dataset_tokens(d, 2, 0, 5, tokens, &err), &err);
	ck_assert_int_eq(tokens[4], token_of(2, 4));
	unit_fails(mfs_indexed_dataset_tokens(d, 3, 0, 1, tokens, &err), &err, -EIO, "sequence 3");
	unit_fails(mfs_indexed_dataset_tokens(d, 4, 0, 1, tokens, &err), &err, -EIO, "short.bin");
	mfs_indexed_dataset_free(d);
}
END_TEST

START_TEST(replaced_bin)
{
	struct mfs_indexed_dataset *d = open_one(write_files("live", &five_idx));
	uint16_t raw[5];
	int64_t wide[5];

	unit_ok(mfs_indexed_dataset_read(d, 2, 1, 4, raw, &err), &err);
	ck_assert_uint_eq(raw[0], (uint64_t)token_of(2, 1));
	unit_fails(mfs_indexed_dataset_read(d, 2, 1, 5, raw, &err), &err, -EINVAL, "tokens");
	ck_assert_int_eq(truncate(at("live.bin"), 4), 0);
	unit_fails(mfs_indexed_dataset_tokens(d, 2, 0, 5, wide, &err), &err, -ESTALE, "live.bin");
	unit_fails(mfs_indexed_dataset_check(d, &err), &err, -ESTALE, "live.bin");
	mfs_indexed_dataset_free(d);
}
END_TEST

START_TEST(floats_are_no_tokens)
{
	const struct fake_idx f = {.sequences = 5, .code = 7, .lengths = five};
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d;
	int64_t token;

	fake_idx(&b, &f);
	unit_write(unit_tmpdir(), "float.idx", b.data, b.len);
	unit_write(unit_tmpdir(), "float.bin", b.data, 44);
	d = open_one(at("float"));
	unit_fails(mfs_indexed_dataset_tokens(d, 0, 0, 1, &token, &err), &err, -ENOTSUP, "float32");
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

/* Three datasets as one, an empty one among them: each array, tokens, and the .idx of them all. */
START_TEST(several_datasets_read_as_one)
{
	static const int32_t other[] = {4, 4};
	static const int64_t documents[] = {0, 0, 2}, none[] = {0};
	const struct fake_idx second = {
		.sequences = 2, .code = 8, .lengths = other, .documents = documents, .entries = 3};
	const struct fake_idx empty = {.code = 8, .documents = none, .entries = 1};
	const char *prefixes[] = {write_files("a", &five_idx), write_files("e", &empty),
				  write_files("b", &second)};
	static const int32_t lengths[] = {3, 0, 5, 1, 2, 4, 4};
	static const int64_t ends[] = {0, 1, 2, 3, 4, 5, 5, 7};
	const struct fake_idx all = {
		.sequences = 7, .code = 8, .lengths = lengths, .documents = ends, .entries = 8};
	struct mfs_indexed_dataset *d;
	struct mfs_bin_extent extent;
	struct mfs_buf want = {0};
	uint8_t got[256];
	int64_t tokens[4];

	unit_ok(mfs_indexed_dataset_open(prefixes, 3, &d, &err), &err);
	fake_idx(&want, &all);
	ck_assert_uint_eq(mfs_indexed_dataset_idx_size(d), want.len);
	for (size_t first = 0; first < want.len; first++)
		for (size_t len = 0; len <= want.len - first; len += 1 + len / 3) {
			unit_ok(mfs_indexed_dataset_idx_read(d, first, got, len, &err), &err);
			ck_assert_mem_eq(got, want.data + first, len);
		}
	unit_ok(mfs_indexed_dataset_tokens(d, 6, 0, 4, tokens, &err), &err);
	ck_assert_int_eq(tokens[3], token_of(1, 3));
	unit_ok(mfs_indexed_dataset_extent(d, 21, &extent, &err), &err);
	ck_assert_uint_eq(extent.len, 1);
	unit_ok(mfs_indexed_dataset_extent(d, 22, &extent, &err), &err);
	ck_assert_uint_eq(extent.offset, 0);
	ck_assert_uint_eq(extent.len, 16);
	unit_fails(mfs_indexed_dataset_extent(d, 38, &extent, &err), &err, -EINVAL, "bytes");
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&want);
}
END_TEST

START_TEST(merge_refused)
{
	static const int8_t modes[] = {0, 1, 0, 1, 1};
	struct fake_idx wide = five_idx, modal = five_idx;
	const char *prefixes[2] = {write_files("a", &five_idx)};
	struct mfs_indexed_dataset *d;
	int8_t read[5];

	wide.code = 4;
	prefixes[1] = write_files("wide", &wide);
	unit_fails(mfs_indexed_dataset_open(prefixes, 2, &d, &err), &err, -EINVAL, "dtype code");
	modal.modes = modes;
	prefixes[1] = write_files("modal", &modal);
	unit_fails(mfs_indexed_dataset_open(prefixes, 2, &d, &err), &err, -EINVAL, "modes");
	d = open_one(prefixes[1]);
	ck_assert(mfs_indexed_dataset_info(d)->multimodal);
	unit_ok(mfs_indexed_dataset_modes(d, 1, 4, read, &err), &err);
	ck_assert_mem_eq(read, modes + 1, 4);
	mfs_indexed_dataset_free(d);
	d = open_one(prefixes[0]);
	unit_fails(mfs_indexed_dataset_modes(d, 0, 1, read, &err), &err, -ENODATA, "multimodal");
	mfs_indexed_dataset_free(d);
	prefixes[1] = at("not there");
	unit_fails(mfs_indexed_dataset_open(prefixes, 2, &d, &err), &err, -ENOENT, "not there.idx");
	unit_fails(mfs_indexed_dataset_open(prefixes, 0, &d, &err), &err, -EINVAL, NULL);
}
END_TEST

/* One without sequences goes with either, and does not stand for those after it. */
START_TEST(merge_modes_after_an_empty_one)
{
	static const int64_t none[] = {0};
	static const int8_t modes[] = {0, 1, 0, 1, 1};
	const struct fake_idx empty = {.code = 8, .documents = none, .entries = 1};
	struct fake_idx modal = five_idx;
	const char *prefixes[3] = {write_files("empty", &empty)};
	struct mfs_indexed_dataset *d;
	int8_t read[5];

	modal.modes = modes;
	prefixes[1] = write_files("modal", &modal);
	unit_ok(mfs_indexed_dataset_open(prefixes, 2, &d, &err), &err);
	unit_ok(mfs_indexed_dataset_modes(d, 0, 5, read, &err), &err);
	ck_assert_mem_eq(read, modes, 5);
	mfs_indexed_dataset_free(d);
	prefixes[2] = write_files("plain", &five_idx);
	unit_fails(mfs_indexed_dataset_open(prefixes, 3, &d, &err), &err, -EINVAL,
		   "plain.idx and ");
	prefixes[2] = prefixes[0];
	unit_ok(mfs_indexed_dataset_open(prefixes, 3, &d, &err), &err);
	mfs_indexed_dataset_free(d);
}
END_TEST

START_TEST(datasets_of_a_directory_are_listed_by_name)
{
	char **list;
	size_t count;

	unit_fails(mfs_indexed_dataset_list(unit_tmpdir(), &list, &count, &err), &err, -ENODATA,
		   "no indexed dataset");
	write_files("b_text_document", &five_idx);
	write_files("a.b", &five_idx);
	write_files("a", &five_idx);
	write_files("a-2", &five_idx); /* before "a", were it by names of files */
	unit_write(unit_tmpdir(), "lonely.idx", "", 0);
	unit_write(unit_tmpdir(), "c.bin", "", 0);
	unit_write(unit_tmpdir(), ".idx", "", 0);
	unit_ok(mfs_indexed_dataset_list(unit_tmpdir(), &list, &count, &err), &err);
	ck_assert_uint_eq(count, 4);
	ck_assert_str_eq(list[0], at("a"));
	ck_assert_str_eq(list[1], at("a-2"));
	ck_assert_str_eq(list[2], at("a.b"));
	ck_assert_str_eq(list[3], at("b_text_document"));
	free(list);
	unit_fails(mfs_indexed_dataset_list(at("nowhere"), &list, &count, &err), &err, -ENOENT,
		   "nowhere");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("indexed_dataset");

	unit_case(s, "fixture", megatrons_file_reads_as_it_was_written);
	unit_case(s, "dtypes", each_code_has_its_type);
	unit_case(s, "refused", a_file_that_was_cut_anywhere_is_refused);
	unit_case(s, "wrong documents", wrong_documents);
	unit_case(s, "empty", datasets_without_sequences_are_datasets);
	unit_case(s, "overflowed pointers", overflowed_pointers);
	unit_case(s, "pointers as written", pointers_as_written);
	unit_case(s, "another order", another_order);
	unit_case(s, "negative length", negative_length);
	unit_case(s, "short bin", short_bin);
	unit_case(s, "replaced bin", replaced_bin);
	unit_case(s, "floats", floats_are_no_tokens);
	unit_case(s, "merge", several_datasets_read_as_one);
	unit_case(s, "merge refused", merge_refused);
	unit_case(s, "merge modes", merge_modes_after_an_empty_one);
	unit_case(s, "list", datasets_of_a_directory_are_listed_by_name);
	return s;
}
