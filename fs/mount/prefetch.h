/*
 * Prefetch: what a reader of a proven stream (fs/mount/stream.h) will ask for next is brought into
 * the page cache by processes beside the daemon (fs/mount/fetcher.h), so that reading a file for
 * the first time is not the work of one stream of requests alone.
 *
 * Nothing is started before the first stream has proven itself, and nothing is asked for but pieces
 * in front of a stream (fs/mount/prefetch_window.h): at most two stretches of each of at most
 * MFS_PREFETCH_STREAMS streams a fetcher. Random readers never cause any of it. What a fetcher
 * cannot do is left to the reader himself: prefetch has no errors.
 *
 * Thread-safe. Reads take the lock of their open file for a moment; the lock of all is taken once a
 * stretch.
 */
#ifndef MFS_FS_MOUNT_PREFETCH_H
#define MFS_FS_MOUNT_PREFETCH_H

#include <stdint.h>
#include <sys/types.h>

#include "fs/cli/options.h"

#define MFS_PREFETCH_STREAMS 2 /* followed at once, for each fetcher */
/* Bytes: in smaller files streams end where they are proven. */
#define MFS_PREFETCH_MIN (16ull << 20)

struct mfs_prefetch;
struct mfs_prefetch_file;

/* NULL: no memory, or no fetchers; all below is for others. mountpoint is absolute and must
 * outlive it. */
struct mfs_prefetch *mfs_prefetch_new(unsigned fetchers, const char *mountpoint);
/* The mount answers; before, nothing is fetched. */
void mfs_prefetch_ready(struct mfs_prefetch *p, dev_t dev);
/* Nothing more is fetched, and nobody is kept waiting: every done() has returned. While the mount
 * is still there. Calls go on being harmless. */
void mfs_prefetch_stop(struct mfs_prefetch *p);
/* When the mount is gone, and with it all calls: until then a fetcher may wait for it. NULL is
 * no-op. */
void mfs_prefetch_free(struct mfs_prefetch *p);

/* An open file; a fetcher's, too, which is closed before it can be a stream. path: from the
 * mount's root. NULL: it is too small, or no memory. */
struct mfs_prefetch_file *mfs_prefetch_open(struct mfs_prefetch *p, const char *path,
					    uint64_t size);
/* A request for it, before it is answered. */
void mfs_prefetch_read(struct mfs_prefetch_file *f, uint64_t off, uint64_t len);
/* A request for it has failed: nothing more is fetched for it. */
void mfs_prefetch_failed(struct mfs_prefetch_file *f);
/*
 * A reader closes a descriptor of it. done(arg) is called once no fetcher has the file open on its
 * behalf, now or soon, by any thread: who unmounts when his readers are done must not find the
 * mount busy. One that does not let go of it is waited for a second.
 */
void mfs_prefetch_flush(struct mfs_prefetch_file *f, void (*done)(void *arg), void *arg);
/* The last one is closed. */
void mfs_prefetch_close(struct mfs_prefetch_file *f);

struct mfs_prefetch_counts {
	uint64_t streams, pieces, bytes; /* followed, and asked for */
	unsigned fetchers;		 /* started */
};
struct mfs_prefetch_counts mfs_prefetch_counts(struct mfs_prefetch *p);

#endif
