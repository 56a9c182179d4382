/* Writing indexed datasets: formats/indexed/indexed_dataset_write.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/indexed/indexed_dataset_write.h"

static struct mfs_error err;

static const char *at(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", unit_tmpdir(), name);
	return path;
}

enum how { NEW, RESUME, REPLACE, RESUME_AND_REPLACE };

static int try_open(const char *name, enum mfs_dtype dtype, enum how how,
		    struct mfs_indexed_writer **ret)
{
	const struct mfs_indexed_writer_config c = {
		.dtype = dtype,
		.resume = how == RESUME || how == RESUME_AND_REPLACE,
		.replace = how == REPLACE || how == RESUME_AND_REPLACE,
	};

	return mfs_indexed_writer_open(at(name), &c, ret, &err);
}

/* want: the note that was saved with the place after which it continues. */
static struct mfs_indexed_writer *open_writer(const char *name, enum mfs_dtype dtype, enum how how,
					      const char *want)
{
	struct mfs_indexed_writer *w;

	unit_ok(try_open(name, dtype, how, &w), &err);
	ck_assert_str_eq(mfs_indexed_writer_note(w), want);
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

	for (unsigned i = 0; i < MFS_ARRAY_SIZE(left); i++) {
		snprintf(file, sizeof(file), "%s%s", name, left[i]);
		ck_assert_msg(access(at(file), F_OK) != 0, "%s is left", file);
	}
}

/* A dataset in one go, which the others are compared with. */
static void write_whole(const char *name, int documents)
{
	struct mfs_indexed_writer *w = open_writer(name, MFS_I32, NEW, "");

	write_documents(w, 0, documents);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	nothing_else(name);
}

START_TEST(reads_back)
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

/* What a power cut may leave after the saved bytes. */
static void add_rubbish(void)
{
	static const char *const parts[] = {"part.bin.part", "part.lengths.part",
					    "part.documents.part"};

	for (int i = 0; i < 3; i++) {
		FILE *f = fopen(at(parts[i]), "ab");

		ck_assert_ptr_nonnull(f);
		fputs("rubbish", f);
		fclose(f);
	}
}

/* Stopped at any place, once or often, what was saved goes on where it was. */
START_TEST(a_writer_goes_on_after_what_was_saved)
{
	struct mfs_indexed_writer *w = open_writer("part", MFS_I32, RESUME, "");
	const int32_t tokens[] = {1, 2, 3};

	write_whole("whole", 300);
	write_documents(w, 0, 10); /* never saved */
	mfs_indexed_writer_free(w);
	w = open_writer("part", MFS_I32, NEW, "");
	write_documents(w, 0, 100);
	unit_ok(mfs_indexed_writer_save(w, "100 of them", &err), &err);
	write_documents(w, 100, 150); /* lost */
	mfs_indexed_writer_free(w);
	add_rubbish();
	w = open_writer("part", MFS_I32, RESUME, "100 of them");
	ck_assert_uint_eq(mfs_indexed_writer_documents(w), 100);
	write_documents(w, 100, 200);
	/* Saved inside of a document, which does not count. */
	unit_ok(mfs_indexed_writer_add(w, tokens, 3, &err), &err);
	unit_ok(mfs_indexed_writer_end_sequence(w, 0, &err), &err);
	unit_ok(mfs_indexed_writer_add(w, tokens, 2, &err), &err);
	unit_ok(mfs_indexed_writer_save(w, "200", &err), &err);
	mfs_indexed_writer_free(w);
	w = open_writer("part", MFS_I32, RESUME, "200");
	write_documents(w, 200, 299);
	/* The same, but the writer lives and goes on. */
	for (int k = 0; k < 3 * 5; k++) {
		const int64_t token = 299 * 100 + k / 5 * 10 + k % 5;

		unit_ok(mfs_indexed_writer_add_tokens(w, &token, 1, &err), &err);
		if (k == 7)
			unit_ok(mfs_indexed_writer_save(w, "299", &err), &err);
		if (k % 5 == 4)
			unit_ok(mfs_indexed_writer_end_sequence(w, 0, &err), &err);
	}
	unit_ok(mfs_indexed_writer_end_document(w, &err), &err);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	same_file("part.bin", "whole.bin");
	same_file("part.idx", "whole.idx");
	nothing_else("part");
}
END_TEST

