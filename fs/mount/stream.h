/*
 * Whether the requests of one open file form a stream: a reader that wants byte after byte. What is
 * seen here are not read(2) calls but what the page cache lacks, as the kernel asks for it: pieces
 * of its read-ahead, of which a few are on their way at once and arrive in any order.
 *
 * Who follows a proven stream may fetch what comes next (fs/mount/prefetch.h); its pages are then
 * in the page cache, and the reader asks for nothing. So some bytes are always left to the reader:
 * the first MFS_STREAM_MARK of each MFS_STREAM_STRETCH. A request for them says how far he has
 * come, and a request beyond them without one for them, that he has skipped something.
 *
 * Plain state without a lock: of one thread at a time.
 */
#ifndef MFS_FS_MOUNT_STREAM_H
#define MFS_FS_MOUNT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#define MFS_STREAM_PROOF   (8ull << 20)	 /* more bytes in order than that make a stream */
#define MFS_STREAM_STRETCH (32ull << 20) /* a mark is at each multiple of this, in bytes */
/* The kernel's smallest read-ahead is 4 pages: one request for the slowest of readers. */
#define MFS_STREAM_MARK (16ull << 10)

/* Zero-filled: nothing was read yet. */
struct mfs_stream {
	uint64_t start; /* where these requests began */
	uint64_t last;	/* highest end of them */
	uint64_t bytes; /* asked for by them */
	uint64_t
		passed; /* the multiple of MFS_STREAM_STRETCH at or behind last, once it was told */
	bool proven;
};

enum mfs_stream_event {
	MFS_STREAM_QUIET,
	MFS_STREAM_GOES_ON, /* it has proven itself, or has reached another stretch */
	MFS_STREAM_ENDS,    /* it was proven, and the reader has gone elsewhere */
};

/* Of each request, in the order of their arrival. Bytes. */
enum mfs_stream_event mfs_stream_observe(struct mfs_stream *s, uint64_t off, uint64_t len);

/* The end of the stretch in which off is: the next mark. */
uint64_t mfs_stream_next_mark(uint64_t off);

#endif
