/*
 * What loads call of CUDA's driver, where there is no GPU: a device's memory is the host's. It is
 * built as libcuda.so.1, and a test loads it before the code under test asks for that name.
 *
 * A copy is done as late as a GPU may do it: when its event is waited for, or asked for a second
 * time. What is copied from must be pinned by then, and what is copied to must be the device's.
 */
#include "tests/gpu/fake_driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT	    __attribute__((visibility("default")))
#define RANGES	    1024
#define INVALID	    1
#define NOT_READY   600
#define KIND	    2
#define KIND_DEVICE 2
#define DEVICE	    9

typedef unsigned long long address;

struct range {
	const uint8_t *from;
	size_t size;
};

struct ranges {
	struct range at[RANGES];
	unsigned count;
};

struct copy {
	uint8_t *to;
	const uint8_t *from;
	size_t rows, width, to_step, from_step;
	struct copy *next;
};

struct stream {
	struct copy *first, **last;
};

struct event {
	struct stream *stream;
	struct copy *end; /* the last that the event waits for; NULL: none */
	bool was_asked;
};

/* CUDA_MEMCPY2D */
struct copy_2d {
	size_t from_x, from_y;
	unsigned from_kind;
	const void *from_host;
	address from_device;
	void *from_array;
	size_t from_pitch, to_x, to_y;
	unsigned to_kind;
	void *to_host;
	address to_device;
	void *to_array;
	size_t to_pitch, width, height;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ranges pinned, device;
static struct fake_driver_counts counts;

/* ---- memory ---- */

static int add(struct ranges *r, const void *p, size_t size)
{
	if (r->count == RANGES)
		return INVALID;
	r->at[r->count++] = (struct range){p, size};
	return 0;
}

static int take_out(struct ranges *r, const void *p)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->at[i].from == p) {
			r->at[i] = r->at[--r->count];
			return 0;
		}
	return INVALID;
}

static bool has(const struct ranges *r, const uint8_t *p, size_t size)
{
	for (unsigned i = 0; i < r->count; i++)
		if (p >= r->at[i].from && size <= r->at[i].size &&
		    (size_t)(p - r->at[i].from) <= r->at[i].size - size)
			return true;
	return false;
}

EXPORT void fake_driver_give(void *p, size_t size)
{
	pthread_mutex_lock(&lock);
	add(&device, p, size);
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_driver_take(void *p)
{
	pthread_mutex_lock(&lock);
	take_out(&device, p);
	pthread_mutex_unlock(&lock);
}

EXPORT struct fake_driver_counts fake_driver_tell(void)
{
	struct fake_driver_counts now;

	pthread_mutex_lock(&lock);
	now = counts;
	now.pinned = pinned.count;
	pthread_mutex_unlock(&lock);
	return now;
}

EXPORT int cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
	int rc;

	(void)flags;
	pthread_mutex_lock(&lock);
	rc = has(&pinned, p, 1) ? INVALID : add(&pinned, p, size);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int cuMemHostUnregister(void *p)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = take_out(&pinned, p);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int cuPointerGetAttribute(void *ret, int attribute, address p)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = has(&device, (const uint8_t *)(uintptr_t)p, 1);
	pthread_mutex_unlock(&lock);
	if (!found)
		return INVALID;
	*(int *)ret = attribute == KIND ? KIND_DEVICE : 0;
	return attribute == KIND || attribute == DEVICE ? 0 : INVALID;
}

/* ---- the device ---- */

EXPORT int cuInit(unsigned flags)
{
	return (int)flags;
}

EXPORT int cuDeviceGetCount(int *ret)
{
	*ret = 1;
	return 0;
}

EXPORT int cuDeviceGet(int *ret, int number)
{
	*ret = number;
	return number ? INVALID : 0;
}

EXPORT int cuDeviceGetAttribute(int *ret, int attribute, int number)
{
	(void)attribute;
	(void)number;
	*ret = 0;
	return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **ret, int number)
{
	(void)number;
	*ret = &device;
	return 0;
}

