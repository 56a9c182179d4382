#include "fs/fuse/readahead.h"

#include <stdbool.h>

#include "formats/base/bytes.h"

#define WINDOW_FIRST (4ull << 20)
#define WINDOW_LAST  (32ull << 20)

/* Requests of one reader may arrive out of order by as much as the kernel has in flight: twice its
 * read-ahead of 2 MiB (fs/fuse/session.c). */
#define NEAR (4ull << 20)

static bool follows(uint64_t last, uint64_t off, uint64_t end)
{
	return off <= last + NEAR && last <= end + NEAR;
}

void mfs_readahead_demand(struct mfs_readahead *ra, struct mfs_vfile *f, uint64_t off, uint64_t len)
{
	uint64_t front = atomic_load_explicit(&ra->front, memory_order_relaxed);
	uint64_t last = atomic_load_explicit(&ra->last, memory_order_relaxed);

	if (off + len <= front && follows(last, off, off + len))
		return;
	mfs_vfile_willneed(f, off, len);
}

static void start_over(struct mfs_readahead *ra, uint64_t end)
{
	atomic_store_explicit(&ra->window, 0, memory_order_relaxed);
	atomic_store_explicit(&ra->front, end, memory_order_relaxed);
	atomic_store_explicit(&ra->last, end, memory_order_relaxed);
}

void mfs_readahead_next(struct mfs_readahead *ra, struct mfs_vfile *f, uint64_t off, uint64_t len)
{
	uint64_t last = atomic_load_explicit(&ra->last, memory_order_relaxed);
	uint64_t window = atomic_load_explicit(&ra->window, memory_order_relaxed);
	uint64_t front = atomic_load_explicit(&ra->front, memory_order_relaxed);
	uint64_t end = off + len, from, to;

	if (!follows(last, off, end)) {
		start_over(ra, end);
		return;
	}
	atomic_store_explicit(&ra->last, mfs_max_u64(last, end), memory_order_relaxed);
	if (front >= end + window / 2 && window)
		return; /* more than half of the window is still ahead */
	window = window ? mfs_min_u64(window * 2, WINDOW_LAST) : WINDOW_FIRST;
	from = mfs_max_u64(front, end);
	to = end + window;
	/* The thread that moves the front asks for the range. */
	if (to > from &&
	    atomic_compare_exchange_strong_explicit(&ra->front, &front, to, memory_order_relaxed,
						    memory_order_relaxed)) {
		atomic_store_explicit(&ra->window, window, memory_order_relaxed);
		mfs_vfile_willneed(f, from, to - from);
	}
}
