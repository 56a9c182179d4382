/* Which requests form a stream, and what is fetched for it: fs/prefetch/stream.h,
 * fs/prefetch/window.h; how many processes fetch it: fs/prefetch/prefetch.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "fs/prefetch/prefetch.h"
#include "fs/prefetch/window.h"
#include "fs/prefetch/stream.h"

#define KIB   (1ull << 10)
#define MIB   (1ull << 20)
#define PAGES (2048 * MIB / 4096) /* of the longest file here */

/*
 * One file and what the page cache has of it. A reader asks for what it lacks, as the kernel does:
 * in requests of 1 MiB of a read-ahead; fetchers have done a piece by the reader's next request.
 */
struct file {
	uint64_t size;
	uint8_t *cached; /* a page each: 1 by a reader, 2 by a fetcher */
	struct mfs_stream stream;
	struct mfs_prefetch_window window;
	uint64_t requested, fetched; /* bytes */
	unsigned starts, ends;	     /* of streams */
	uint64_t farthest;	     /* a fetched byte in front of the reader's request */
	bool slow;		     /* nothing is fetched in time */
	bool shared;		     /* the cache is another reader\'s, too */
};

static struct file new_file(uint64_t size)
{
	ck_assert_uint_le(size, PAGES * 4096);
	return (struct file){.size = size, .cached = calloc(PAGES, 1)};
}

static void fetch(struct file *f)
{
	uint64_t off, len;

	while (mfs_prefetch_take(&f->window, f->stream.last, &off, &len)) {
		ck_assert_uint_ge(off, f->stream.last);
		ck_assert_uint_le(off + len, f->size);
		ck_assert_uint_le(len, MFS_PREFETCH_PIECE);
		ck_assert_uint_eq(off / MFS_PREFETCH_PIECE, (off + len - 1) / MFS_PREFETCH_PIECE);
		f->farthest = mfs_max_u64(f->farthest, off + len - f->stream.last);
		f->fetched += len;
		for (uint64_t at = off; at < off + len && !f->slow; at += 4096) {
			ck_assert(f->shared || f->cached[at / 4096] != 2); /* nothing twice */
			f->cached[at / 4096] |= 2;
		}
	}
}

static void request(struct file *f, uint64_t off, uint64_t len)
{
	bool was_proven = f->stream.proven;

	f->requested += len;
	switch (mfs_stream_observe(&f->stream, off, len)) {
	case MFS_STREAM_GOES_ON:
		f->starts += !was_proven;
		mfs_prefetch_extend(&f->window, f->stream.last, f->size);
		break;
	case MFS_STREAM_ENDS:
		f->ends++;
		f->window = (struct mfs_prefetch_window){0};
		break;
	default:
		break;
	}
	fetch(f);
}

/* Brings [off, off+len) into the cache, in requests of at most a MiB. */
static void fill(struct file *f, uint64_t off, uint64_t len)
{
	uint64_t end = mfs_min_u64(off + len, f->size), from = off;

	for (uint64_t at = off; at <= end; at += 4096) {
		bool lacks = at < end && !f->cached[at / 4096];

		if (lacks && at - from < MIB) {
			f->cached[at / 4096] = 1;
			continue;
		}
		if (at > from)
			request(f, from, at - from);
		if (lacks)
			f->cached[at / 4096] = 1;
		from = lacks ? at : at + 4096;
	}
}

/* The kernel's read-ahead: at the end of what is there, the next 2 MiB. */
static void touch(struct file *f, uint64_t off, uint64_t ahead)
{
	if (off < f->size && !f->cached[off / 4096])
		fill(f, off, ahead);
}

static void read_through(struct file *f, uint64_t from, uint64_t to, uint64_t ahead)
{
	for (uint64_t at = from; at < to; at += 4096)
		touch(f, at, ahead);
}

static void release(struct file *f)
{
	free(f->cached);
}

static void check_streamed(const struct file *f)
{
	ck_assert_uint_eq(f->starts, 1);
	ck_assert_uint_eq(f->ends, 0);
	ck_assert_uint_eq(f->requested + f->fetched, f->size);
	ck_assert_uint_le(f->requested, MFS_STREAM_PROOF + MFS_PREFETCH_PIECE + 4 * MIB +
						f->size / MFS_STREAM_STRETCH * MFS_STREAM_MARK);
	ck_assert_uint_le(f->farthest, 2 * MFS_STREAM_STRETCH);
}

START_TEST(a_sequential_reader_is_fetched_for)
{
	static const uint64_t ahead[] = {4 * KIB, 128 * KIB, 2 * MIB};

	for (int i = 0; i < 3; i++) {
		struct file f = new_file(1000 * MIB + 12 * KIB);

		read_through(&f, 0, f.size, ahead[i]);
		check_streamed(&f);
		release(&f);
	}
}
END_TEST

