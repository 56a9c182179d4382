/* Writing indexed datasets: formats/indexed_dataset_write.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/indexed_dataset.h"
#include "formats/indexed_dataset_write.h"

static struct mfs_error err;

static const char *at(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", unit_tmpdir(), name);
	return path;
}

static struct mfs_indexed_writer *open_writer(const char *name, enum mfs_dtype dtype, bool resume,
					      uint64_t want)
{
	struct mfs_indexed_writer *w;
	uint64_t position = 99;

	unit_ok(mfs_indexed_writer_open(at(name), dtype, false, resume, &w, &position, &err), &err);
	ck_assert_uint_eq(position, want);
	return w;
}

/* Document i: i % 4 sequences of i % 7 tokens each. */
static void write_documents(struct mfs_indexed_writer *w, int first, int end)
{
	for (int i = first; i < end; i++) {
		for (int s = 0; s < i % 4; s++) {
			for (int64_t k = 0; k < i % 7; k++) {
				const int64_t token = i * 100 + s * 10 + k;

				unit_ok(mfs_indexed_writer_add_tokens(w, &token, 1, &err), &err);
			}
			unit_ok(mfs_indexed_writer_end_sequence(w, 0, &err), &err);
		}
		unit_ok(mfs_indexed_writer_end_document(w, &err), &err);
	}
}

static void same_file(const char *a, const char *b)
{
	size_t la, lb;
	uint8_t *x = unit_slurp(at(a), &la), *y = unit_slurp(at(b), &lb);

	ck_assert_uint_eq(la, lb);
	ck_assert_mem_eq(x, y, la);
	free(x);
	free(y);
}

static void nothing_else(const char *name)
{
	static const char *const left[] = {".bin.part",	      ".lengths.part", ".journal",
					   ".documents.part", ".modes.part",   ".idx.part"};
	char file[64];

	for (unsigned i = 0; i < sizeof(left) / sizeof(*left); i++) {
		snprintf(file, sizeof(file), "%s%s", name, left[i]);
		ck_assert_msg(access(at(file), F_OK) != 0, "%s is left", file);
	}
}

/* A dataset in one go, which the others are compared with. */
static void write_whole(const char *name, int documents)
{
	struct mfs_indexed_writer *w = open_writer(name, MFS_I32, false, 0);

	write_documents(w, 0, documents);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	nothing_else(name);
}

START_TEST(test_reads_back)
{
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_report report;
	const char *prefix = at("whole");
	uint64_t sequence = 0;

	write_whole("whole", 500);
	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
	unit_ok(mfs_indexed_dataset_validate(d, &report, &err), &err);
	ck_assert_uint_eq(mfs_indexed_dataset_info(d)->document_entries, 501);
	for (int i = 0; i < 500; i++) {
		int64_t end, tokens[7];

		for (int s = 0; s < i % 4; s++, sequence++) {
			struct mfs_sequence where;

			unit_ok(mfs_indexed_dataset_sequence(d, sequence, &where, &err), &err);
			ck_assert_uint_eq(where.length, (uint64_t)(i % 7));
			unit_ok(mfs_indexed_dataset_tokens(d, sequence, 0, where.length, tokens,
							   &err),
				&err);
			for (int k = 0; k < i % 7; k++)
				ck_assert_int_eq(tokens[k], i * 100 + s * 10 + k);
		}
		unit_ok(mfs_indexed_dataset_documents(d, (uint64_t)i + 1, 1, &end, &err), &err);
		ck_assert_int_eq(end, (int64_t)sequence);
	}
	mfs_indexed_dataset_free(d);
}
END_TEST

