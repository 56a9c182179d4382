#include "formats/io/io_engine.h"

#include <liburing.h>
#include <stdlib.h>
#include <string.h>

struct uring {
	struct io_uring ring;
	const uint8_t *fixed; /* memory that is registered, as buffer 0; NULL: none */
	size_t fixed_size;
};

static bool is_fixed(const struct uring *u, const struct iovec *iov)
{
	const uint8_t *at = iov->iov_base;

	return u->fixed && at >= u->fixed && iov->iov_len <= u->fixed_size &&
	       (size_t)(at - u->fixed) <= u->fixed_size - iov->iov_len;
}

static void prepare(const struct uring *u, struct io_uring_sqe *sqe, struct mfs_io *w)
{
	switch (w->kind) {
	case MFS_IO_SYNC:
		io_uring_prep_fsync(sqe, w->fd, 0);
		break;
	case MFS_IO_READ:
		if (w->iov_count == 1 && is_fixed(u, w->iov))
			io_uring_prep_read_fixed(sqe, w->fd, w->iov->iov_base,
						 (unsigned)w->iov->iov_len, w->off, 0);
		else if (w->iov_count == 1)
			io_uring_prep_read(sqe, w->fd, w->iov->iov_base, (unsigned)w->iov->iov_len,
					   w->off);
		else
			io_uring_prep_readv(sqe, w->fd, w->iov, w->iov_count, w->off);
		break;
	case MFS_IO_WRITE:
		io_uring_prep_writev(sqe, w->fd, w->iov, w->iov_count, w->off);
		break;
	}
}

static int uring_start(void *state, struct mfs_io *w)
{
	struct uring *u = state;
	struct io_uring *ring = &u->ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	int rc;

	if (!sqe)
		return -EBUSY;
	prepare(u, sqe, w);
	io_uring_sqe_set_data(sqe, w);
	/* Reads are many and small: they go to the kernel together, when the first is waited for.
	 */
	if (w->kind == MFS_IO_READ)
		return 0;
	/* Copying into the page cache takes processor time. Without this flag the kernel does it in
	 * one thread for all files, with it in one thread for each file. */
	io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
	/* An entry that the kernel did not take stays queued, so it has to be offered again. */
	do {
		rc = io_uring_submit(ring);
	} while (rc == -EINTR || rc == -EAGAIN);
	return rc < 0 ? rc : 0;
}

static int uring_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct io_uring *ring = &((struct uring *)state)->ring;
	struct io_uring_cqe *cqe;
	int rc;

	while (io_uring_sq_ready(ring)) {
		rc = io_uring_submit(ring);
		if (rc < 0 && rc != -EAGAIN)
			return rc;
	}
	rc = io_uring_wait_cqe(ring, &cqe);
	if (rc)
		return rc;
	*ret = io_uring_cqe_get_data(cqe);
	*ret_done = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return 0;
}

static void uring_free(void *state)
{
	io_uring_queue_exit(&((struct uring *)state)->ring);
	free(state);
}

/* The kernel looks at pages once, and not at each read. */
static bool uring_fix(void *state, void *memory, size_t size)
{
	const struct iovec all = {memory, size};
	struct uring *u = state;

	if (u->fixed || io_uring_register_buffers(&u->ring, &all, 1))
		return false;
	u->fixed = memory;
	u->fixed_size = size;
	return true;
}

int mfs_io_uring(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "io_uring",
		.start = uring_start,
		.reap = uring_reap,
		.free = uring_free,
		.fix = uring_fix,
	};
	struct uring *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return mfs_fail_nomem(err);
	rc = io_uring_queue_init(depth, &u->ring, 0);
	if (rc) {
		free(u);
		return mfs_fail(err, rc, "cannot set up io_uring: %s", strerror(-rc));
	}
	return mfs_io_engine_with(&ops, u, depth, ret, err);
}