/* A first byte anywhere: a tensor in the middle of a file. */
START_TEST(sequential_from_the_middle)
{
	struct file f = new_file(500 * MIB);

	read_through(&f, 203 * MIB, f.size, 2 * MIB);
	ck_assert_uint_eq(f.starts, 1);
	ck_assert_uint_eq(f.requested + f.fetched, 297 * MIB);
	ck_assert_uint_gt(f.fetched, 270 * MIB);
	release(&f);
}
END_TEST

/* As page faults have it: the kernel reads around the first one, then ahead. */
START_TEST(page_faults_are_a_stream)
{
	struct file f = new_file(512 * MIB);

	for (uint64_t at = 0; at < f.size; at += 4096)
		if (!f.cached[at / 4096])
			fill(&f, at < MIB ? 0 : at - MIB, 2 * MIB);
	ck_assert_uint_eq(f.starts, 1);
	ck_assert_uint_eq(f.ends, 0);
	ck_assert_uint_eq(f.requested + f.fetched, f.size);
	release(&f);
}
END_TEST

/* What the kernel has in flight arrives in any order. */
START_TEST(disorder_in_flight_is_a_stream)
{
	struct mfs_stream s = {0};
	unsigned told = 0;

	for (uint64_t off = 0; off < 128 * MIB; off += 4 * MIB) {
		static const uint64_t order[] = {2, 0, 3, 1};

		for (int i = 0; i < 4; i++)
			told += mfs_stream_observe(&s, off + order[i] * MIB, MIB) ==
				MFS_STREAM_GOES_ON;
	}
	ck_assert(s.proven);
	ck_assert_uint_ge(told, 4); /* itself, and marks at 32, 64 and 96 MiB */
	ck_assert_uint_le(told, 5);
}
END_TEST

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Not one byte, whatever is read around each place. */
START_TEST(random_reads_are_no_stream)
{
	static const uint64_t around[] = {4 * KIB, 128 * KIB, MIB, 2 * MIB};

	for (int i = 0; i < 4; i++) {
		struct file f = new_file(1024 * MIB);
		uint64_t random = 88172645463325252u + (uint64_t)i;

		for (int k = 0; k < 20000; k++) {
			uint64_t at = next_random(&random) % (f.size / 4096) * 4096;

			touch(&f, at, around[i]);
		}
		ck_assert_uint_eq(f.starts, 0);
		ck_assert_uint_eq(f.fetched, 0);
		release(&f);
	}
}
END_TEST

START_TEST(strided_reads_are_no_stream)
{
	static const uint64_t strides[] = {64 * KIB, MIB, 2 * MIB, 3 * MIB, 4 * MIB, 16 * MIB};

	for (int i = 0; i < 6; i++) {
		struct file f = new_file(2048 * MIB);

		for (uint64_t at = 0; at < f.size; at += strides[i])
			touch(&f, at, mfs_min_u64(strides[i] / 2, 2 * MIB));
		ck_assert_uint_eq(f.starts, 0);
		ck_assert_uint_eq(f.fetched, 0);
		release(&f);
	}
}
END_TEST

START_TEST(backward_reads_are_no_stream)
{
	struct file f = new_file(512 * MIB);

	for (uint64_t at = f.size; at; at -= MIB)
		fill(&f, at - MIB, MIB);
	ck_assert_uint_eq(f.requested, f.size);
	ck_assert_uint_eq(f.fetched, 0);
	release(&f);
}
END_TEST

/* Through one open file: each would be a stream, together they are none. */
START_TEST(two_in_one)
{
	struct file f = new_file(1024 * MIB);

	for (uint64_t at = 0; at < f.size / 2; at += 2 * MIB) {
		fill(&f, at, 2 * MIB);
		fill(&f, f.size / 2 + at, 2 * MIB);
	}
	ck_assert_uint_eq(f.requested, f.size);
	ck_assert_uint_eq(f.fetched, 0);
	release(&f);
}
END_TEST

/* Each through an open file of its own: they share the page cache, and nothing is read twice. */
START_TEST(two_readers)
{
	struct file a = new_file(512 * MIB), b;

	a.shared = true;
	b = a;
	for (uint64_t at = 0; at < a.size / 2; at += 4096) {
		touch(&a, at, 2 * MIB);
		touch(&b, a.size / 2 + at, 2 * MIB);
	}
	ck_assert_uint_eq(a.starts, 1);
	ck_assert_uint_eq(b.starts, 1);
	ck_assert_uint_gt(a.fetched, 200 * MIB);
	ck_assert_uint_gt(b.fetched, 200 * MIB);
	ck_assert_uint_ge(a.requested + a.fetched + b.requested + b.fetched, a.size);
	release(&a);
}
END_TEST

