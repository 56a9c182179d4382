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
#ifndef MFK_CUDA_I_H
#define MFK_CUDA_I_H

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

struct mfk_cuda_gemm; /* gemm.c: cublasLt, its workspace and the algorithms that it has chosen */
struct mfk_cuda_attn; /* attention: whatever it keeps for a context; NULL at first */

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
	struct mfk_cuda_attn *attn;
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
/* False: it is not of mfk_cuda_comm_alloc(). */
bool mfk_cuda_comm_dealloc(void *p);

/* copy.cu: of few bytes, by a kernel. to: where kernels see memory of the host. */
void mfk_cuda_copy_small(struct mfk_ctx *c, void *to, const void *from, size_t bytes);
/* stamp.cu: to is such a place, of an int64_t. */
void mfk_cuda_stamp(struct mfk_ctx *c, void *to);

/* ---- the operations, by file ---- */

/* gemm.c; the last in elementwise.cu: c = beta c + bias + product, which is fp32 [m, n], rounded
 * once. product NULL: it is 0, a product over 0 elements. */
void mfk_cuda_gemm(struct mfk_ctx *c, const struct mfk_gemm *a);
void mfk_cuda_gemm_grouped(struct mfk_ctx *c, const struct mfk_gemm_grouped *a);
bool mfk_cuda_gemm_grouped_wants_host(struct mfk_device *d, const struct mfk_gemm_grouped *a);
void mfk_cuda_gemm_act(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a);
void mfk_cuda_gemm_act_backward(struct mfk_ctx *c, const struct mfk_gemm *g,
				const struct mfk_act *a);
void mfk_cuda_gemm_free(struct mfk_ctx *c);
void mfk_cuda_gemm_bias(struct mfk_ctx *c, const struct mfk_gemm *a, const float *product);

/* attention*.cu, attention*.c */
size_t mfk_cuda_attention_scratch(struct mfk_device *d, const struct mfk_attention *a,
				  bool backward);
void mfk_cuda_attention(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_cuda_attention_backward(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_cuda_attention_free(struct mfk_ctx *c);

/* attention_simple.cu: any shape, with dropout, without tensor cores */
size_t mfk_cuda_attention_simple_scratch(const struct mfk_attention *a, bool backward);
void mfk_cuda_attention_simple(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_cuda_attention_simple_backward(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_cuda_attention_join(struct mfk_ctx *c, const struct mfk_attention_join *a);

void mfk_cuda_bias_backward(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *db,
			    const void *dy, int64_t rows, int64_t cols);
void mfk_cuda_norm(struct mfk_ctx *c, const struct mfk_norm *a);
void mfk_cuda_norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a);
void mfk_cuda_qkv(struct mfk_ctx *c, const struct mfk_qkv *a);
void mfk_cuda_qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a);
void mfk_cuda_mla(struct mfk_ctx *c, const struct mfk_mla *a);
void mfk_cuda_mla_backward(struct mfk_ctx *c, const struct mfk_mla *a);
void mfk_cuda_route(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_cuda_route_backward(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_cuda_route_balance(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_cuda_sinkhorn(struct mfk_ctx *c, const struct mfk_sinkhorn *a);
void mfk_cuda_balance_sum(struct mfk_ctx *c, const struct mfk_balance *a);
void mfk_cuda_balance_weigh(struct mfk_ctx *c, const struct mfk_balance *a);
void mfk_cuda_drop(struct mfk_ctx *c, const struct mfk_drop *a);
void mfk_cuda_dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a);
void mfk_cuda_gather(struct mfk_ctx *c, const struct mfk_rows *a);
void mfk_cuda_combine(struct mfk_ctx *c, const struct mfk_rows *a);
void mfk_cuda_group_bias(struct mfk_ctx *c, const struct mfk_group_bias *a);
void mfk_cuda_group_bias_backward(struct mfk_ctx *c, const struct mfk_group_bias *a);
void mfk_cuda_balance_bias(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			   float rate);
void mfk_cuda_act(struct mfk_ctx *c, const struct mfk_act *a);
void mfk_cuda_act_backward(struct mfk_ctx *c, const struct mfk_act *a);
void mfk_cuda_embedding(struct mfk_ctx *c, const struct mfk_embedding *a);
void mfk_cuda_embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a);
void mfk_cuda_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_cuda_cross_entropy_part(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_cuda_cross_entropy_join(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_cuda_dropout(struct mfk_ctx *c, const struct mfk_dropout *a);
void mfk_cuda_dropout_backward(struct mfk_ctx *c, const struct mfk_dropout *a);
void mfk_cuda_add(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		  int64_t count);
void mfk_cuda_scale(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count);
void mfk_cuda_cast(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		   const void *from, int64_t count);
void mfk_cuda_fill_normal(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count,
			  float mean, float std, uint64_t seed, uint64_t offset);
void mfk_cuda_fill(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value);
void mfk_cuda_sum_squares(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			  double *sums);
void mfk_cuda_count_zeros(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			  double *zeros);
void mfk_cuda_weighted_sum(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			   double *sum);
void mfk_cuda_adamw(struct mfk_ctx *c, const struct mfk_adamw *a);
void mfk_cuda_sgd(struct mfk_ctx *c, const struct mfk_sgd *a);

extern const struct mfk_device_ops mfk_cuda_device;
extern const struct mfk_comm_ops mfk_cuda_comm;
/* The plugin's only symbol. */
extern const struct mfk_backend mfk_cuda_backend __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif

#endif
