/* Devices, contexts, events, copies and pinned memory. */
#include "kernels/cuda/base/context.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct mfk_event {
	int device;
	cudaEvent_t event;
	pthread_mutex_t lock; /* of what follows: who waits may be another thread */
	int rc;		      /* of the context, when the event was recorded */
	char why[MFK_WHY];
};

int mfk_cuda_errno(cudaError_t rc)
{
	switch (rc) {
	case cudaSuccess:
		return 0;
	case cudaErrorMemoryAllocation:
		return -ENOMEM;
	case cudaErrorInvalidValue:
		return -EINVAL;
	case cudaErrorNoDevice:
	case cudaErrorInvalidDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorNoKernelImageForDevice:
		return -ENODEV;
	default:
		return -EIO;
	}
}

static int refuse(cudaError_t rc, const char *what, char *why)
{
	/* What the next call would be told once more. */
	cudaGetLastError();
	snprintf(why, MFK_WHY, "%s: %s", what, cudaGetErrorString(rc));
	return mfk_cuda_errno(rc);
}

/* ---- devices ---- */

static int count_devices(int *ret, char *why)
{
	int driver = 0, runtime = 0;
	cudaError_t rc = cudaGetDeviceCount(ret);

	if (rc == cudaSuccess)
		return 0;
	cudaGetLastError();
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (rc == cudaErrorInsufficientDriver && driver)
		snprintf(why, MFK_WHY, "the NVIDIA driver is for CUDA %d.%d, %d.%d is needed",
			 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	else
		snprintf(why, MFK_WHY, "no GPU can be used: %s", cudaGetErrorString(rc));
	return -ENODEV;
}

static int describe(struct mfk_device *d, char *why)
{
	struct cudaDeviceProp p;
	cudaError_t rc = cudaGetDeviceProperties(&p, d->index);

	if (rc != cudaSuccess)
		return refuse(rc, "the GPU cannot be asked what it is", why);
	d->capability = p.major * 10 + p.minor;
	d->multiprocessors = p.multiProcessorCount;
	d->shared_optin = p.sharedMemPerBlockOptin;
	snprintf(d->info.name, sizeof(d->info.name), "%.*s", (int)sizeof(d->info.name) - 1, p.name);
	d->info.memory = p.totalGlobalMem;
	d->info.units = (unsigned)p.multiProcessorCount;
	d->info.capability = (unsigned)d->capability;
	if (d->capability >= 80)
		return 0;
	snprintf(why, MFK_WHY, "%.100s has compute capability %d.%d, at least 8.0 is needed",
		 d->info.name, p.major, p.minor);
	return -ENODEV;
}

static int device_open(int index, unsigned threads, struct mfk_device **ret, char *why)
{
	int count = 0, rc = count_devices(&count, why);
	struct mfk_device *d;
	cudaError_t made;

	(void)threads;
	if (rc)
		return rc;
	if (index < 0 || index >= count) {
		snprintf(why, MFK_WHY, "there is no GPU %d: this machine has %d", index, count);
		return -ENODEV;
	}
	d = calloc(1, sizeof(*d));
	if (!d) {
		snprintf(why, MFK_WHY, "out of memory");
		return -ENOMEM;
	}
	d->index = index;
	rc = describe(d, why);
	if (!rc) {
		made = cudaSetDevice(index);
		if (made != cudaSuccess)
			rc = refuse(made, "the GPU cannot be used", why);
	}
	if (rc)
		free(d);
	else
		*ret = d;
	return rc;
}

static void device_close(struct mfk_device *d)
{
	free(d);
}

static void device_info(struct mfk_device *d, struct mfk_device_info *ret)
{
	size_t left = 0, all = 0;

	*ret = d->info;
	cudaSetDevice(d->index);
	if (cudaMemGetInfo(&left, &all) == cudaSuccess) {
		ret->free = left;
		ret->memory = all;
	} else {
		cudaGetLastError();
	}
}

static void *device_alloc(struct mfk_device *d, size_t bytes)
{
	void *p;

	cudaSetDevice(d->index);
	p = mfk_cuda_comm_alloc(bytes ? bytes : 1);
	if (p)
		return p;
	if (cudaMalloc(&p, bytes ? bytes : 1) == cudaSuccess)
		return p;
	cudaGetLastError();
	return NULL;
}

static void device_free(struct mfk_device *d, void *p)
{
	cudaSetDevice(d->index);
	if (!mfk_cuda_comm_dealloc(p))
		cudaFree(p);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/*
 * Memory of mmap(), which O_DIRECT and io_uring can use as well as the GPU. Its pages are made
 * before it is registered, which lets nobody else call CUDA meanwhile: 8 MiB take 0.2 ms so, and
 * 1.3 ms with pages that CUDA has to wait for. A kernel that does not know how makes them then.
 */
static void *host_alloc(struct mfk_device *d, size_t bytes)
{
	void *p;

	bytes = bytes ? bytes : 1;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_HUGEPAGE);
	madvise(p, bytes, MADV_POPULATE_WRITE);
	cudaSetDevice(d->index);
	if (cudaHostRegister(p, bytes, cudaHostRegisterPortable) == cudaSuccess)
		return p;
	cudaGetLastError();
	munmap(p, bytes);
	return NULL;
}

static void host_free(struct mfk_device *d, void *p, size_t bytes)
{
	if (!p)
		return;
	cudaSetDevice(d->index);
	if (cudaHostUnregister(p) != cudaSuccess)
		cudaGetLastError();
	munmap(p, bytes ? bytes : 1);
}

/* ---- errors of contexts ---- */

void mfk_cuda_fail(struct mfk_ctx *c, int rc, const char *format, ...)
{
	va_list args;

	if (c->rc)
		return;
	c->rc = rc;
	va_start(args, format);
	vsnprintf(c->why, sizeof(c->why), format, args);
	va_end(args);
}

bool mfk_cuda_check(struct mfk_ctx *c, cudaError_t rc, const char *what)
{
	if (rc == cudaSuccess)
		return true;
	cudaGetLastError();
	mfk_cuda_fail(c, mfk_cuda_errno(rc), "%s: %s", what, cudaGetErrorString(rc));
	return false;
}

bool mfk_cuda_begin(struct mfk_ctx *c)
{
	return !c->rc && mfk_cuda_check(c, cudaSetDevice(c->device->index), "cudaSetDevice");
}

void mfk_cuda_end(struct mfk_ctx *c, const char *what)
{
	mfk_cuda_check(c, cudaGetLastError(), what);
}

static cudaError_t wait_stream(void *stream)
{
	return cudaStreamSynchronize(stream);
}

static cudaError_t ask_stream(void *stream)
{
	return cudaStreamQuery(stream);
}

bool mfk_cuda_wait_all(struct mfk_ctx *c, const char *what)
{
	cudaError_t met = cudaSuccess;
	char why[MFK_WHY];

	if (!mfk_cuda_wait(wait_stream, ask_stream, c->stream, &met, why))
		return mfk_cuda_check(c, met, what);
	mfk_cuda_fail(c, -EIO, "%s", why);
	return false;
}

void *mfk_cuda_scratch(struct mfk_ctx *c, size_t bytes, const char *what)
{
	size_t want = c->scratch_bytes ? c->scratch_bytes : (size_t)4 << 20;

	if (bytes <= c->scratch_bytes)
		return c->scratch;
	while (want < bytes)
		want *= 2;
	/* Waits for operations that use the old one. */
	cudaFree(c->scratch);
	c->scratch = NULL;
	c->scratch_bytes = 0;
	if (!mfk_cuda_check(c, cudaMalloc(&c->scratch, want), what))
		return NULL;
	c->scratch_bytes = want;
	return c->scratch;
}

static void report_fault(struct mfk_ctx *c)
{
	static const char *const what[] = {
		[MFK_FAULT_NONE] = "",
		[MFK_FAULT_TOKEN] = "token %d is not in the vocabulary",
		[MFK_FAULT_POSITION] = "position %d has no embedding",
		[MFK_FAULT_LABEL] = "label %d is not in the vocabulary",
	};
	uint64_t fault = __atomic_exchange_n(c->fault, 0, __ATOMIC_RELAXED);
	char why[MFK_WHY];

	if (!fault)
		return;
	snprintf(why, sizeof(why), what[fault >> 32], (int32_t)(uint32_t)fault);
	mfk_cuda_fail(c, -EINVAL, "%s", why);
}

/* ---- contexts ---- */

static void ctx_free(struct mfk_ctx *c)
{
	if (!c)
		return;
	cudaSetDevice(c->device->index);
	if (c->stream)
		cudaStreamSynchronize(c->stream);
	if (c->gemm_free)
		c->gemm_free(c);
	cudaFree(c->scratch);
	if (c->fault)
		cudaFreeHost(c->fault);
	if (c->stream)
		cudaStreamDestroy(c->stream);
	/* Of a context that has failed, these calls fail too. */
	cudaGetLastError();
	free(c);
}

static int ctx_new(struct mfk_device *d, bool background, struct mfk_ctx **ret, char *why)
{
	struct mfk_ctx *c = calloc(1, sizeof(*c));
	int least = 0, greatest = 0;
	cudaError_t rc;

	if (!c) {
		snprintf(why, MFK_WHY, "out of memory");
		return -ENOMEM;
	}
	c->device = d;
	c->background = background;
	rc = cudaSetDevice(d->index);
	if (rc == cudaSuccess)
		rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
	if (rc == cudaSuccess)
		rc = cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking,
						  background ? least : greatest);
	if (rc == cudaSuccess)
		rc = cudaHostAlloc((void **)&c->fault, sizeof(*c->fault), cudaHostAllocPortable);
	if (rc != cudaSuccess) {
		ctx_free(c);
		return refuse(rc, "a stream of the GPU cannot be made", why);
	}
	*c->fault = 0;
	*ret = c;
	return 0;
}

