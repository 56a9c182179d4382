/*
 * What the CPU backend's operations share.
 *
 * An operation cuts its work into parts of a fixed size, and threads take parts. What is computed
 * never depends on which thread takes which part, nor on how many there are: a sum over parts is
 * kept for each part, and added up in their order. A part computes in fp32; mfk_load() and
 * mfk_begin() stand between that and the storage types.
 *
 * Operations run when they are called, so an event has happened when it is recorded.
 */
#ifndef MFK_REF_I_H
#define MFK_REF_I_H

#include <pthread.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* A function whose loops are compiled for what processors have; the sanitizers' runtimes are not up
 * yet when the choice is made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MFK_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MFK_SIMD
#endif
#define MFK_INLINE static inline __attribute__((always_inline))

/* OpenBLAS has buffers for about so many callers at once. */
#define MFK_THREADS_MAX 64

/* ---- threads (pool.c) ---- */

struct mfk_pool;

/* Part [begin, end) of the work; scratch is the thread's own, of as many floats as were asked for.
 */
typedef void mfk_part(const void *arg, int64_t begin, int64_t end, float *scratch);

int mfk_pool_new(unsigned threads, struct mfk_pool **ret);
void mfk_pool_free(struct mfk_pool *p);
unsigned mfk_pool_threads(const struct mfk_pool *p);
/* Runs run(arg, worker) in the caller (worker 0) and, if nobody else uses them, in the pool's
 * threads; returns when all have ended. */
void mfk_pool_run(struct mfk_pool *p, void (*run)(void *arg, unsigned worker), void *arg);

/* ---- devices and contexts (device.c) ---- */

struct mfk_buffer {
	void *p;
	size_t size;
};

struct mfk_ctx {
	struct mfk_device *device;
	bool background;			    /* runs in the caller's thread alone */
	struct mfk_buffer scratch[MFK_THREADS_MAX]; /* of each worker */
	struct mfk_buffer sums;			    /* what mfk_sums() gives */
	bool failed;
	char why[MFK_WHY]; /* the first failure */
};

extern const struct mfk_device_ops mfk_ref_device;

/* Groups of processes (comm.c). */
extern const struct mfk_comm_ops mfk_ref_comm;

/* Calls part for [0, grain), [grain, 2 grain), ... of n, in parallel. scratch: floats for each
 * thread. If there is no memory for them nothing is called, and the context has failed. */
void mfk_parallel(struct mfk_ctx *c, int64_t n, int64_t grain, size_t scratch, mfk_part *part,
		  const void *arg);
/* As many rows in a part as are worth a thread's while. */
int64_t mfk_row_grain(int64_t cols);
/* Elements in a part of operations that look at each element once. */
#define MFK_GRAIN 32768
/* Memory for sums of parts, until the next call; NULL: the context has failed. */
void *mfk_sums(struct mfk_ctx *c, size_t bytes);
/* The context's first failure stays. */
__attribute__((format(printf, 2, 3))) void mfk_fail(struct mfk_ctx *c, const char *fmt, ...);

/* ---- storage types (convert.c) ---- */

void mfk_to_f32(enum mfk_dtype type, const void *from, int64_t count, float *to);
void mfk_from_f32(enum mfk_dtype type, const float *from, int64_t count, void *to);

static inline void *mfk_at(enum mfk_dtype type, const void *base, int64_t element)
{
	return (char *)(uintptr_t)base + (size_t)element * mfk_dtype_size(type);
}

/* Elements as fp32: where they are, or converted into buf. */
static inline const float *mfk_load(enum mfk_dtype type, const void *base, int64_t element,
				    int64_t count, float *buf)
{
	const void *p = mfk_at(type, base, element);

	if (mfk_is_exact(type))
		return p;
	mfk_to_f32(type, p, count, buf);
	return buf;
}

/* Where to write elements as fp32, in place or in buf; mfk_end() rounds those of buf. */
static inline float *mfk_begin(enum mfk_dtype type, void *base, int64_t element, float *buf)
{
	return mfk_is_exact(type) ? mfk_at(type, base, element) : buf;
}

static inline void mfk_end(enum mfk_dtype type, void *base, int64_t element, int64_t count,
			   const float *from)
{
	if (!mfk_is_exact(type))
		mfk_from_f32(type, from, count, mfk_at(type, base, element));
}

/* base[element...] += from, in fp32, rounded once; buf is of count floats. */
void mfk_add_to(enum mfk_dtype type, void *base, int64_t element, int64_t count, const float *from,
		float *buf);

/* ---- products (blas.c, gemm.c) ---- */

/* Before the first product: OpenBLAS takes the kernels that the processor can run. */
void mfk_blas_begin(void);

/* c[m,n] = alpha op(a) op(b) + beta c in fp32, in the calling thread: for parts. */
void mfk_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
	       const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
	       int64_t ldc);

