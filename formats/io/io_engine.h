/*
 * Reads and writes at given offsets, with several in flight.
 *
 * The caller owns the requests and their buffers, and leaves both alone from submit until wait
 * returns the request. What is short is queued again inside. One thread calls an engine.
 */
#ifndef MFS_IO_IO_ENGINE_H
#define MFS_IO_IO_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "formats/base/error.h"

struct mfs_io_engine;

enum mfs_io_kind {
	MFS_IO_WRITE,
	MFS_IO_READ,
	MFS_IO_SYNC, /* fsync; iov and off are not used */
};

struct mfs_io {
	enum mfs_io_kind kind;
	int fd;
	uint64_t off;	   /* bytes from the start of the file; moves with what is done */
	struct iovec *iov; /* at most IOV_MAX; moves with what is done, its elements change too */
	unsigned iov_count;
	int result; /* set by wait: 0 once all bytes are done, or -errno; -EIO: the file ends */
};

/* How requests reach the kernel. */
struct mfs_io_engine_ops {
	const char *name;
	/* Starts a request; a read may wait until the next reap. 0 or -errno, then the request did
	 * not start. */
	int (*start)(void *state, struct mfs_io *w);
	/* Waits for one started request; *ret_done is what pwritev, preadv or fsync would have
	 * returned, or -errno. -EINTR if a signal came first. */
	int (*reap)(void *state, struct mfs_io **ret, ssize_t *ret_done);
	void (*free)(void *state);
};

/* What an engine without io_uring does: pwritev, preadv or fsync, or -errno. */
ssize_t mfs_io_call(const struct mfs_io *w);

/*
 * The engines: io_uring; plain system calls that finish inside start; and so many threads that make
 * these calls. depth: the most requests that are ever in flight. -ENOSYS or -EPERM: the kernel or a
 * sandbox forbids io_uring.
 */
int mfs_io_uring(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err);
int mfs_io_calls(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err);
int mfs_io_threads(unsigned depth, unsigned threads, struct mfs_io_engine **ret,
		   struct mfs_error *err);

/* io_uring where it is permitted, else plain system calls. */
int mfs_io_engine_new(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err);
/* An engine that the caller brings. ops->free releases state, also on failure. */
int mfs_io_engine_with(const struct mfs_io_engine_ops *ops, void *state, unsigned depth,
		       struct mfs_io_engine **ret, struct mfs_error *err);
/* Nothing may be in flight. */
void mfs_io_engine_free(struct mfs_io_engine *e);

const char *mfs_io_engine_name(const struct mfs_io_engine *e);
unsigned mfs_io_in_flight(const struct mfs_io_engine *e);

/* Begins a request, which must stay where it is until it has ended. -EBUSY: depth requests are in
 * flight; -errno: the kernel did not take it. */
int mfs_io_submit(struct mfs_io_engine *e, struct mfs_io *w);

/* Returns the next request that is done, in any order, with its result. -EINTR: a signal came
 * first. -ENOENT: nothing is in flight. */
int mfs_io_wait(struct mfs_io_engine *e, struct mfs_io **ret);

#endif