static int ctx_sync(struct mfk_ctx *c, char *why)
{
	cudaSetDevice(c->device->index);
	mfk_cuda_wait_all(c, "the GPU");
	report_fault(c);
	if (c->rc)
		snprintf(why, MFK_WHY, "%s", c->why);
	return c->rc;
}

/* ---- events ---- */

static int event_new(struct mfk_device *d, struct mfk_event **ret)
{
	struct mfk_event *e = calloc(1, sizeof(*e));
	cudaError_t rc;

	if (!e)
		return -ENOMEM;
	e->device = d->index;
	cudaSetDevice(d->index);
	rc = cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming | cudaEventBlockingSync);
	if (rc != cudaSuccess) {
		cudaGetLastError();
		free(e);
		return mfk_cuda_errno(rc);
	}
	pthread_mutex_init(&e->lock, NULL);
	*ret = e;
	return 0;
}

static void event_free(struct mfk_event *e)
{
	if (!e)
		return;
	cudaSetDevice(e->device);
	cudaEventDestroy(e->event);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static void event_record(struct mfk_ctx *c, struct mfk_event *e)
{
	if (mfk_cuda_begin(c))
		mfk_cuda_check(c, cudaEventRecord(e->event, c->stream), "an event");
	pthread_mutex_lock(&e->lock);
	e->rc = c->rc;
	memcpy(e->why, c->why, MFK_WHY);
	pthread_mutex_unlock(&e->lock);
}

/* What a failed context did not do must not pass for done: a call that waits for it fails, too. */
static int event_failed(struct mfk_event *e, char *why)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = e->rc;
	if (rc)
		memcpy(why, e->why, MFK_WHY);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static void event_wait(struct mfk_ctx *c, struct mfk_event *e)
{
	char why[MFK_WHY];
	const int rc = event_failed(e, why);

	if (rc)
		mfk_cuda_fail(c, rc, "%s", why);
	else if (mfk_cuda_begin(c))
		mfk_cuda_check(c, cudaStreamWaitEvent(c->stream, e->event, 0), "an event");
}

static cudaError_t wait_event(void *event)
{
	return cudaEventSynchronize(event);
}

static cudaError_t ask_event(void *event)
{
	return cudaEventQuery(event);
}

static int event_sync(struct mfk_event *e, char *why)
{
	cudaError_t met = cudaSuccess;
	int rc = event_failed(e, why);

	cudaSetDevice(e->device);
	if (!rc)
		rc = mfk_cuda_wait(wait_event, ask_event, e->event, &met, why);
	if (rc)
		return rc;
	return met == cudaSuccess ? 0 : refuse(met, "the GPU", why);
}

/* ---- copies ---- */

static void copy(struct mfk_ctx *c, void *to, const void *from, size_t bytes)
{
	if (bytes && mfk_cuda_begin(c))
		mfk_cuda_check(
			c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream),
			"a copy on the GPU");
}