EXPORT int cuCtxSetCurrent(void *context)
{
	return context == &device ? 0 : INVALID;
}

EXPORT int cuGetErrorString(int code, const char **ret)
{
	*ret = code == INVALID ? "invalid argument" : "another error";
	return 0;
}

/* ---- streams ---- */

EXPORT int cuStreamCreate(void **ret, unsigned flags)
{
	struct stream *s = calloc(1, sizeof(*s));

	(void)flags;
	if (!s)
		return INVALID;
	s->last = &s->first;
	*ret = s;
	return 0;
}

/* The lock is held. Copies up to end, and with it; NULL: all. */
static void run(struct stream *s, const struct copy *end)
{
	bool more = true;

	while (s->first && more) {
		struct copy *c = s->first;

		for (size_t i = 0; i < c->rows; i++)
			memcpy(c->to + i * c->to_step, c->from + i * c->from_step, c->width);
		more = c != end;
		s->first = c->next;
		free(c);
	}
	if (!s->first)
		s->last = &s->first;
}

static bool is_waiting(const struct stream *s, const struct copy *end)
{
	const struct copy *c = s->first;

	while (c && c != end)
		c = c->next;
	return c != NULL;
}

EXPORT int cuStreamSynchronize(void *stream)
{
	pthread_mutex_lock(&lock);
	run(stream, NULL);
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT int cuStreamDestroy_v2(void *stream)
{
	cuStreamSynchronize(stream);
	free(stream);
	return 0;
}

static int queue(struct stream *s, const struct copy *asked)
{
	const size_t from = asked->from_step * (asked->rows - 1) + asked->width;
	const size_t to = asked->to_step * (asked->rows - 1) + asked->width;
	struct copy *c = malloc(sizeof(*c));
	int rc = 0;

	if (!c)
		return INVALID;
	*c = *asked;
	pthread_mutex_lock(&lock);
	if (!has(&pinned, c->from, from) || !has(&device, c->to, to)) {
		rc = INVALID;
		free(c);
	} else {
		*s->last = c;
		s->last = &c->next;
		counts.copies++;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream)
{
	const struct copy c = {
		.to = (uint8_t *)(uintptr_t)to, .from = from, .rows = 1, .width = size};

	return queue(stream, &c);
}

EXPORT int cuMemcpy2DAsync_v2(const struct copy_2d *asked, void *stream)
{
	const struct copy c = {.to = (uint8_t *)(uintptr_t)asked->to_device,
			       .from = asked->from_host,
			       .rows = asked->height,
			       .width = asked->width,
			       .to_step = asked->to_pitch,
			       .from_step = asked->from_pitch};

	return asked->width > asked->to_pitch || asked->width > asked->from_pitch
		       ? INVALID
		       : queue(stream, &c);
}

/* ---- events ---- */

EXPORT int cuEventCreate(void **ret, unsigned flags)
{
	(void)flags;
	*ret = calloc(1, sizeof(struct event));
	return *ret ? 0 : INVALID;
}

EXPORT int cuEventDestroy_v2(void *event)
{
	free(event);
	return 0;
}

EXPORT int cuEventRecord(void *event, void *stream)
{
	struct stream *s = stream;
	struct event *e = event;

	pthread_mutex_lock(&lock);
	*e = (struct event){.stream = s};
	for (struct copy *c = s->first; c; c = c->next)
		e->end = c;
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT int cuEventSynchronize(void *event)
{
	struct event *e = event;

	pthread_mutex_lock(&lock);
	if (e->end && is_waiting(e->stream, e->end))
		run(e->stream, e->end);
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT int cuEventQuery(void *event)
{
	struct event *e = event;

	if (e->was_asked)
		return cuEventSynchronize(event);
	e->was_asked = true;
	return NOT_READY;
}