/* ---- random numbers (random.c) ---- */

/* keep[i] is 1 / (1 - p) if dropout keeps the element of the number first + i, else 0. */
void mfk_keep(uint64_t seed, uint64_t first, int64_t count, float p, float *keep);

/* ---- sums over rows (reduce.c) ---- */

/* A sum over rows is kept for each block of rows, and the blocks' sums are added in their order.
 * All depends on the shape alone. */
int64_t mfk_block_rows(int64_t rows, int64_t cols);
/* base[cols] += sum over blocks of sums[block * stride ...]. base NULL: nothing. */
void mfk_add_blocks(struct mfk_ctx *c, enum mfk_dtype type, void *base, int64_t cols,
		    const float *sums, int64_t blocks, int64_t stride);

/* base[cols] += sum over rows of scale[row] dy[row, cols]; scale NULL: 1. */
void mfk_add_rows(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *base,
		  const void *dy, const float *scale, int64_t rows, int64_t cols);

/* ---- operations ---- */

void mfk_ref_gemm(struct mfk_ctx *c, const struct mfk_gemm *a);
void mfk_ref_gemm_grouped(struct mfk_ctx *c, const struct mfk_gemm_grouped *a);
bool mfk_ref_gemm_grouped_wants_host(struct mfk_device *d, const struct mfk_gemm_grouped *a);
void mfk_ref_bias_backward(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *db,
			   const void *dy, int64_t rows, int64_t cols);
void mfk_ref_norm(struct mfk_ctx *c, const struct mfk_norm *a);
void mfk_ref_norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a);
void mfk_ref_qkv(struct mfk_ctx *c, const struct mfk_qkv *a);
void mfk_ref_qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a);
size_t mfk_ref_attention_scratch(struct mfk_device *d, const struct mfk_attention *a,
				 bool backward);
void mfk_ref_attention(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_ref_attention_backward(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_ref_attention_join(struct mfk_ctx *c, const struct mfk_attention_join *a);
void mfk_ref_mla(struct mfk_ctx *c, const struct mfk_mla *a);
void mfk_ref_mla_backward(struct mfk_ctx *c, const struct mfk_mla *a);
void mfk_ref_route(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_ref_route_backward(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_ref_route_balance(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_ref_sinkhorn(struct mfk_ctx *c, const struct mfk_sinkhorn *a);
void mfk_ref_balance_sum(struct mfk_ctx *c, const struct mfk_balance *a);
void mfk_ref_balance_weigh(struct mfk_ctx *c, const struct mfk_balance *a);
void mfk_ref_drop(struct mfk_ctx *c, const struct mfk_drop *a);
void mfk_ref_dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a);
void mfk_ref_gather(struct mfk_ctx *c, const struct mfk_rows *a);
void mfk_ref_combine(struct mfk_ctx *c, const struct mfk_rows *a);
void mfk_ref_group_bias(struct mfk_ctx *c, const struct mfk_group_bias *a);
void mfk_ref_group_bias_backward(struct mfk_ctx *c, const struct mfk_group_bias *a);
void mfk_ref_balance_bias(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			  float rate);
void mfk_ref_act(struct mfk_ctx *c, const struct mfk_act *a);
void mfk_ref_act_backward(struct mfk_ctx *c, const struct mfk_act *a);
void mfk_ref_gemm_act(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a);
void mfk_ref_gemm_act_backward(struct mfk_ctx *c, const struct mfk_gemm *g,
			       const struct mfk_act *a);
void mfk_ref_embedding(struct mfk_ctx *c, const struct mfk_embedding *a);
void mfk_ref_embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a);
void mfk_ref_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_ref_cross_entropy_part(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_ref_cross_entropy_join(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_ref_dropout(struct mfk_ctx *c, const struct mfk_dropout *a);
void mfk_ref_dropout_backward(struct mfk_ctx *c, const struct mfk_dropout *a);
void mfk_ref_add(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		 int64_t count);
void mfk_ref_scale(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count);
void mfk_ref_cast(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		  const void *from, int64_t count);
void mfk_ref_fill(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value);
void mfk_ref_fill_normal(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count,
			 float mean, float std, uint64_t seed, uint64_t offset);
void mfk_ref_sum_squares(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			 double *sums);
void mfk_ref_count_zeros(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			 double *zeros);
void mfk_ref_weighted_sum(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			  double *sum);
void mfk_ref_adamw(struct mfk_ctx *c, const struct mfk_adamw *a);
void mfk_ref_sgd(struct mfk_ctx *c, const struct mfk_sgd *a);
void mfk_ref_momentum(struct mfk_ctx *c, const struct mfk_momentum *a);
void mfk_ref_copy_rows(struct mfk_ctx *c, const struct mfk_copy_rows *a);

#endif
