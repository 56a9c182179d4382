/* The CPU as a device: its memory is the process's, and its operations run when they are called. */
#include "kernels/ref/ref_i.h"

#include <cblas.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

struct mfk_device {
	struct mfk_pool *pool;
};

struct mfk_event {
	pthread_mutex_t lock;
	bool failed; /* the context, when the event was recorded */
	char why[MFK_WHY];
};

static int device_open(int index, unsigned threads, struct mfk_device **ret, char *why)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	struct mfk_device *d;
	int r;

	if (index != 0) {
		snprintf(why, MFK_WHY, "CPU %d: there is one CPU device, number 0", index);
		return -ENODEV;
	}
	if (!threads)
		threads = processors > 0 ? (unsigned)processors : 1;
	if (threads > MFK_THREADS_MAX)
		threads = MFK_THREADS_MAX;
	d = calloc(1, sizeof(*d));
	r = d ? mfk_pool_new(threads, &d->pool) : -ENOMEM;
	if (r) {
		snprintf(why, MFK_WHY, "no memory for %u threads", threads);
		free(d);
		return r;
	}
	/* Its threads would share work in a way that depends on their number: ours share it. */
	openblas_set_num_threads(1);
	mfk_blas_begin();
	*ret = d;
	return 0;
}

static void device_close(struct mfk_device *d)
{
	mfk_pool_free(d->pool);
	free(d);
}

static void processor_name(char *name, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];
	char *colon;

	snprintf(name, size, "CPU");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "model name", 10) || !(colon = strchr(line, ':')))
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
		break;
	}
	if (f)
		fclose(f);
}

static void device_info(struct mfk_device *d, struct mfk_device_info *ret)
{
	struct sysinfo s;

	memset(ret, 0, sizeof(*ret));
	processor_name(ret->name, sizeof(ret->name));
	if (!sysinfo(&s)) {
		ret->memory = (uint64_t)s.totalram * s.mem_unit;
		ret->free = (uint64_t)(s.freeram + s.bufferram) * s.mem_unit;
	}
	ret->units = mfk_pool_threads(d->pool);
}

#define HUGE_PAGE (2u << 20)