/* Stopped between the last renames, or before everything was tidied up. */
START_TEST(stopped_while_finishing)
{
	static const char journal[] = "mcorefs-pack 2 4 0 0 0 0\nnote\n";
	struct mfs_indexed_writer *w = open_writer("part", MFS_I32, NEW, "");

	write_whole("whole", 100);
	write_documents(w, 0, 80);
	unit_ok(mfs_indexed_writer_save(w, "80", &err), &err);
	write_documents(w, 80, 100);
	mfs_indexed_writer_free(w);
	ck_assert_int_eq(rename(at("part.bin.part"), at("part.bin")), 0);
	unit_fails(try_open("part", MFS_I32, NEW, &w), &err, -EINPROGRESS, "not finished");
	w = open_writer("part", MFS_I32, RESUME, "80");
	write_documents(w, 80, 100);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	same_file("part.bin", "whole.bin");
	same_file("part.idx", "whole.idx");

	unit_fails(try_open("part", MFS_I32, RESUME, &w), &err, -EALREADY, "complete");
	nothing_else("part");
	unit_write(unit_tmpdir(), "part.journal", journal, sizeof(journal) - 1);
	unit_write(unit_tmpdir(), "part.documents.part", "x", 1);
	unit_fails(try_open("part", MFS_I32, NEW, &w), &err, -EEXIST, "part.idx");
	unit_fails(try_open("part", MFS_I32, RESUME, &w), &err, -EALREADY, "complete");
	nothing_else("part");
	same_file("part.idx", "whole.idx");
	unit_write(unit_tmpdir(), "part.journal", journal, sizeof(journal) - 1);
	unit_fails(try_open("part", MFS_I32, RESUME_AND_REPLACE, &w), &err, -EALREADY, "complete");
	nothing_else("part");
	/* Without its .bin it is neither complete nor to be resumed. */
	ck_assert_int_eq(unlink(at("part.bin")), 0);
	unit_fails(try_open("part", MFS_I32, RESUME, &w), &err, -EEXIST, "part.idx");
	nothing_else("part");
}
END_TEST

/* An older dataset stays until the newer one is whole. */
START_TEST(an_older_dataset_stays_until_the_newer_is_whole)
{
	struct mfs_indexed_writer *w;

	write_whole("old", 20);
	write_whole("kept", 20);
	write_whole("new", 70);
	unit_fails(try_open("old", MFS_I32, NEW, &w), &err, -EEXIST, "old.idx");
	nothing_else("old");
	w = open_writer("old", MFS_I32, REPLACE, "");
	write_documents(w, 0, 50);
	unit_ok(mfs_indexed_writer_save(w, "50", &err), &err);
	mfs_indexed_writer_free(w);
	same_file("old.bin", "kept.bin");
	same_file("old.idx", "kept.idx");
	unit_fails(try_open("old", MFS_I32, RESUME, &w), &err, -EEXIST, "old.idx");
	same_file("old.idx", "kept.idx");
	w = open_writer("old", MFS_I32, RESUME_AND_REPLACE, "50");
	write_documents(w, 50, 70);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	same_file("old.bin", "new.bin");
	same_file("old.idx", "new.idx");
	nothing_else("old");
	/* Stopped when the old .idx was gone: the .bin of the old one is still there. */
	w = open_writer("old", MFS_I32, REPLACE, "");
	write_documents(w, 0, 20);
	unit_ok(mfs_indexed_writer_save(w, "20", &err), &err);
	mfs_indexed_writer_free(w);
	ck_assert_int_eq(unlink(at("old.idx")), 0);
	unit_fails(try_open("old", MFS_I32, RESUME, &w), &err, -EEXIST, "old.bin");
	w = open_writer("old", MFS_I32, RESUME_AND_REPLACE, "20");
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	same_file("old.bin", "kept.bin");
	same_file("old.idx", "kept.idx");
	/* An unfinished one gives way at once. */
	w = open_writer("x", MFS_I32, NEW, "");
	write_documents(w, 0, 20);
	unit_ok(mfs_indexed_writer_save(w, "20", &err), &err);
	mfs_indexed_writer_free(w);
	w = open_writer("x", MFS_U16, REPLACE, "");
	mfs_indexed_writer_free(w);
	w = open_writer("x", MFS_I32, RESUME, "");
	ck_assert_uint_eq(mfs_indexed_writer_documents(w), 0);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
}
END_TEST

