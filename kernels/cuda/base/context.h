/*
 * What the files of the CUDA backend share: devices, contexts, errors and scratch memory.
 *
 * An operation is written so:
 *
 *	static void op(struct mfk_ctx *c, const struct mfk_op *a)
 *	{
 *		if (!mfk_cuda_begin(c))
 *			return;
 *		kernel<<<blocks, threads, 0, c->stream>>>(...);
 *		mfk_cuda_end(c, "op");
 *	}
 */
#ifndef MFK_CUDA_CONTEXT_H
#define MFK_CUDA_CONTEXT_H

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mfk_device {
	int index;
	struct mfk_device_info info; /* without free */
	int capability;		     /* 90 for sm_90 */
	int multiprocessors;
	size_t shared_optin; /* bytes of shared memory that a block may have */
};

/* A token that is none, say: what a kernel found wrong. */
enum mfk_cuda_fault {
	MFK_FAULT_NONE,
	MFK_FAULT_TOKEN, /* the value is the token */
	MFK_FAULT_POSITION,
	MFK_FAULT_LABEL,
};

struct mfk_cuda_gemm; /* gemm/gemm.c: cublasLt, its workspace, the algorithms that it has chosen */

struct mfk_ctx {
	struct mfk_device *device;
	cudaStream_t stream;
	bool background;
	int rc; /* of the first operation that failed, 0: none has */
	char why[MFK_WHY];
	/* Host memory that kernels write to: the last fault << 32 | its value. */
	uint64_t *fault;
	/* Memory that each operation may use from begin to end: its stream orders who does. */
	void *scratch;
	size_t scratch_bytes;
	struct mfk_cuda_gemm *gemm;
	void (*gemm_free)(struct mfk_ctx *c); /* NULL: there is none yet */
};

/* Makes the context's device the thread's. False: the context has failed, and nothing is done. */
bool mfk_cuda_begin(struct mfk_ctx *c);
/* The context has failed with the sentence, if it had not before. */
void mfk_cuda_fail(struct mfk_ctx *c, int rc, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Fails the context if rc is an error. what: the operation's name. False: it is one. */
bool mfk_cuda_check(struct mfk_ctx *c, cudaError_t rc, const char *what);
/* Waits for what the context has been given. False: it has failed. what: the operation's name. */
bool mfk_cuda_wait_all(struct mfk_ctx *c, const char *what);
/* Looks whether the launches since begin have worked. */
void mfk_cuda_end(struct mfk_ctx *c, const char *what);
/* At least bytes of device memory, aligned to 256; whatever was there before is gone. NULL: the
 * context has failed. */
void *mfk_cuda_scratch(struct mfk_ctx *c, size_t bytes, const char *what);

/* -errno of an error of CUDA's. */
int mfk_cuda_errno(cudaError_t rc);

/* comm.c: waits for a stream or an event, of, and *ret is what that has met. wait is one of CUDA's
 * functions that return when it is done, ask one that says cudaErrorNotReady at once. -EIO: another
 * process has ended, so that this might never be done, and why says which. */
int mfk_cuda_wait(cudaError_t (*wait)(void *of), cudaError_t (*ask)(void *of), void *of,
		  cudaError_t *ret, char *why);

/* comm.c: device memory that is registered with NCCL in all groups that are open, which reads and
 * writes it in place then. NULL: there is no group, or NCCL cannot; any other memory will do. */
void *mfk_cuda_comm_alloc(size_t bytes);
/* Frees memory of mfk_cuda_comm_alloc(). False: p is other memory, and nothing was freed. */
bool mfk_cuda_comm_dealloc(void *p);

/* copy.cu: of few bytes, by a kernel. to: where kernels see memory of the host. */
void mfk_cuda_copy_small(struct mfk_ctx *c, void *to, const void *from, size_t bytes);
/* stamp.cu: to is such a place, of an int64_t. */
void mfk_cuda_stamp(struct mfk_ctx *c, void *to);

extern const struct mfk_device_ops mfk_cuda_device;
extern const struct mfk_comm_ops mfk_cuda_comm;
/* The plugin's only symbol. */
extern const struct mfk_backend mfk_cuda_backend __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif

#endif