START_TEST(read_again)
{
	struct file f = new_file(256 * MIB);
	uint64_t requested, fetched;

	read_through(&f, 0, f.size, 2 * MIB);
	requested = f.requested;
	fetched = f.fetched;
	read_through(&f, 0, f.size, 2 * MIB);
	ck_assert_uint_eq(f.requested, requested);
	ck_assert_uint_eq(f.fetched, fetched);
	memset(f.cached, 0, PAGES); /* memory was short */
	read_through(&f, 0, f.size, 2 * MIB);
	ck_assert_uint_eq(f.starts, 2);
	ck_assert_uint_eq(f.requested + f.fetched, 2 * f.size);
	release(&f);
}
END_TEST

/* For a reader that stops, or goes elsewhere, at most two stretches were fetched in vain. */
START_TEST(it_ends)
{
	struct file f = new_file(2048 * MIB);
	uint64_t fetched;

	read_through(&f, 0, 100 * MIB, 2 * MIB);
	ck_assert_uint_le(f.requested + f.fetched, 100 * MIB + 2 * MFS_STREAM_STRETCH);
	fetched = f.fetched;
	touch(&f, 1500 * MIB, 2 * MIB);
	ck_assert_uint_eq(f.ends, 1);
	for (uint64_t at = 1000 * MIB; at > 300 * MIB; at -= 20 * MIB)
		touch(&f, at, 2 * MIB);
	ck_assert_uint_eq(f.fetched, fetched);
	release(&f);
}
END_TEST

/* A stream whose reader begins to leave out what he has no need of steps over a mark, and ends
 * there. */
START_TEST(it_becomes_sparse)
{
	struct file f = new_file(2048 * MIB);

	read_through(&f, 0, 40 * MIB, 2 * MIB);
	ck_assert_uint_eq(f.starts, 1);
	for (uint64_t at = 41 * MIB; at < f.size; at += 2 * MIB)
		touch(&f, at, 4096);
	ck_assert_uint_eq(f.ends, 1);
	ck_assert_uint_eq(f.starts, 1);
	ck_assert_uint_le(f.fetched, 40 * MIB + 2 * MFS_STREAM_STRETCH);
	release(&f);
}
END_TEST

/* A reader who is faster than what is fetched for him: pieces that he has reached himself are
 * passed over. */
START_TEST(pieces_that_were_overtaken_are_passed_over)
{
	struct file f = new_file(512 * MIB);

	f.slow = true;
	read_through(&f, 0, f.size, 2 * MIB);
	ck_assert_uint_eq(f.requested, f.size);
	ck_assert_uint_eq(f.ends, 0);
	release(&f);

	struct mfs_prefetch_window w = {0};
	uint64_t off, len;

	mfs_prefetch_extend(&w, 40 * MIB, 512 * MIB);
	ck_assert(mfs_prefetch_take(&w, 40 * MIB, &off, &len));
	ck_assert_uint_eq(off, 48 * MIB);
	ck_assert(mfs_prefetch_take(&w, 60 * MIB, &off, &len));
	ck_assert_uint_eq(off, 64 * MIB + MFS_STREAM_MARK);
	ck_assert_uint_eq(len, 8 * MIB - MFS_STREAM_MARK);
	ck_assert(!mfs_prefetch_take(&w, 95 * MIB, &off, &len));
}
END_TEST

START_TEST(ends_of_files)
{
	for (uint64_t size = 4096; size < 80 * MIB; size += 3 * MIB + 4096) {
		struct file f = new_file(size);

		read_through(&f, 0, f.size, 2 * MIB);
		ck_assert_uint_eq(f.requested + f.fetched, f.size);
		ck_assert_uint_eq(f.ends, 0);
		release(&f);
	}
}
END_TEST

START_TEST(fetchers_by_processors)
{
	ck_assert_uint_eq(mfs_prefetch_fetchers(0), 0);
	ck_assert_uint_eq(mfs_prefetch_fetchers(7), 0);
	ck_assert_uint_eq(mfs_prefetch_fetchers(8), 1);
	ck_assert_uint_eq(mfs_prefetch_fetchers(15), 1);
	ck_assert_uint_eq(mfs_prefetch_fetchers(16), 2);
	ck_assert_uint_eq(mfs_prefetch_fetchers(4096), 2);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("stream");
	TCase *c = unit_case(s, "stream", a_sequential_reader_is_fetched_for);

	tcase_add_test(c, sequential_from_the_middle);
	tcase_add_test(c, page_faults_are_a_stream);
	tcase_add_test(c, disorder_in_flight_is_a_stream);
	tcase_add_test(c, random_reads_are_no_stream);
	tcase_add_test(c, strided_reads_are_no_stream);
	tcase_add_test(c, backward_reads_are_no_stream);
	tcase_add_test(c, two_in_one);
	tcase_add_test(c, two_readers);
	tcase_add_test(c, read_again);
	tcase_add_test(c, it_ends);
	tcase_add_test(c, it_becomes_sparse);
	tcase_add_test(c, pieces_that_were_overtaken_are_passed_over);
	tcase_add_test(c, ends_of_files);
	tcase_add_test(c, fetchers_by_processors);
	return s;
}