START_TEST(one_at_a_time)
{
	struct mfs_indexed_writer *w = open_writer("x", MFS_I32, NEW, ""), *other;

	for (enum how how = NEW; how <= RESUME_AND_REPLACE; how++)
		unit_fails(try_open("x", MFS_I32, how, &other), &err, -EBUSY, "another process");
	write_documents(w, 0, 20);
	unit_ok(mfs_indexed_writer_finish(w, &err), &err);
	write_whole("whole", 20);
	same_file("x.bin", "whole.bin");
}
END_TEST

/* Somebody else has given a file the name in the meantime. */
START_TEST(name_taken)
{
	struct mfs_indexed_writer *w = open_writer("x", MFS_I32, NEW, "");
	size_t len;
	uint8_t *bytes;

	unit_write(unit_tmpdir(), "x.bin", "mine", 4);
	unit_fails(mfs_indexed_writer_finish(w, &err), &err, -EEXIST, "x.bin");
	bytes = unit_slurp(at("x.bin"), &len);
	ck_assert_uint_eq(len, 4);
	ck_assert(access(at("x.idx"), F_OK) != 0);
	free(bytes);
}
END_TEST

static void bad_journal(const char *text, const char *want)
{
	struct mfs_indexed_writer *w;

	unit_write(unit_tmpdir(), "part.journal", text, strlen(text));
	unit_fails(try_open("part", MFS_I32, RESUME, &w), &err, -EINVAL, want);
}

START_TEST(not_resumed)
{
	struct mfs_indexed_writer *w;

	unit_write(unit_tmpdir(), "other.bin", "x", 1);
	unit_fails(try_open("other", MFS_I32, RESUME, &w), &err, -EEXIST, "other.bin");
	nothing_else("other");
	w = open_writer("part", MFS_I32, NEW, "");
	write_documents(w, 0, 20);
	unit_ok(mfs_indexed_writer_save(w, "20", &err), &err);
	mfs_indexed_writer_free(w);
	unit_fails(try_open("part", MFS_I32, NEW, &w), &err, -EINPROGRESS, "'");
	unit_fails(try_open("part", MFS_U16, RESUME, &w), &err, -EINVAL,
		   "begun as int32: it cannot be resumed as uint16");
	ck_assert_int_eq(truncate(at("part.lengths.part"), 4), 0);
	unit_fails(try_open("part", MFS_I32, RESUME, &w), &err, -EINVAL, "cannot be resumed");
	bad_journal("", "not a journal");
	bad_journal("hello", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 0 0 0\n", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 0 0 0\nnote", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 0 0 0\nnote\nmore\n", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 0 0\nnote\n", "not a journal");
	bad_journal("mcorefs-pack 1 4 0 0 0 0\nnote\n", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 0 2147483648 0\nnote\n", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 0 0 2305843009213693952\nnote\n", "not a journal");
	bad_journal("mcorefs-pack 2 4 0 -4 0 0\nnote\n", "not a journal");
	bad_journal("mcorefs-pack 2 4 1 0 0 0\nnote\n", "begun as int32, multimodal");
	bad_journal("mcorefs-pack 2 99 0 0 0 0\nnote\n", "begun as");
}
END_TEST

