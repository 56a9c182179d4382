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
/* A few numbers from first on: at most 64. */
void mfk_numbers(uint64_t seed, uint64_t first, int64_t count, uint32_t *ret);

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

/* ---- operations, each in a file of its name or family ---- */

#define OP(name) __typeof__(*((struct mfk_ops *)0)->name) mfk_ref_##name;
MFK_OPS(OP)
#undef OP

#endif
