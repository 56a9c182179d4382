/*
 * The few functions of CUDA's driver that loads need. The driver is loaded when a GPU is first
 * asked for, so nothing is linked with it. Names, numbers and layouts are those of cuda.h, which
 * the driver keeps.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/load/box_load_i.h"

#define DEVICES_MOST 64

typedef void *handle;
typedef unsigned long long device_address;

/* CUDA_MEMCPY2D */
struct copy_2d {
	size_t from_x, from_y;
	unsigned from_kind;
	const void *from_host;
	device_address from_device;
	handle from_array;
	size_t from_pitch;
	size_t to_x, to_y;
	unsigned to_kind;
	void *to_host;
	device_address to_device;
	handle to_array;
	size_t to_pitch;
	size_t width, height;
};

enum { KIND_HOST = 1, KIND_DEVICE = 2 };
enum { NOT_READY = 600 };
enum { STREAM_NON_BLOCKING = 1 };
enum { EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2 };
enum { REGISTER_PORTABLE = 1 };
enum { POINTER_KIND = 2, POINTER_DEVICE = 9 };
enum { DEVICE_NUMA_ID = 134 };

/* X(member, the driver's name, parameters) */
#define FUNCTIONS(X)                                                                               \
	X(init, "cuInit", (unsigned flags))                                                        \
	X(device_get, "cuDeviceGet", (int *ret, int number))                                       \
	X(device_count, "cuDeviceGetCount", (int *ret))                                            \
	X(device_attribute, "cuDeviceGetAttribute", (int *ret, int attribute, int device))         \
	X(retain, "cuDevicePrimaryCtxRetain", (handle * ret, int device))                          \
	X(set_current, "cuCtxSetCurrent", (handle context))                                        \
	X(error_text, "cuGetErrorString", (int code, const char **ret))                            \
	X(host_register, "cuMemHostRegister_v2", (void *p, size_t size, unsigned flags))           \
	X(host_unregister, "cuMemHostUnregister", (void *p))                                       \
	X(pointer_attribute, "cuPointerGetAttribute",                                              \
	  (void *ret, int attribute, device_address p))                                            \
	X(stream_create, "cuStreamCreate", (handle * ret, unsigned flags))                         \
	X(stream_destroy, "cuStreamDestroy_v2", (handle stream))                                   \
	X(stream_synchronize, "cuStreamSynchronize", (handle stream))                              \
	X(event_create, "cuEventCreate", (handle * ret, unsigned flags))                           \
	X(event_destroy, "cuEventDestroy_v2", (handle event))                                      \
	X(event_record, "cuEventRecord", (handle event, handle stream))                            \
	X(event_query, "cuEventQuery", (handle event))                                             \
	X(event_synchronize, "cuEventSynchronize", (handle event))                                 \
	X(copy, "cuMemcpyHtoDAsync_v2",                                                            \
	  (device_address to, const void *from, size_t size, handle stream))                       \
	X(copy_2d, "cuMemcpy2DAsync_v2", (const struct copy_2d *copy, handle stream))

#define MEMBER(NAME, SYMBOL, PARAMETERS) int(*NAME) PARAMETERS;

static struct {
	void *library;
	FUNCTIONS(MEMBER)
} driver;

struct mfs_cuda {
	int device;
	handle context;
};

