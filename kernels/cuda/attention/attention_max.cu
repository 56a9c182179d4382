/*
 * The largest score of each head, in fp32 without tensor cores. A block has a tile of queries and
 * goes over the keys that one of them sees, tile after tile; a thread has EACH x EACH scores.
 */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#define TILE	64
#define EACH	4
#define DEPTH	32 /* elements of rows that are in shared memory at a time */
#define THREADS (TILE / EACH * TILE / EACH)

/* Elements [d, d + DEPTH) of rows [begin, begin + TILE) of a head, transposed; zeros beyond. */
template <typename T>
static __device__ __forceinline__ void fetch(float (*to)[TILE + EACH], const T *head, int64_t ld,
					     int64_t begin, int64_t rows, int64_t d, int64_t dim)
{
	for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
		const int64_t row = begin + i / DEPTH, col = d + i % DEPTH;

		to[i % DEPTH][i / DEPTH] =
			row < rows && col < dim ? to_float(head[row * ld + col]) : 0.f;
	}
}

static __device__ __forceinline__ bool sees(const mfk_attention &a, int64_t batch, int64_t i,
					    int64_t j)
{
	if (i >= a.seq || j >= a.seq)
		return false;
	return !a.causal || (j <= i && (!a.first_key || j >= a.first_key[batch * a.seq + i]));
}

/* Scores are compared as the bits of floats that are not negative. */
static __device__ __forceinline__ void note(float *max, float most)
{
	most = lane_max(most);
	if (threadIdx.x % 32 == 0 && most > 0.f)
		atomicMax(reinterpret_cast<int *>(max), __float_as_int(most));
}

/* Block (tile of queries, head of a sequence). */
template <typename T>
static __global__ void __launch_bounds__(THREADS) largest(mfk_attention a, float *max)
{
	__shared__ float q[DEPTH][TILE + EACH], k[DEPTH][TILE + EACH];
	const int64_t batch = blockIdx.y / a.heads, head = blockIdx.y % a.heads;
	const int64_t q_ld = a.heads * a.qk_dim, k_ld = a.kv_heads * a.qk_dim;
	const int64_t q0 = static_cast<int64_t>(blockIdx.x) * TILE;
	const T *queries = static_cast<const T *>(a.q) + batch * a.seq * q_ld + head * a.qk_dim;
	const T *keys = static_cast<const T *>(a.k) + batch * a.seq * k_ld +
			head / (a.heads / a.kv_heads) * a.qk_dim;
	const int row = threadIdx.x / (TILE / EACH) * EACH,
		  col = threadIdx.x % (TILE / EACH) * EACH;
	float most = 0.f;

	for (int64_t k0 = 0; k0 < (a.causal ? min(q0 + TILE, a.seq) : a.seq); k0 += TILE) {
		float sum[EACH][EACH] = {};

		for (int64_t d = 0; d < a.qk_dim; d += DEPTH) {
			__syncthreads();
			fetch(q, queries, q_ld, q0, a.seq, d, a.qk_dim);
			fetch(k, keys, k_ld, k0, a.seq, d, a.qk_dim);
			__syncthreads();
			for (int e = 0; e < DEPTH; e++)
#pragma unroll
				for (int i = 0; i < EACH * EACH; i++)
					sum[i / EACH][i % EACH] +=
						q[e][row + i / EACH] * k[e][col + i % EACH];
		}
#pragma unroll
		for (int i = 0; i < EACH * EACH; i++)
			if (sees(a, batch, q0 + row + i / EACH, k0 + col + i % EACH))
				most = fmaxf(most, a.scale * sum[i / EACH][i % EACH]);
	}
	note(max + head, most);
}

void mfk_cuda_attention_max(struct mfk_ctx *c, const struct mfk_attention *a, float *max)
{
	const dim3 blocks(static_cast<unsigned>((a->seq + TILE - 1) / TILE),
			  static_cast<unsigned>(a->batch * a->heads));

	if (a->seq <= 0 || a->batch <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		largest<T><<<blocks, THREADS, 0, c->stream>>>(*a, max);
	});
	mfk_cuda_end(c, "attention_max");
}