START_TEST(a_note_is_kept_with_what_was_saved)
{
	struct mfs_indexed_writer *w = open_writer("x", MFS_I32, NEW, "");
	char longest[MFS_INDEXED_NOTE + 1];

	memset(longest, 'n', sizeof(longest));
	longest[MFS_INDEXED_NOTE] = '\0';
	unit_fails(mfs_indexed_writer_save(w, longest, &err), &err, -EINVAL, "the note");
	unit_fails(mfs_indexed_writer_save(w, "two\nlines", &err), &err, -EINVAL, "the note");
	longest[MFS_INDEXED_NOTE - 1] = '\0';
	unit_ok(mfs_indexed_writer_save(w, longest, &err), &err);
	mfs_indexed_writer_free(w);
	w = open_writer("x", MFS_I32, RESUME, longest);
	unit_ok(mfs_indexed_writer_save(w, "", &err), &err);
	mfs_indexed_writer_free(w);
	w = open_writer("x", MFS_I32, RESUME, "");
	mfs_indexed_writer_free(w);
}
END_TEST

START_TEST(tokens_that_do_not_fit_are_refused)
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
	int64_t token = 1;

	unit_fails(try_open("x", MFS_BF16, NEW, &w), &err, -EINVAL, "bfloat16");
	unit_fails(try_open("no/x", MFS_I32, NEW, &w), &err, -ENOENT, "no/x");
	unit_fails(try_open("", MFS_I32, NEW, &w), &err, -EINVAL, "names no dataset");
	for (unsigned i = 0; i < MFS_ARRAY_SIZE(ranges); i++) {
		const int64_t good[] = {ranges[i].low, ranges[i].high};
		const int64_t bad[] = {0, ranges[i].low - 1, 0, ranges[i].high + 1};
		char want[64];

		w = open_writer("x", ranges[i].dtype, NEW, "");
		unit_ok(mfs_indexed_writer_add_tokens(w, good, 2, &err), &err);
		snprintf(want, sizeof(want), "token %lld does not fit", (long long)bad[1]);
		unit_fails(mfs_indexed_writer_add_tokens(w, bad, 2, &err), &err, -ERANGE, want);
		snprintf(want, sizeof(want), "token %lld does not fit", (long long)bad[3]);
		unit_fails(mfs_indexed_writer_add_tokens(w, bad + 2, 2, &err), &err, -ERANGE, want);
		mfs_indexed_writer_free(w);
	}
	w = open_writer("x", MFS_F32, NEW, "");
	unit_fails(mfs_indexed_writer_add_tokens(w, &token, 1, &err), &err, -ENOTSUP, "float32");
	unit_fails(mfs_indexed_writer_add(w, &token, 1ull << 31, &err), &err, -ERANGE, "2^31");
	unit_ok(mfs_indexed_writer_add(w, &token, 1, &err), &err);
	unit_fails(mfs_indexed_writer_end_document(w, &err), &err, -EBUSY, "inside");
	unit_ok(mfs_indexed_writer_end_sequence(w, 0, &err), &err);
	unit_fails(mfs_indexed_writer_finish(w, &err), &err, -EBUSY, "no end");
	ck_assert(access(at("x.idx"), F_OK) && access(at("x.bin"), F_OK));
}
END_TEST

START_TEST(what_is_discarded_leaves_nothing)
{
	struct mfs_indexed_writer *w = open_writer("x", MFS_I32, NEW, "");

	write_documents(w, 0, 50);
	unit_ok(mfs_indexed_writer_save(w, "50", &err), &err);
	mfs_indexed_writer_discard(w);
	nothing_else("x");
	ck_assert(access(at("x.idx"), F_OK) && access(at("x.bin"), F_OK));
	mfs_indexed_writer_discard(NULL);
	/* What was there before stays. */
	write_whole("x", 20);
	w = open_writer("x", MFS_I32, REPLACE, "");
	mfs_indexed_writer_discard(w);
	write_whole("whole", 20);
	same_file("x.idx", "whole.idx");
	nothing_else("x");
}
END_TEST

