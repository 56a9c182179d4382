#define _GNU_SOURCE
#include "formats/io/io_engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/trace.h"

struct mfs_io_engine {
	const struct mfs_io_engine_ops *ops;
	void *state;
	unsigned depth, in_flight;
};

int mfs_io_engine_with(const struct mfs_io_engine_ops *ops, void *state, unsigned depth,
		       struct mfs_io_engine **ret, struct mfs_error *err)
{
	struct mfs_io_engine *e = calloc(1, sizeof(*e));

	if (!e) {
		ops->free(state);
		return mfs_fail_nomem(err);
	}
	e->ops = ops;
	e->state = state;
	e->depth = depth;
	*ret = e;
	return 0;
}

int mfs_io_engine_new(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err)
{
	/* Containers forbid io_uring by seccomp, old kernels lack it, and a small RLIMIT_MEMLOCK
	 * leaves it no memory. Work goes on without it. */
	int rc = mfs_io_uring(depth, ret, NULL);

	if (rc)
		rc = mfs_io_calls(depth, ret, err);
	if (!rc)
		MFS_TRACE(IO, "%s reads, %u at once", (*ret)->ops->name, depth);
	return rc;
}

void mfs_io_engine_free(struct mfs_io_engine *e)
{
	if (!e)
		return;
	e->ops->free(e->state);
	free(e);
}

const char *mfs_io_engine_name(const struct mfs_io_engine *e)
{
	return e->ops->name;
}

unsigned mfs_io_in_flight(const struct mfs_io_engine *e)
{
	return e->in_flight;
}

int mfs_io_submit(struct mfs_io_engine *e, struct mfs_io *w)
{
	int rc;

	if (e->in_flight == e->depth)
		return -EBUSY;
	w->result = 0;
	rc = e->ops->start(e->state, w);
	if (!rc)
		e->in_flight++;
	return rc;
}

/* Drops the first done bytes of a request; true if nothing is left of it. */
static bool advance(struct mfs_io *w, size_t done)
{
	w->off += done;
	while (w->iov_count && done >= w->iov->iov_len) {
		done -= w->iov->iov_len;
		w->iov++;
		w->iov_count--;
	}
	if (!w->iov_count)
		return true;
	w->iov->iov_base = (char *)w->iov->iov_base + done;
	w->iov->iov_len -= done;
	return false;
}

/* What a completion means: 0 or -errno is reported; 1: the rest of the request starts. */
static int judge(struct mfs_io *w, ssize_t done)
{
	if (done == -EINTR || done == -EAGAIN)
		return 1;
	if (done < 0 || w->kind == MFS_IO_SYNC)
		return (int)done;
	/* A write of nothing that is no error would repeat for ever; a read has met the file's
	 * end. */
	if (!done && w->iov_count)
		return -EIO;
	return advance(w, (size_t)done) ? 0 : 1;
}

int mfs_io_wait(struct mfs_io_engine *e, struct mfs_io **ret)
{
	struct mfs_io *w = NULL;
	ssize_t done = 0;
	int rc;

	for (;;) {
		if (!e->in_flight)
			return -ENOENT;
		rc = e->ops->reap(e->state, &w, &done);
		if (rc)
			return rc;
		rc = judge(w, done);
		if (rc > 0)
			rc = e->ops->start(e->state, w) ?: 1;
		if (rc <= 0)
			break;
	}
	e->in_flight--;
	w->result = rc;
	*ret = w;
	return 0;
}

/* Plain system calls: a request is done when start returns, and waits in a ring to be reaped. */
struct finished {
	struct mfs_io *w;
	ssize_t done;
};

ssize_t mfs_io_call(const struct mfs_io *w)
{
	ssize_t done;

	if (w->kind == MFS_IO_SYNC)
		done = fsync(w->fd);
	else if (w->kind == MFS_IO_READ)
		done = preadv(w->fd, w->iov, (int)w->iov_count, (off_t)w->off);
	else
		done = pwritev(w->fd, w->iov, (int)w->iov_count, (off_t)w->off);
	return done < 0 ? -errno : done;
}

struct calls_state {
	uint64_t head, tail;
	unsigned depth;
	struct finished ring[];
};

static int calls_start(void *state, struct mfs_io *w)
{
	struct calls_state *p = state;

	p->ring[p->tail++ % p->depth] = (struct finished){w, mfs_io_call(w)};
	return 0;
}

static int calls_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct calls_state *p = state;
	struct finished *f = &p->ring[p->head++ % p->depth];

	*ret = f->w;
	*ret_done = f->done;
	return 0;
}

int mfs_io_calls(unsigned depth, struct mfs_io_engine **ret, struct mfs_error *err)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "pwrite",
		.start = calls_start,
		.reap = calls_reap,
		.free = free,
	};
	struct calls_state *p;

	if (!depth)
		return mfs_fail(err, -EINVAL, "an engine needs room for one request");
	p = calloc(1, sizeof(*p) + depth * sizeof(p->ring[0]));
	if (!p)
		return mfs_fail_nomem(err);
	p->depth = depth;
	return mfs_io_engine_with(&ops, p, depth, ret, err);
}
