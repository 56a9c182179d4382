/*
 * Finds out whether the requests of one open file form a stream: a reader that reads byte after
 * byte. A request is not a read(2). It is a range that the page cache lacks and that the kernel
 * reads ahead; several are under way at once and arrive in any order.
 *
 * Prefetch (prefetch.h) fetches what comes next in a proven stream. These pages are then in the
 * page cache, and the reader causes no requests. So some bytes are always left to the reader: a
 * mark, the first MFS_STREAM_MARK bytes of each MFS_STREAM_STRETCH. A request for a mark shows how
 * far the reader has come. A request past a mark that was not requested shows that the reader has
 * skipped bytes.
 *
 * The state has no lock: one thread may use it at a time.
 */
#ifndef MFS_FS_PREFETCH_STREAM_H
#define MFS_FS_PREFETCH_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#define MFS_STREAM_PROOF   (8ull << 20)	 /* more bytes than this in order make a stream */
#define MFS_STREAM_STRETCH (32ull << 20) /* a mark is at each multiple of this, in bytes */
/* The kernel's smallest read-ahead is 4 pages: one request for the slowest of readers. */
#define MFS_STREAM_MARK (16ull << 10)

/* Zero-filled: nothing was read yet. */
struct mfs_stream {
	uint64_t start;	 /* where these requests began */
	uint64_t last;	 /* highest end of them */
	uint64_t bytes;	 /* asked for by them */
	uint64_t passed; /* the multiple of MFS_STREAM_STRETCH at or after last, once told */
	bool proven;
};

enum mfs_stream_event {
	MFS_STREAM_QUIET,
	MFS_STREAM_GOES_ON, /* it was just proven, or has reached another stretch */
	MFS_STREAM_ENDS,    /* it was proven, and the reader has gone elsewhere */
};

/* Called for each request in the order of arrival. off and len in bytes. */
enum mfs_stream_event mfs_stream_observe(struct mfs_stream *s, uint64_t off, uint64_t len);

/* The offset of the next mark: the end of the stretch that off is in. */
uint64_t mfs_stream_next_mark(uint64_t off);

#endif
