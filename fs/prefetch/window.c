#include "fs/prefetch/window.h"

#include "formats/base/bytes.h"
#include "fs/prefetch/stream.h"

/* A fetcher reads its range in order, and must not become a stream itself. */
_Static_assert(MFS_PREFETCH_PIECE <= MFS_STREAM_PROOF, "a fetcher would be followed by fetchers");

/* The kernel reads this much ahead of the reader itself (fs/fuse/session.c). */
#define LEAD (2ull << 20)

static uint64_t piece_after(uint64_t off)
{
	return (off / MFS_PREFETCH_PIECE + 1) * MFS_PREFETCH_PIECE;
}

static void pass(struct mfs_prefetch_window *w, uint64_t last)
{
	if (w->next < last + LEAD)
		w->next = piece_after(last + LEAD);
}

void mfs_prefetch_extend(struct mfs_prefetch_window *w, uint64_t last, uint64_t size)
{
	pass(w, last);
	w->until = mfs_min_u64(size, mfs_stream_next_mark(last) + MFS_STREAM_STRETCH);
}

bool mfs_prefetch_take(struct mfs_prefetch_window *w, uint64_t last, uint64_t *ret_off,
		       uint64_t *ret_len)
{
	uint64_t off, end;

	pass(w, last);
	off = w->next;
	end = mfs_min_u64(w->until, piece_after(off));
	if (off % MFS_STREAM_STRETCH == 0)
		off += MFS_STREAM_MARK;
	if (off >= end)
		return false;
	w->next = end;
	*ret_off = off;
	*ret_len = end - off;
	return true;
}
