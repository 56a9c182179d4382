/*
 * Writes at given offsets, with several in flight.
 *
 * The caller owns the requests and their buffers, and leaves both alone from submit until wait
 * returns the request. Short writes are queued again inside. One thread per engine.
 */
#ifndef MFS_IO_WRITE_ENGINE_H
#define MFS_IO_WRITE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "formats/base/error.h"

struct mfs_write_engine;

enum mfs_write_kind {
	MFS_WRITE_DATA,
	MFS_WRITE_SYNC, /* fsync; iov and off are not used */
};

struct mfs_write {
	enum mfs_write_kind kind;
	int fd;
	uint64_t off;	   /* bytes from the start of the file; moves with short writes */
	struct iovec *iov; /* at most IOV_MAX; moves with short writes, its elements change too */
	unsigned iov_count;
	int result; /* set by wait: 0 once all bytes are written, or -errno */
};

/* How requests reach the kernel. */
struct mfs_write_engine_ops {
	const char *name;
	/* Starts a request. 0 or -errno, then the request did not start. */
	int (*start)(void *state, struct mfs_write *w);
	/* Waits for one started request; *ret_done is what pwritev or fsync would have returned,
	 * or -errno. -EINTR if a signal came first. */
	int (*reap)(void *state, struct mfs_write **ret, ssize_t *ret_done);
	void (*free)(void *state);
};

/* The two engines: io_uring, and plain system calls that finish inside start. depth: the most
 * requests that are ever in flight. -ENOSYS or -EPERM: the kernel or a sandbox forbids io_uring. */
int mfs_write_uring(unsigned depth, struct mfs_write_engine **ret, struct mfs_error *err);
int mfs_write_pwrite(unsigned depth, struct mfs_write_engine **ret, struct mfs_error *err);

/* io_uring where it is permitted, else plain system calls. */
int mfs_write_engine_new(unsigned depth, struct mfs_write_engine **ret, struct mfs_error *err);
/* An engine that the caller brings. ops->free releases state, also on failure. */
int mfs_write_engine_with(const struct mfs_write_engine_ops *ops, void *state, unsigned depth,
			  struct mfs_write_engine **ret, struct mfs_error *err);
/* Nothing may be in flight. */
void mfs_write_engine_free(struct mfs_write_engine *e);

const char *mfs_write_engine_name(const struct mfs_write_engine *e);
unsigned mfs_write_in_flight(const struct mfs_write_engine *e);

/* -EBUSY if depth requests are in flight; -errno if the kernel did not take it. */
int mfs_write_submit(struct mfs_write_engine *e, struct mfs_write *w);

/* Returns the next request that is done, in any order, with its result. -EINTR: a signal came
 * first. -ENOENT: nothing is in flight. */
int mfs_write_wait(struct mfs_write_engine *e, struct mfs_write **ret);

#endif