/* Tokens cross the buffers, of every width, given one by one and all at once. */
START_TEST(tokens_of_each_width_read_back)
{
	static const enum mfs_dtype dtypes[] = {MFS_U8, MFS_I8, MFS_I16, MFS_U16, MFS_I32, MFS_I64};
	const unsigned count = 1500000;
	int64_t *tokens = malloc(count * sizeof(*tokens)), *back = malloc(count * sizeof(*back));

	ck_assert(tokens && back);
	for (unsigned i = 0; i < MFS_ARRAY_SIZE(dtypes); i++) {
		const char *prefix = at("wide");
		struct mfs_indexed_writer *w = open_writer("wide", dtypes[i], REPLACE, "");
		struct mfs_indexed_dataset *d;

		for (unsigned k = 0; k < count; k++)
			tokens[k] = (int64_t)(k * 2654435761u >> 25);
		for (unsigned k = 0; k < 1000; k++)
			unit_ok(mfs_indexed_writer_add_tokens(w, tokens + k, 1, &err), &err);
		unit_ok(mfs_indexed_writer_add_tokens(w, tokens + 1000, count - 1000, &err), &err);
		unit_ok(mfs_indexed_writer_end_sequence(w, 0, &err), &err);
		unit_ok(mfs_indexed_writer_end_document(w, &err), &err);
		ck_assert_uint_eq(mfs_indexed_writer_tokens(w), count);
		unit_ok(mfs_indexed_writer_finish(w, &err), &err);
		unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
		unit_ok(mfs_indexed_dataset_tokens(d, 0, 0, count, back, &err), &err);
		ck_assert_mem_eq(tokens, back, count * sizeof(*back));
		mfs_indexed_dataset_free(d);
	}
	free(tokens);
	free(back);
}
END_TEST

START_TEST(multimodal_and_empty)
{
	const char *prefix = at("modes");
	struct mfs_indexed_dataset *d;
	const struct mfs_indexed_writer_config c = {.dtype = MFS_U16, .multimodal = true};
	struct mfs_indexed_writer *w;
	int8_t modes[3];

	unit_ok(mfs_indexed_writer_open(prefix, &c, &w, &err), &err);
	for (int8_t i = 0; i < 3; i++)
		unit_ok(mfs_indexed_writer_end_sequence(w, (int8_t)(i - 1), &err), &err);
	unit_ok(mfs_indexed_writer_end_document(w, &err), &err);
	ck_assert_uint_eq(mfs_indexed_writer_sequences(w), 3);
	ck_assert_uint_eq(mfs_indexed_writer_tokens(w), 0);
	ck_assert_uint_eq(mfs_indexed_writer_documents(w), 1);
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

	unit_case(s, "reads back", reads_back);
	unit_case(s, "resume", a_writer_goes_on_after_what_was_saved);
	unit_case(s, "stopped while finishing", stopped_while_finishing);
	unit_case(s, "replace", an_older_dataset_stays_until_the_newer_is_whole);
	unit_case(s, "one at a time", one_at_a_time);
	unit_case(s, "name taken", name_taken);
	unit_case(s, "not resumed", not_resumed);
	unit_case(s, "notes", a_note_is_kept_with_what_was_saved);
	unit_case(s, "discard", what_is_discarded_leaves_nothing);
	unit_case(s, "widths", tokens_of_each_width_read_back);
	unit_case(s, "refused", tokens_that_do_not_fit_are_refused);
	unit_case(s, "multimodal and empty", multimodal_and_empty);
	return s;
}
