#include "formats/io/io_engine.h"

#include <liburing.h>
#include <stdlib.h>
#include <string.h>

static void prepare(struct io_uring_sqe *sqe, struct mfs_io *w)
{
	switch (w->kind) {
	case MFS_IO_SYNC:
		io_uring_prep_fsync(sqe, w->fd, 0);
		break;
	case MFS_IO_READ:
		if (w->iov_count == 1)
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
	struct io_uring *ring = state;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	int rc;

	if (!sqe)
		return -EBUSY;
	prepare(sqe, w);
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
	struct io_uring *ring = state;
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
	io_uring_queue_exit(state);
	free(state);
}

int mfs_io_uring(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "io_uring",
		.start = uring_start,
		.reap = uring_reap,
		.free = uring_free,
	};
	struct io_uring *ring = calloc(1, sizeof(*ring));
	int rc;

	if (!ring)
		return mfs_fail_nomem(err);
	rc = io_uring_queue_init(depth, ring, 0);
	if (rc) {
		free(ring);
		return mfs_fail(err, rc, "cannot set up io_uring: %s", strerror(-rc));
	}
	return mfs_io_engine_with(&ops, ring, depth, ret, err);
}
