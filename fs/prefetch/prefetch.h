/*
 * Prefetch: fetchers (fs/prefetch/fetcher.h) bring into the page cache what the reader of a proven
 * stream (fs/prefetch/stream.h) will need next. So the first read of a file is not limited to one
 * stream of requests.
 *
 * No fetcher is started before a stream has proven itself. A fetcher gets ranges ahead of a stream
 * (fs/prefetch/window.h): at most two stretches of each stream, and at most
 * MFS_PREFETCH_STREAMS streams for each fetcher. Random readers cause no prefetch. What a fetcher
 * cannot do, the reader does itself; so prefetch has no errors.
 *
 * Thread-safe. A read takes the lock of its open file. The lock of all files is taken once a
 * stretch.
 */
#ifndef MFS_FS_PREFETCH_PREFETCH_H
#define MFS_FS_PREFETCH_PREFETCH_H

#include <stdint.h>
#include <sys/types.h>

#include "fs/cli/options.h"

#define MFS_PREFETCH_STREAMS 2 /* followed at once, for each fetcher */
/* Bytes. In a smaller file nothing would be left to fetch. */
#define MFS_PREFETCH_MIN (16ull << 20)

struct mfs_prefetch;
struct mfs_prefetch_file;

/* How many fetchers suit so many processors: one for each 8, at most two. With fewer processors the
 * reader and the daemon have better use for them (docs/PERFORMANCE.md). */
unsigned mfs_prefetch_fetchers(unsigned processors);

/* NULL: no memory, or fetchers is 0. mountpoint is absolute and must outlive it. */
struct mfs_prefetch *mfs_prefetch_new(unsigned fetchers, const char *mountpoint);
/* The mount answers. Nothing is fetched before this call. */
void mfs_prefetch_ready(struct mfs_prefetch *p, dev_t dev);
/* Stops fetching. When it returns, every done() has returned. The mount must still be there. The
 * other functions may still be called. */
void mfs_prefetch_stop(struct mfs_prefetch *p);
/* Frees it when the mount is gone, since fetchers may wait for the mount's answers until then. p
 * may be NULL. */
void mfs_prefetch_free(struct mfs_prefetch *p);

/* Opens a file; path begins at the mount's root. Fetchers open files too, and close them before
 * they become streams. NULL: the file is too small, or no memory. */
struct mfs_prefetch_file *mfs_prefetch_open(struct mfs_prefetch *p, const char *path,
					    uint64_t size);
/* Called for each request, before the answer. */
void mfs_prefetch_read(struct mfs_prefetch_file *f, uint64_t off, uint64_t len);
/* A request has failed: nothing more is fetched of the file. */
void mfs_prefetch_failed(struct mfs_prefetch_file *f);
/*
 * A reader closes a descriptor. done(arg) is called, now or soon, in any thread, when no fetcher
 * has the file open any more. So the mount is not busy when the last reader has closed its file. A
 * fetcher that does not close the file is waited for one second.
 */
void mfs_prefetch_flush(struct mfs_prefetch_file *f, void (*done)(void *arg), void *arg);
/* The last descriptor is closed. */
void mfs_prefetch_close(struct mfs_prefetch_file *f);

struct mfs_prefetch_counts {
	uint64_t streams, pieces, bytes; /* streams followed; ranges and bytes asked for */
	unsigned fetchers;		 /* started */
};
struct mfs_prefetch_counts mfs_prefetch_counts(struct mfs_prefetch *p);

#endif
