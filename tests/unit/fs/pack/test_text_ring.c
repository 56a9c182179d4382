/* Batches on their way: how many may be, and what is left of huge ones. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "fs/pack/text/ring.h"

#define BATCHES 12
#define LEN	100

static void *fill(void *arg)
{
	static const char text[LEN];
	struct mfs_text_ring *r = arg;

	for (int i = 0; i < BATCHES; i++) {
		struct mfs_text_batch *b = mfs_text_ring_to_fill(r);

		b->text.len = 0;
		mfs_buf_add(&b->text, text, LEN);
		mfs_text_ring_filled(r);
	}
	mfs_text_ring_close(r);
	return NULL;
}

static uint64_t filled(struct mfs_text_ring *r)
{
	uint64_t n;

	pthread_mutex_lock(&r->lock);
	n = r->filled;
	pthread_mutex_unlock(&r->lock);
	return n;
}

static void write_next(struct mfs_text_ring *r)
{
	bool end;

	mfs_text_ring_encoded(r, mfs_text_ring_to_encode(r));
	ck_assert_ptr_nonnull(mfs_text_ring_to_write(r, &end));
	ck_assert(!end);
	mfs_text_ring_written(r);
}

/* The filler goes one batch over the budget, and waits. */
START_TEST(the_filler_waits_above_the_budget)
{
	struct mfs_text_ring r;
	struct mfs_error err;
	pthread_t filler;
	bool end;

	unit_ok(mfs_text_ring_init(&r, BATCHES, &err), &err);
	r.budget = 2 * LEN;
	ck_assert(!pthread_create(&filler, NULL, fill, &r));
	for (int written = 0; written < BATCHES; written++) {
		const uint64_t most = mfs_min_u64(BATCHES, (uint64_t)written + 3);

		while (filled(&r) < most)
			usleep(1000);
		usleep(2000);
		ck_assert_uint_eq(filled(&r), most);
		write_next(&r);
	}
	pthread_join(filler, NULL);
	ck_assert_ptr_null(mfs_text_ring_to_write(&r, &end));
	ck_assert(end);
	mfs_text_ring_release(&r);
}
END_TEST

static void write_one(struct mfs_text_ring *r, const char *bytes, size_t len)
{
	struct mfs_text_batch *b = mfs_text_ring_to_fill(r);

	mfs_buf_add(&b->text, bytes, len);
	mfs_buf_add(&b->keys[1].tokens, bytes, len);
	mfs_text_ring_filled(r);
	write_next(r);
}

START_TEST(large_buffers_are_released)
{
	static const char bytes[5 << 20];
	struct mfs_text_ring r;
	struct mfs_error err;

	unit_ok(mfs_text_ring_init(&r, 2, &err), &err);
	write_one(&r, bytes, LEN);
	write_one(&r, bytes, sizeof(bytes));
	ck_assert_uint_gt(r.batches[0].text.cap, 0);
	ck_assert_uint_gt(r.batches[0].keys[1].tokens.cap, 0);
	ck_assert_uint_eq(r.batches[1].text.cap, 0);
	ck_assert_uint_eq(r.batches[1].keys[1].tokens.cap, 0);
	mfs_text_ring_release(&r);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("ring");

	unit_case(s, "budget", the_filler_waits_above_the_budget);
	unit_case(s, "buffers", large_buffers_are_released);
	return s;
}