static void copy_in(struct mfk_ctx *c, void *to, const void *host, size_t bytes)
{
	if (bytes && mfk_cuda_begin(c))
		mfk_cuda_check(c,
			       cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, c->stream),
			       "a copy to the GPU");
}

/* Where kernels write host memory; NULL: it is not pinned. */
static void *seen_by_kernels(void *host)
{
	struct cudaPointerAttributes of;

	if (cudaPointerGetAttributes(&of, host) != cudaSuccess) {
		cudaGetLastError();
		return NULL;
	}
	return of.type == cudaMemoryTypeHost ? of.devicePointer : NULL;
}

/*
 * The copy engine takes the copies of one stream as long as there are some: a loss of 8 bytes
 * waited until all 16 GiB of a save were copied, and the step's kernels with it (186 ms on an
 * H200). What is small is therefore written by a kernel, except in the context of a save's own
 * copies.
 */
#define SMALL_COPY 65536 /* bytes */

static void copy_out(struct mfk_ctx *c, void *host, const void *from, size_t bytes)
{
	void *to;

	if (!bytes || !mfk_cuda_begin(c))
		return;
	to = bytes <= SMALL_COPY && !c->background ? seen_by_kernels(host) : NULL;
	if (to)
		mfk_cuda_copy_small(c, to, from, bytes);
	else
		mfk_cuda_check(
			c, cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, c->stream),
			"a copy from the GPU");
}

static void stamp(struct mfk_ctx *c, int64_t *ns)
{
	void *to;

	if (!mfk_cuda_begin(c))
		return;
	to = seen_by_kernels(ns);
	if (to)
		mfk_cuda_stamp(c, to);
	else
		mfk_cuda_fail(c, -EINVAL, "a stamp: its memory is not pinned");
}

static void zero(struct mfk_ctx *c, void *p, size_t bytes)
{
	if (bytes && mfk_cuda_begin(c))
		mfk_cuda_check(c, cudaMemsetAsync(p, 0, bytes, c->stream), "zeros");
}

const struct mfk_device_ops mfk_cuda_device = {
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
	.copy_in = copy_in,
	.copy_out = copy_out,
	.zero = zero,
};
