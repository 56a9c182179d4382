#define _GNU_SOURCE
#include "formats/io/write_engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mfs_write_engine {
	const struct mfs_write_engine_ops *ops;
	void *state;
	unsigned depth, in_flight;
};

int mfs_write_engine_with(const struct mfs_write_engine_ops *ops, void *state, unsigned depth,
			  struct mfs_write_engine **ret, struct mfs_error *err)
{
	struct mfs_write_engine *e = calloc(1, sizeof(*e));

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

int mfs_write_engine_new(unsigned depth, struct mfs_write_engine **ret, struct mfs_error *err)
{
	/* Containers forbid io_uring by seccomp, old kernels lack it, and a small RLIMIT_MEMLOCK
	 * leaves it no memory. Writing goes on without it. */
	if (!mfs_write_uring(depth, ret, NULL))
		return 0;
	return mfs_write_pwrite(depth, ret, err);
}

void mfs_write_engine_free(struct mfs_write_engine *e)
{
	if (!e)
		return;
	e->ops->free(e->state);
	free(e);
}

const char *mfs_write_engine_name(const struct mfs_write_engine *e)
{
	return e->ops->name;
}

unsigned mfs_write_in_flight(const struct mfs_write_engine *e)
{
	return e->in_flight;
}

int mfs_write_submit(struct mfs_write_engine *e, struct mfs_write *w)
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
static bool advance(struct mfs_write *w, size_t done)
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
static int judge(struct mfs_write *w, ssize_t done)
{
	if (done == -EINTR || done == -EAGAIN)
		return 1;
	if (done < 0 || w->kind == MFS_WRITE_SYNC)
		return (int)done;
	/* A write of nothing that is no error would repeat for ever. */
	if (!done && w->iov_count)
		return -EIO;
	return advance(w, (size_t)done) ? 0 : 1;
}

int mfs_write_wait(struct mfs_write_engine *e, struct mfs_write **ret)
{
	struct mfs_write *w = NULL;
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
	struct mfs_write *w;
	ssize_t done;
};

struct pwrite_state {
	unsigned head, tail, depth;
	struct finished ring[];
};

static int pwrite_start(void *state, struct mfs_write *w)
{
	struct pwrite_state *p = state;
	ssize_t done;

	if (w->kind == MFS_WRITE_SYNC)
		done = fsync(w->fd);
	else
		done = pwritev(w->fd, w->iov, (int)w->iov_count, (off_t)w->off);
	p->ring[p->tail++ % p->depth] = (struct finished){w, done < 0 ? -errno : done};
	return 0;
}

static int pwrite_reap(void *state, struct mfs_write **ret, ssize_t *ret_done)
{
	struct pwrite_state *p = state;
	struct finished *f = &p->ring[p->head++ % p->depth];

	*ret = f->w;
	*ret_done = f->done;
	return 0;
}

int mfs_write_pwrite(unsigned depth, struct mfs_write_engine **ret, struct mfs_error *err)
{
	static const struct mfs_write_engine_ops ops = {
		.name = "pwrite",
		.start = pwrite_start,
		.reap = pwrite_reap,
		.free = free,
	};
	struct pwrite_state *p;

	if (!depth)
		return mfs_fail(err, -EINVAL, "a write engine needs room for one request");
	p = calloc(1, sizeof(*p) + depth * sizeof(p->ring[0]));
	if (!p)
		return mfs_fail_nomem(err);
	p->depth = depth;
	return mfs_write_engine_with(&ops, p, depth, ret, err);
}