static void *aligned(size_t bytes, size_t to)
{
	void *p;

	/* Products walk through matrices in both directions: large pages spare most of the misses.
	 */
	if (bytes >= 2 * HUGE_PAGE)
		to = HUGE_PAGE;
	if (posix_memalign(&p, to, bytes ? bytes : 1))
		return NULL;
	if (to == HUGE_PAGE)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static void *device_alloc(struct mfk_device *d, size_t bytes)
{
	(void)d;
	return aligned(bytes, 256);
}

static void device_free(struct mfk_device *d, void *p)
{
	(void)d;
	free(p);
}

static void *host_alloc(struct mfk_device *d, size_t bytes)
{
	(void)d;
	return aligned(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static void host_free(struct mfk_device *d, void *p, size_t bytes)
{
	(void)d;
	(void)bytes;
	free(p);
}

static int ctx_new(struct mfk_device *d, bool background, struct mfk_ctx **ret, char *why)
{
	struct mfk_ctx *c = calloc(1, sizeof(*c));

	if (!c) {
		snprintf(why, MFK_WHY, "no memory for a context");
		return -ENOMEM;
	}
	c->device = d;
	c->background = background;
	*ret = c;
	return 0;
}

static void ctx_free(struct mfk_ctx *c)
{
	for (unsigned i = 0; i < MFK_THREADS_MAX; i++)
		free(c->scratch[i].p);
	free(c->sums.p);
	free(c);
}

static int ctx_sync(struct mfk_ctx *c, char *why)
{
	if (!c->failed)
		return 0;
	snprintf(why, MFK_WHY, "%s", c->why);
	return -EIO;
}

void mfk_fail(struct mfk_ctx *c, const char *fmt, ...)
{
	va_list ap;

	if (c->failed)
		return;
	c->failed = true;
	va_start(ap, fmt);
	vsnprintf(c->why, MFK_WHY, fmt, ap);
	va_end(ap);
}

/* ---- events: all has happened when they are recorded ---- */

static int event_new(struct mfk_device *d, struct mfk_event **ret)
{
	struct mfk_event *e = calloc(1, sizeof(*e));

	(void)d;
	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	*ret = e;
	return 0;
}

static void event_free(struct mfk_event *e)
{
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static void event_record(struct mfk_ctx *c, struct mfk_event *e)
{
	pthread_mutex_lock(&e->lock);
	e->failed = c->failed;
	memcpy(e->why, c->why, MFK_WHY);
	pthread_mutex_unlock(&e->lock);
}

/* The lock makes what was written before the event visible after it. */
static int event_sync(struct mfk_event *e, char *why)
{
	bool failed;

	pthread_mutex_lock(&e->lock);
	failed = e->failed;
	if (failed)
		memcpy(why, e->why, MFK_WHY);
	pthread_mutex_unlock(&e->lock);
	return failed ? -EIO : 0;
}

static void event_wait(struct mfk_ctx *c, struct mfk_event *e)
{
	char why[MFK_WHY];

	if (event_sync(e, why))
		mfk_fail(c, "%s", why);
}

static void stamp(struct mfk_ctx *c, int64_t *ns)
{
	struct timespec now;

	(void)c;
	clock_gettime(CLOCK_MONOTONIC, &now);
	*ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- parts ---- */

static bool grow(struct mfk_buffer *b, size_t size)
{
	if (size <= b->size)
		return true;
	free(b->p);
	b->p = aligned(size, 256);
	b->size = b->p ? size : 0;
	return b->p != NULL;
}

void *mfk_sums(struct mfk_ctx *c, size_t bytes)
{
	if (grow(&c->sums, bytes))
		return c->sums.p;
	mfk_fail(c, "no memory for sums of %zu bytes", bytes);
	return NULL;
}

struct job {
	struct mfk_ctx *ctx;
	int64_t n, grain;
	mfk_part *part;
	const void *arg;
	atomic_llong next; /* element */
};

static void take_parts(void *arg, unsigned worker)
{
	struct job *j = arg;

	for (;;) {
		int64_t begin = atomic_fetch_add_explicit(&j->next, j->grain, memory_order_relaxed);
		int64_t end = begin + j->grain < j->n ? begin + j->grain : j->n;

		if (begin >= j->n)
			return;
		j->part(j->arg, begin, end, j->ctx->scratch[worker].p);
	}
}

void mfk_parallel(struct mfk_ctx *c, int64_t n, int64_t grain, size_t scratch, mfk_part *part,
		  const void *arg)
{
	struct job j = {.ctx = c, .n = n, .grain = grain, .part = part, .arg = arg};
	bool alone = c->background || n <= grain;
	unsigned workers = alone ? 1 : mfk_pool_threads(c->device->pool);

	if (n <= 0)
		return;
	for (unsigned i = 0; i < workers; i++) {
		if (grow(&c->scratch[i], scratch * sizeof(float)))
			continue;
		mfk_fail(c, "no memory for scratch of %zu bytes", scratch * sizeof(float));
		return;
	}
	if (alone)
		take_parts(&j, 0);
	else
		mfk_pool_run(c->device->pool, take_parts, &j);
}

int64_t mfk_row_grain(int64_t cols)
{
	return cols >= MFK_GRAIN || cols <= 0 ? 1 : MFK_GRAIN / cols;
}

/* ---- copies ---- */

struct bytes {
	char *to;
	const char *from; /* NULL: zeros */
};

static void copy_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct bytes *b = arg;

	(void)scratch;
	if (b->from)
		memmove(b->to + begin, b->from + begin, (size_t)(end - begin));
	else
		memset(b->to + begin, 0, (size_t)(end - begin));
}

#define COPY_GRAIN (1 << 20)

static void copy(struct mfk_ctx *c, void *to, const void *from, size_t bytes)
{
	struct bytes b = {to, from};

	mfk_parallel(c, (int64_t)bytes, COPY_GRAIN, 0, copy_part, &b);
}

static void zero(struct mfk_ctx *c, void *p, size_t bytes)
{
	copy(c, p, NULL, bytes);
}

const struct mfk_device_ops mfk_ref_device = {
	.at_once = true,
	.open = device_open,
	.close = device_close,
	.info = device_info,
	.alloc = device_alloc,
	.free = device_free,
	.host_alloc = host_alloc,
	.host_free = host_free,
	.ctx_new = ctx_new,
	.ctx_free = ctx_free,
	.sync = ctx_sync,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.stamp = stamp,
	.copy = copy,
	.copy_in = copy,
	.copy_out = copy,
	.zero = zero,
};