/* Stopped at any place, once or often, what was saved goes on where it was. */
START_TEST(test_resume)
{
	struct mfs_indexed_writer *w = open_writer("part", MFS_I32, true, 0);

	write_whole("whole", 300);
	write_documents(w, 0, 10); /* never saved */
	mfs_indexed_writer_free(w);
	w = open_writer("part", MFS_I32, true, 0);
	write_documents(w, 0, 100);
	unit_ok(mfs_indexed_writer_save(w, 100, &err), &err);
	write_documents(w, 100, 150); /* lost */
	mfs_indexed_writer_free(w);
	/* What a power cut may leave behind the saved bytes. */
	for (int i = 0; i < 3; i++) {
		static const char *const parts[] = {"part.bin.part", "part.lengths.part",
						    "part.documents.part"};
		FILE *f = fopen(at(parts[i]), "ab");

		ck_assert_ptr_nonnull(f);
		fputs("rubbish", f);
		fclose(f);
	}
	w = open_writer("part", MFS_I32, true, 100);
	write_documents(w, 100, 200);
	unit_ok(mfs_indexed_writer_save(w, 200, &err), &err);
	mfs_indexed_writer_free(w);
	w = open_writer("part", MFS_I32, true, 200);
	write_documents(w, 200, 300);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	same_file("part.bin", "whole.bin");
	same_file("part.idx", "whole.idx");
	nothing_else("part");
}
END_TEST

/* Stopped between the last two renames: the .bin has its name, the .idx is not there. */
START_TEST(test_stopped_while_finishing)
{
	struct mfs_indexed_writer *w = open_writer("part", MFS_I32, false, 0);

	write_whole("whole", 100);
	write_documents(w, 0, 80);
	unit_ok(mfs_indexed_writer_save(w, 80, &err), &err);
	write_documents(w, 80, 100);
	mfs_indexed_writer_free(w);
	ck_assert_int_eq(rename(at("part.bin.part"), at("part.bin")), 0);
	w = open_writer("part", MFS_I32, true, 80);
	write_documents(w, 80, 100);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	same_file("part.bin", "whole.bin");
	same_file("part.idx", "whole.idx");
}
END_TEST

START_TEST(test_not_resumed)
{
	struct mfs_indexed_writer *w;
	uint64_t position;

	write_whole("whole", 20);
	unit_fails(mfs_indexed_writer_open(at("whole"), MFS_I32, false, true, &w, &position, &err),
		   &err, -EEXIST, "whole.idx");
	unit_write(unit_tmpdir(), "other.bin", "x", 1);
	unit_fails(mfs_indexed_writer_open(at("other"), MFS_I32, false, true, &w, &position, &err),
		   &err, -EEXIST, "other.bin");
	w = open_writer("part", MFS_I32, false, 0);
	write_documents(w, 0, 20);
	unit_ok(mfs_indexed_writer_save(w, 20, &err), &err);
	mfs_indexed_writer_free(w);
	unit_fails(mfs_indexed_writer_open(at("part"), MFS_U16, false, true, &w, &position, &err),
		   &err, -EINVAL, "dtype code");
	ck_assert_int_eq(truncate(at("part.lengths.part"), 4), 0);
	unit_fails(mfs_indexed_writer_open(at("part"), MFS_I32, false, true, &w, &position, &err),
		   &err, -EINVAL, "cannot be resumed");
	/* Begun anew, the journal of before counts no more. */
	w = open_writer("part", MFS_I32, false, 0);
	mfs_indexed_writer_free(w);
	w = open_writer("part", MFS_I32, true, 0);
	mfs_indexed_writer_free(w);
	unit_write(unit_tmpdir(), "part.journal", "hello", 5);
	unit_fails(mfs_indexed_writer_open(at("part"), MFS_I32, false, true, &w, &position, &err),
		   &err, -EINVAL, "journal");
	unit_ok(mfs_indexed_writer_discard(at("part"), &err), &err);
	nothing_else("part");
	unit_ok(mfs_indexed_writer_discard(at("part"), &err), &err);
}
END_TEST

