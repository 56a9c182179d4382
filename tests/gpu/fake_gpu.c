/*
 * What stands in for CUDA and NCCL where there is no GPU: comm.c, nccl.c and device.c of
 * kernels/cuda/base are linked with it to a plugin that check_comm opens, and finds NCCL in.
 * Devices are plain memory, and operations run when they are called.
 *
 * NCCL's processes share a file of memory, with a slot for each. Everything is checked that the
 * real one would mind: ranks, types, messages that do not meet, operations outside of a group.
 *
 * MFK_FAKE_DIES=RANK: the process of that number ends where it first waits, and the others wait
 * for good. MFK_FAKE_ASYNC: they do, and NCCL says that it has met an error.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "formats/numbers/half.h"
#include "kernels/cuda/base/context.h"
#include "kernels/cuda/base/nccl.h"

/* ---- CUDA ---- */

static _Thread_local int current;

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 16;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	current = device;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "no GPU");
	p->major = 9;
	p->multiProcessorCount = 1;
	p->totalGlobalMem = (size_t)1 << 30;
	p->uuid.bytes[0] = (char)device;
	/* Each host has GPUs of its own. */
	gethostname(p->uuid.bytes + 1, sizeof(p->uuid.bytes) - 1);
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *to, int len, int device)
{
	snprintf(to, (size_t)len, "0000:%02x:00.0", device);
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *most)
{
	*left = *most = (size_t)1 << 30;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t rc)
{
	return rc == cudaSuccess ? "no error" : "an error";
}

cudaError_t cudaMalloc(void **p, size_t size)
{
	*p = malloc(size);
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
	free(p);
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags)
{
	(void)flags;
	return cudaMalloc(p, size);
}

cudaError_t cudaFreeHost(void *p)
{
	return cudaFree(p);
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags)
{
	(void)p;
	(void)size;
	(void)flags;
	return cudaSuccess;
}

/* Kernels see all memory. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *of, const void *p)
{
	*of = (struct cudaPointerAttributes){.type = cudaMemoryTypeHost,
					     .device = current,
					     .devicePointer = (void *)(uintptr_t)p,
					     .hostPointer = (void *)(uintptr_t)p};
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
	(void)p;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
	(void)flags;
	(void)priority;
	return cudaMalloc((void **)s, 1);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	return cudaFree(s);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	(void)s;
	return cudaSuccess;
}

static bool is_this(const char *rank)
{
	const char *own = getenv("OMPI_COMM_WORLD_RANK");

	return own && !strcmp(own, rank);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
	const char *dies = getenv("MFK_FAKE_DIES");

	(void)s;
	if (dies && is_this(dies))
		_exit(0); /* mpirun ends the others where one fails */
	return dies || getenv("MFK_FAKE_ASYNC") ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
	(void)flags;
	return cudaMalloc((void **)e, 1);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	return cudaFree(e);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	(void)e;
	(void)s;
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	(void)s;
	(void)e;
	(void)flags;
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	(void)e;
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
	(void)e;
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
			    cudaStream_t s)
{
	(void)kind;
	(void)s;
	memcpy(to, from, size);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t s)
{
	(void)s;
	memset(p, value, size);
	return cudaSuccess;
}

/* What a context has of other files. */
void mfk_cuda_copy_small(struct mfk_ctx *c, void *to, const void *from, size_t bytes)
{
	(void)c;
	memcpy(to, from, bytes);
}