struct mfs_cuda_stream {
	handle stream;
	unsigned count;
	handle events[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mfs_cuda *opened[DEVICES_MOST];

/* ---- failures ---- */

static int failed(int code, const char *what, struct mfs_error *err)
{
	const char *text = "no words for it";

	if (driver.error_text)
		driver.error_text(code, &text);
	return mfs_fail(err, -EIO, "CUDA: %s: %s (%d)", what, text, code);
}

static int check(int code, const char *what, struct mfs_error *err)
{
	return code ? failed(code, what, err) : 0;
}

/* ---- the driver ---- */

static int find(void **ret, const char *symbol, struct mfs_error *err)
{
	*ret = dlsym(driver.library, symbol);
	return *ret ? 0
		    : mfs_fail(err, -ENODEV, "libcuda.so.1 has no %s: the driver is too old",
			       symbol);
}

static int load_driver(struct mfs_error *err)
{
	int rc = 0;

	if (driver.library)
		return 0;
	driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver.library)
		return mfs_fail(err, -ENODEV, "there is no CUDA driver here: %s", dlerror());
#define FIND(NAME, SYMBOL, PARAMETERS)                                                             \
	if (!rc)                                                                                   \
		rc = find((void **)&driver.NAME, SYMBOL, err);
	FUNCTIONS(FIND)
	if (!rc && driver.init(0))
		rc = mfs_fail(err, -ENODEV, "the CUDA driver finds no GPU");
	if (rc) {
		dlclose(driver.library);
		memset(&driver, 0, sizeof(driver));
	}
	return rc;
}

static int open_device(int number, struct mfs_cuda **ret, struct mfs_error *err)
{
	struct mfs_cuda *c;
	int count = 0, rc;

	driver.device_count(&count);
	if (number >= count || number >= DEVICES_MOST)
		return mfs_fail(err, -ENODEV, "there is no CUDA device %d: there are %d", number,
				count);
	c = calloc(1, sizeof(*c));
	if (!c)
		return mfs_fail_nomem(err);
	rc = check(driver.device_get(&c->device, number), "the device cannot be opened", err);
	if (!rc)
		rc = check(driver.retain(&c->context, c->device), "the device has no context", err);
	if (rc) {
		free(c);
		return rc;
	}
	*ret = opened[number] = c;
	return 0;
}

int mfs_cuda_open(int device, struct mfs_cuda **ret, struct mfs_error *err)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = load_driver(err);
	if (!rc && device < DEVICES_MOST && opened[device])
		*ret = opened[device];
	else if (!rc)
		rc = open_device(device, ret, err);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int enter(const struct mfs_cuda *c, struct mfs_error *err)
{
	return check(driver.set_current(c->context), "the device's context cannot be used", err);
}

/* ---- memory ---- */

int mfs_cuda_check(struct mfs_cuda *c, const void *p, struct mfs_error *err)
{
	unsigned kind = 0;
	int device = -1;

	if (!driver.pointer_attribute(&kind, POINTER_KIND, (device_address)(uintptr_t)p))
		driver.pointer_attribute(&device, POINTER_DEVICE, (device_address)(uintptr_t)p);
	if (kind == KIND_DEVICE && device == c->device)
		return 0;
	return mfs_fail(err, -EINVAL, "a destination is no memory of CUDA device %d", c->device);
}

int mfs_cuda_node(struct mfs_cuda *c)
{
	int node = -1;

	return driver.device_attribute(&node, DEVICE_NUMA_ID, c->device) ? -1 : node;
}

int mfs_cuda_pin(struct mfs_cuda *c, void *p, size_t size, struct mfs_error *err)
{
	int rc = enter(c, err);

	return rc ? rc
		  : check(driver.host_register(p, size, REGISTER_PORTABLE),
			  "buffers cannot be pinned", err);
}

void mfs_cuda_unpin(struct mfs_cuda *c, void *p)
{
	if (!enter(c, NULL))
		driver.host_unregister(p);
}

/* ---- streams ---- */

int mfs_cuda_stream_new(struct mfs_cuda *c, unsigned events, struct mfs_cuda_stream **ret,
			struct mfs_error *err)
{
	struct mfs_cuda_stream *s = calloc(1, sizeof(*s) + events * sizeof(*s->events));
	int rc = s ? enter(c, err) : mfs_fail_nomem(err);

	if (!rc)
		rc = check(driver.stream_create(&s->stream, STREAM_NON_BLOCKING),
			   "a stream cannot be made", err);
	while (!rc && s->count < events) {
		rc = check(driver.event_create(&s->events[s->count],
					       EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING),
			   "an event cannot be made", err);
		s->count += !rc;
	}
	if (rc)
		mfs_cuda_stream_free(s);
	else
		*ret = s;
	return rc;
}

void mfs_cuda_stream_free(struct mfs_cuda_stream *s)
{
	if (!s)
		return;
	if (s->stream)
		driver.stream_synchronize(s->stream);
	while (s->count)
		driver.event_destroy(s->events[--s->count]);
	if (s->stream)
		driver.stream_destroy(s->stream);
	free(s);
}

int mfs_cuda_copy(struct mfs_cuda_stream *s, const struct mfs_cuda_rows *rows,
		  struct mfs_error *err)
{
	const bool is_run =
		rows->rows == 1 || (rows->to_step == rows->width && rows->from_step == rows->width);
	const struct copy_2d copy = {
		.from_x = 0,
		.from_y = 0,
		.from_kind = KIND_HOST,
		.from_host = rows->from,
		.from_device = 0,
		.from_array = NULL,
		.from_pitch = rows->from_step,
		.to_x = 0,
		.to_y = 0,
		.to_kind = KIND_DEVICE,
		.to_host = NULL,
		.to_device = (device_address)(uintptr_t)rows->to,
		.to_array = NULL,
		.to_pitch = rows->to_step,
		.width = rows->width,
		.height = rows->rows,
	};

	return check(is_run ? driver.copy(copy.to_device, rows->from, rows->width * rows->rows,
					  s->stream)
			    : driver.copy_2d(&copy, s->stream),
		     "a copy to the device cannot be started", err);
}

int mfs_cuda_record(struct mfs_cuda_stream *s, unsigned event, struct mfs_error *err)
{
	return check(driver.event_record(s->events[event], s->stream),
		     "an event cannot be recorded", err);
}

int mfs_cuda_come(struct mfs_cuda_stream *s, unsigned event, bool wait, struct mfs_error *err)
{
	const int code = wait ? driver.event_synchronize(s->events[event])
			      : driver.event_query(s->events[event]);

	return code == NOT_READY ? -EAGAIN : check(code, "a copy to the device has failed", err);
}
