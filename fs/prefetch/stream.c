#include "fs/prefetch/stream.h"

#include "formats/base/bytes.h"

/* A request may be early or late by as much as the kernel has in flight for a reader: twice its
 * read-ahead of 2 MiB (fs/fuse/session.c). */
#define NEAR (4ull << 20)

/* Bytes that may be missing when a stream is judged: their requests are still under way. */
#define MISSING (2ull << 20)

uint64_t mfs_stream_next_mark(uint64_t off)
{
	return (off / MFS_STREAM_STRETCH + 1) * MFS_STREAM_STRETCH;
}

static uint64_t missing(const struct mfs_stream *s)
{
	uint64_t advance = s->last - s->start;

	return advance > s->bytes ? advance - s->bytes : 0;
}

/* Bytes up to the next mark may have been in the page cache already. */
static bool follows(const struct mfs_stream *s, uint64_t off, uint64_t end)
{
	uint64_t reach = s->proven ? mfs_stream_next_mark(s->last) : s->last;

	return off <= reach + NEAR && s->last <= end + NEAR;
}

static void start_over(struct mfs_stream *s, uint64_t off, uint64_t end)
{
	*s = (struct mfs_stream){.start = off, .last = end, .bytes = end - off};
}

/* A stream with holes is judged anew from its last byte. So one skip is forgiven, and a reader that
 * goes on skipping is never proven. */
static bool becomes_proven(struct mfs_stream *s)
{
	if (s->last - s->start <= MFS_STREAM_PROOF)
		return false;
	s->proven = missing(s) <= MISSING;
	if (!s->proven) {
		s->start = s->last;
		s->bytes = 0;
	}
	return s->proven;
}

static bool has_passed_mark(struct mfs_stream *s)
{
	uint64_t at = s->last / MFS_STREAM_STRETCH * MFS_STREAM_STRETCH;

	if (at <= s->passed)
		return false;
	s->passed = at;
	return true;
}

enum mfs_stream_event mfs_stream_observe(struct mfs_stream *s, uint64_t off, uint64_t len)
{
	uint64_t end = off + len;
	bool was_proven = s->proven;

	if (!len)
		return MFS_STREAM_QUIET;
	if (!s->last || !follows(s, off, end)) {
		start_over(s, off, end);
		return was_proven ? MFS_STREAM_ENDS : MFS_STREAM_QUIET;
	}
	s->last = mfs_max_u64(s->last, end);
	s->bytes += len;
	if (was_proven)
		return has_passed_mark(s) ? MFS_STREAM_GOES_ON : MFS_STREAM_QUIET;
	if (!becomes_proven(s))
		return MFS_STREAM_QUIET;
	has_passed_mark(s);
	return MFS_STREAM_GOES_ON;
}