void mfk_cuda_stamp(struct mfk_ctx *c, void *to)
{
	struct timespec now;

	(void)c;
	clock_gettime(CLOCK_MONOTONIC, &now);
	*(int64_t *)to = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

const struct mfk_backend mfk_cuda_backend = {
	.name = "fake", .device = &mfk_cuda_device, .comm = &mfk_cuda_comm};

/* ---- NCCL ---- */

#define EXPORT	__attribute__((visibility("default")))
#define MOST	16
#define SLOT	((size_t)16 << 20)
#define INVALID 4 /* ncclInvalidArgument */
#define USAGE	5 /* ncclInvalidUsage */
#define REMOTE	6 /* ncclRemoteError */

struct shared {
	_Atomic int is_ready;
	pthread_barrier_t barrier;
	char slots[MOST][SLOT];
};

struct ncclComm {
	int rank, size, device;
	struct shared *s;
};

static int made; /* names of memory */

static int meet(struct ncclComm *c)
{
	pthread_barrier_wait(&c->s->barrier);
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclGetVersion(int *version)
{
	*version = 22809;
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(struct mfk_nccl_id *id)
{
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "/mcorefs-fake-%d-%d", (int)getpid(), made++);
	return MFK_NCCL_SUCCESS;
}

static void *map(int fd)
{
	void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static struct shared *create(const char *name, int size)
{
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	pthread_barrierattr_t attr;
	struct shared *s;

	if (fd < 0 || ftruncate(fd, sizeof(*s)) || !(s = map(fd)))
		return NULL;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->barrier, &attr, (unsigned)size);
	atomic_store(&s->is_ready, 1);
	return s;
}

static struct shared *find(const char *name)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct shared *s;
	int fd;

	while ((fd = shm_open(name, O_RDWR, 0)) < 0 || lseek(fd, 0, SEEK_END) == 0) {
		if (fd >= 0)
			close(fd);
		nanosleep(&pause, NULL);
	}
	s = map(fd);
	while (s && !atomic_load(&s->is_ready))
		nanosleep(&pause, NULL);
	return s;
}

EXPORT int ncclCommInitRank(struct ncclComm **ret, int size, struct mfk_nccl_id id, int rank)
{
	struct ncclComm *c = calloc(1, sizeof(*c));

	if (!c || rank < 0 || rank >= size || size > MOST)
		return INVALID;
	*c = (struct ncclComm){.rank = rank, .size = size, .device = current};
	c->s = rank ? find(id.internal) : create(id.internal, size);
	if (!c->s)
		return INVALID;
	meet(c);
	if (!rank)
		shm_unlink(id.internal);
	*ret = c;
	return MFK_NCCL_SUCCESS;
}

struct part {
	int color, key;
	struct mfk_nccl_id id;
};

EXPORT int ncclCommSplit(struct ncclComm *c, int color, int key, struct ncclComm **ret,
			 void *config)
{
	struct part *own = (struct part *)c->s->slots[c->rank];
	int rank = 0, size = 0, first = c->rank;
	struct mfk_nccl_id id;

	if (color < 0 || config)
		return INVALID;
	*own = (struct part){.color = color, .key = key};
	ncclGetUniqueId(&own->id);
	meet(c);
	for (int i = 0; i < c->size; i++) {
		const struct part *p = (struct part *)c->s->slots[i];
		const struct part *f = (struct part *)c->s->slots[first];

		if (p->color != color)
			continue;
		size++;
		rank += p->key < key || (p->key == key && i < c->rank);
		if (p->key < f->key || (p->key == f->key && i < first))
			first = i;
	}
	id = ((struct part *)c->s->slots[first])->id;
	meet(c);
	return ncclCommInitRank(ret, size, id, rank);
}

/* ---- memory that is used in place ---- */

#define OWN 64 /* bytes before each block, which cudaFree() would find */

EXPORT int ncclMemAlloc(void **ret, size_t bytes)
{
	char *p = aligned_alloc(OWN, (OWN + bytes + OWN - 1) / OWN * OWN);

	*ret = p ? p + OWN : NULL;
	return p ? MFK_NCCL_SUCCESS : REMOTE;
}

EXPORT int ncclMemFree(void *p)
{
	free((char *)p - OWN);
	return MFK_NCCL_SUCCESS;
}

/* A handle is a byte of the heap: one that is used twice is found by the sanitizer. */
EXPORT int ncclCommRegister(const struct ncclComm *c, void *p, size_t bytes, void **handle)
{
	*handle = c && p && bytes ? malloc(1) : NULL;
	return *handle ? MFK_NCCL_SUCCESS : INVALID;
}

EXPORT int ncclCommDeregister(const struct ncclComm *c, void *handle)
{
	if (!c || !handle)
		abort();
	free(handle);
	return MFK_NCCL_SUCCESS;
}

/* As the real one, it waits for the others. */
EXPORT int ncclCommDestroy(struct ncclComm *c)
{
	meet(c);
	munmap(c->s, sizeof(*c->s));
	free(c);
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclCommAbort(struct ncclComm *c)
{
	munmap(c->s, sizeof(*c->s));
	free(c);
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclCommCount(const struct ncclComm *c, int *count)
{
	*count = c->size;
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclCommUserRank(const struct ncclComm *c, int *rank)
{
	*rank = c->rank;
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclCommGetAsyncError(struct ncclComm *c, int *error)
{
	(void)c;
	*error = getenv("MFK_FAKE_ASYNC") ? REMOTE : MFK_NCCL_SUCCESS;
	return MFK_NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int rc)
{
	return rc == INVALID ? "invalid argument"
	       : rc == USAGE ? "invalid usage"
			     : "remote process exited or there was a network error";
}

EXPORT const char *ncclGetLastError(struct ncclComm *c)
{
	(void)c;
	return "";
}

/* ---- operations ---- */

static size_t size_of(int type)
{
	return type == MFK_NCCL_FLOAT32				       ? 4
	       : type == MFK_NCCL_FLOAT16 || type == MFK_NCCL_BFLOAT16 ? 2
	       : type == MFK_NCCL_INT8				       ? 1
								       : 0;
}

static float get(int type, const void *at, size_t i)
{
	if (type == MFK_NCCL_FLOAT32)
		return ((const float *)at)[i];
	return type == MFK_NCCL_FLOAT16 ? mfs_f16_to_float(((const uint16_t *)at)[i])
					: mfs_bf16_to_float(((const uint16_t *)at)[i]);
}

static void put(int type, void *at, size_t i, float x)
{
	if (type == MFK_NCCL_FLOAT32)
		((float *)at)[i] = x;
	else
		((uint16_t *)at)[i] =
			type == MFK_NCCL_FLOAT16 ? mfs_float_to_f16(x) : mfs_float_to_bf16(x);
}

/* Rounded at each addition, from the last rank on. */
static void reduce(const struct ncclComm *c, void *to, size_t first, size_t count, int type, int op)
{
	for (size_t i = 0; i < count; i++) {
		put(type, to, i, get(type, c->s->slots[c->size - 1], first + i));
		for (int rank = c->size - 1; rank-- > 0;) {
			const float a = get(type, to, i),
				    b = get(type, c->s->slots[rank], first + i);

			put(type, to, i, op == MFK_NCCL_SUM ? a + b : a > b ? a : b);
		}
	}
}

static bool is_wrong(const struct ncclComm *c, size_t bytes, int type, int op, cudaStream_t s)
{
	return !s || current != c->device || !size_of(type) || bytes > SLOT ||
	       (op != MFK_NCCL_SUM && op != MFK_NCCL_MAX);
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
			 struct ncclComm *c, cudaStream_t s)
{
	if (is_wrong(c, count * size_of(type), type, op, s))
		return INVALID;
	memcpy(c->s->slots[c->rank], from, count * size_of(type));
	meet(c);
	reduce(c, to, 0, count, type, op);
	return meet(c);
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op,
			     struct ncclComm *c, cudaStream_t s)
{
	const size_t bytes = count * size_of(type) * (size_t)c->size;

	if (is_wrong(c, bytes, type, op, s))
		return INVALID;
	memcpy(c->s->slots[c->rank], from, bytes);
	meet(c);
	reduce(c, to, count * (size_t)c->rank, count, type, op);
	return meet(c);
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *c,
			 cudaStream_t s)
{
	const size_t bytes = count * size_of(type);

	if (is_wrong(c, bytes, type, MFK_NCCL_SUM, s))
		return INVALID;
	memcpy(c->s->slots[c->rank], from, bytes);
	meet(c);
	for (int rank = 0; rank < c->size; rank++)
		memcpy((char *)to + bytes * (size_t)rank, c->s->slots[rank], bytes);
	return meet(c);
}

/* ---- messages ---- */

/* Of one group of calls, in their order. */
static struct call {
	bool receives;
	void *data;
	size_t bytes;
	int peer;
	struct ncclComm *comm;
} calls[256];
static int call_count;
static bool in_group;

static int add_call(struct call call, int type, cudaStream_t s)
{
	if (!in_group || call_count == 256 || call.peer == call.comm->rank)
		return USAGE;
	if (is_wrong(call.comm, call.bytes, type, MFK_NCCL_SUM, s) || call.peer < 0 ||
	    call.peer >= call.comm->size)
		return INVALID;
	calls[call_count++] = call;
	return MFK_NCCL_SUCCESS;
}

EXPORT int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *c,
		    cudaStream_t s)
{
	return add_call((struct call){false, (void *)from, count * size_of(type), peer, c}, type,
			s);
}

EXPORT int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *c, cudaStream_t s)
{
	return add_call((struct call){true, to, count * size_of(type), peer, c}, type, s);
}

EXPORT int ncclGroupStart(void)
{
	if (in_group)
		return USAGE;
	in_group = true;
	call_count = 0;
	return MFK_NCCL_SUCCESS;
}

/* A message in a slot, followed by its bytes. The last one has no bytes. */
struct letter {
	size_t bytes;
	int to;
};

static void post(struct ncclComm *c)
{
	char *at = c->s->slots[c->rank];
	struct letter last = {0};

	for (int i = 0; i < call_count; i++) {
		const struct letter l = {calls[i].bytes, calls[i].peer};

		if (calls[i].receives)
			continue;
		memcpy(at, &l, sizeof(l));
		memcpy(at + sizeof(l), calls[i].data, l.bytes);
		at += sizeof(l) + l.bytes;
	}
	memcpy(at, &last, sizeof(last));
}

/* The next letter to this process from *at on. NULL: there is none. */
static const char *next_letter(const struct ncclComm *c, const char **at, size_t *bytes)
{
	struct letter l;

	for (;;) {
		const char *data = *at + sizeof(l);

		memcpy(&l, *at, sizeof(l));
		if (!l.bytes)
			return NULL;
		*at = data + l.bytes;
		*bytes = l.bytes;
		if (l.to == c->rank)
			return data;
	}
}

static int deliver(struct ncclComm *c)
{
	const char *at[MOST];
	size_t bytes;

	for (int i = 0; i < c->size; i++)
		at[i] = c->s->slots[i];
	for (int i = 0; i < call_count; i++) {
		const char *data;

		if (!calls[i].receives)
			continue;
		data = next_letter(c, &at[calls[i].peer], &bytes);
		if (!data || bytes != calls[i].bytes)
			return USAGE;
		memcpy(calls[i].data, data, bytes);
	}
	for (int i = 0; i < c->size; i++)
		if (next_letter(c, &at[i], &bytes))
			return USAGE; /* that nobody receives */
	return MFK_NCCL_SUCCESS;
}

/* All processes of the communicator have a group of calls at once. */
EXPORT int ncclGroupEnd(void)
{
	struct ncclComm *c = call_count ? calls[0].comm : NULL;
	int rc;

	if (!in_group)
		return USAGE;
	in_group = false;
	if (!c)
		return MFK_NCCL_SUCCESS;
	post(c);
	meet(c);
	rc = deliver(c);
	meet(c);
	return rc;
}
