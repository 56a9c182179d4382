#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/record/record_i.h"

/* ---- life ---- */

static int open_device(int index, unsigned threads, struct mfk_device **ret, char *why)
{
	(void)index;
	(void)threads;
	*ret = calloc(1, sizeof(**ret));
	if (*ret)
		return 0;
	snprintf(why, MFK_WHY, "out of memory");
	return -ENOMEM;
}

static void close_device(struct mfk_device *d)
{
	if (!d)
		return;
	for (unsigned i = 0; i < d->place_count; i++)
		if (d->places[i].at)
			munmap(d->places[i].at, d->places[i].bytes);
	free(d->places);
	mfk_record_release(&d->record);
	free(d);
}

static void info(struct mfk_device *d, struct mfk_device_info *ret)
{
	(void)d;
	*ret = (struct mfk_device_info){.name = "a recorder", .units = 1};
}

/* ---- address space ---- */

static struct mfk_place *unused_place(struct mfk_device *d)
{
	struct mfk_place *more;

	for (unsigned i = 0; i < d->place_count; i++)
		if (!d->places[i].at)
			return &d->places[i];
	more = realloc(d->places, (d->place_count + 1) * sizeof(*more));
	if (!more)
		return NULL;
	d->places = more;
	return &d->places[d->place_count++];
}

/* No page of it exists before it is written. */
static void *allocate(struct mfk_device *d, size_t bytes)
{
	struct mfk_place *place = unused_place(d);
	void *at;

	if (!place)
		return NULL;
	*place = (struct mfk_place){NULL, bytes ? bytes : 1};
	at = mmap(NULL, place->bytes, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	return place->at = at;
}

static void release(struct mfk_device *d, void *p)
{
	for (unsigned i = 0; p && i < d->place_count; i++)
		if (d->places[i].at == p) {
			munmap(p, d->places[i].bytes);
			d->places[i].at = NULL;
			return;
		}
}

static void release_host(struct mfk_device *d, void *p, size_t bytes)
{
	(void)bytes;
	release(d, p);
}

/* ---- streams and events ---- */

static int ctx_new(struct mfk_device *d, bool background, struct mfk_ctx **ret, char *why)
{
	(void)background;
	*ret = malloc(sizeof(**ret));
	if (!*ret) {
		snprintf(why, MFK_WHY, "out of memory");
		return -ENOMEM;
	}
	**ret = (struct mfk_ctx){d, d->streams++};
	return 0;
}

static void ctx_free(struct mfk_ctx *c)
{
	free(c);
}

static int sync_ctx(struct mfk_ctx *c, char *why)
{
	(void)why;
	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_SYNC, .name = "sync"});
	return 0;
}

static int event_new(struct mfk_device *d, struct mfk_event **ret)
{
	*ret = malloc(sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	**ret = (struct mfk_event){d, d->events++};
	return 0;
}

static void event_free(struct mfk_event *e)
{
	free(e);
}

static void event_record(struct mfk_ctx *c, struct mfk_event *e)
{
	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_RECORD,
					       .name = "event_record",
					       .event = e->number});
}

static void event_wait(struct mfk_ctx *c, struct mfk_event *e)
{
	mfk_record_submit(
		c,
		(struct mfk_work){.kind = MFK_WORK_WAIT, .name = "event_wait", .event = e->number});
}

static int event_sync(struct mfk_event *e, char *why)
{
	const struct mfk_work w = {
		.kind = MFK_WORK_EVENT_SYNC, .name = "event_sync", .event = e->number};

	(void)why;
	mfk_record_add(e->device, &w);
	return 0;
}

/* Measurements of a run add nothing to its plan. */
static void stamp(struct mfk_ctx *c, int64_t *ns)
{
	(void)c;
	(void)ns;
}

/* ---- copies ---- */

static void copy(struct mfk_ctx *c, void *to, const void *from, size_t bytes)
{
	if (bytes <= MFK_RECORD_COPIED)
		memmove(to, from, bytes);
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_MEMORY, .name = "copy", .bytes = 2 * bytes});
}

static void copy_in(struct mfk_ctx *c, void *to, const void *host, size_t bytes)
{
	if (bytes <= MFK_RECORD_COPIED)
		memcpy(to, host, bytes);
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_HOST, .name = "copy_in", .bytes = bytes});
}

static void copy_out(struct mfk_ctx *c, void *host, const void *from, size_t bytes)
{
	if (bytes <= MFK_RECORD_COPIED)
		memcpy(host, from, bytes);
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_HOST, .name = "copy_out", .bytes = bytes});
}

static void zero(struct mfk_ctx *c, void *p, size_t bytes)
{
	if (bytes <= MFK_RECORD_COPIED)
		memset(p, 0, bytes);
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_MEMORY, .name = "zero", .bytes = bytes});
}

const struct mfk_device_ops mfk_record_device_ops = {
	.open = open_device,
	.close = close_device,
	.info = info,
	.alloc = allocate,
	.free = release,
	.host_alloc = allocate,
	.host_free = release_host,
	.ctx_new = ctx_new,
	.ctx_free = ctx_free,
	.sync = sync_ctx,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_sync = event_sync,
	.stamp = stamp,
	.copy = copy,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.zero = zero,
};