START_TEST(test_refused)
{
	static const struct {
		enum mfs_dtype dtype;
		int64_t low, high;
	} ranges[] = {{MFS_U8, 0, 255},
		      {MFS_I8, -128, 127},
		      {MFS_I16, -32768, 32767},
		      {MFS_U16, 0, 65535},
		      {MFS_I32, INT32_MIN, INT32_MAX}};
	struct mfs_indexed_writer *w;
	uint64_t position;
	int64_t token = 1;

	unit_fails(mfs_indexed_writer_open(at("x"), MFS_BF16, false, false, &w, &position, &err),
		   &err, -EINVAL, "bfloat16");
	unit_fails(mfs_indexed_writer_open(at("no/x"), MFS_I32, false, false, &w, &position, &err),
		   &err, -ENOENT, "no/x");
	for (unsigned i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		const int64_t good[] = {ranges[i].low, ranges[i].high};
		const int64_t bad[] = {ranges[i].low - 1, ranges[i].high + 1};

		w = open_writer("x", ranges[i].dtype, false, 0);
		unit_ok(mfs_indexed_writer_add_tokens(w, good, 2, &err), &err);
		unit_fails(mfs_indexed_writer_add_tokens(w, bad, 1, &err), &err, -ERANGE,
			   "does not fit");
		unit_fails(mfs_indexed_writer_add_tokens(w, bad + 1, 1, &err), &err, -ERANGE,
			   "does not fit");
		mfs_indexed_writer_free(w);
	}
	w = open_writer("x", MFS_F32, false, 0);
	unit_fails(mfs_indexed_writer_add_tokens(w, &token, 1, &err), &err, -ENOTSUP, "float32");
	unit_fails(mfs_indexed_writer_add(w, &token, 1ull << 31, &err), &err, -ERANGE, "2^31");
	unit_ok(mfs_indexed_writer_add(w, &token, 1, &err), &err);
	unit_fails(mfs_indexed_writer_end_document(w, &err), &err, -EBUSY, "inside");
	unit_fails(mfs_indexed_writer_save(w, 1, &err), &err, -EBUSY, "inside");
	unit_ok(mfs_indexed_writer_end_sequence(w, 0, &err), &err);
	unit_fails(mfs_indexed_writer_save(w, 1, &err), &err, -EBUSY, "inside");
	unit_fails(mfs_indexed_writer_finish(w, &err), &err, -EBUSY, "no end");
	ck_assert(access(at("x.idx"), F_OK) && access(at("x.bin"), F_OK));
}
END_TEST

START_TEST(test_multimodal_and_empty)
{
	const char *prefix = at("modes");
	struct mfs_indexed_dataset *d;
	struct mfs_indexed_writer *w;
	uint64_t position;
	int8_t modes[3];

	unit_ok(mfs_indexed_writer_open(prefix, MFS_U16, true, false, &w, &position, &err), &err);
	for (int8_t i = 0; i < 3; i++)
		unit_ok(mfs_indexed_writer_end_sequence(w, (int8_t)(i - 1), &err), &err);
	unit_ok(mfs_indexed_writer_end_document(w, &err), &err);
	ck_assert_uint_eq(mfs_indexed_writer_sequences(w), 3);
	ck_assert_uint_eq(mfs_indexed_writer_tokens(w), 0);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
	unit_ok(mfs_indexed_dataset_modes(d, 0, 3, modes, &err), &err);
	ck_assert_int_eq(modes[0], -1);
	mfs_indexed_dataset_free(d);
	write_whole("none", 0);
	prefix = at("none");
	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
	ck_assert_uint_eq(mfs_indexed_dataset_info(d)->document_entries, 1);
	mfs_indexed_dataset_free(d);
	ck_assert_int_eq(mfs_indexed_dtype_for(65499), MFS_U16);
	ck_assert_int_eq(mfs_indexed_dtype_for(65500), MFS_I32);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("indexed_dataset_write");

	unit_case(s, "reads back", test_reads_back);
	unit_case(s, "resume", test_resume);
	unit_case(s, "stopped while finishing", test_stopped_while_finishing);
	unit_case(s, "not resumed", test_not_resumed);
	unit_case(s, "refused", test_refused);
	unit_case(s, "multimodal and empty", test_multimodal_and_empty);
	return s;
}
