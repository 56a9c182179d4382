/*
 * The gradient of attention on sm_90's own tensor cores. As flash.cuh's backward, it computes the
 * scores twice, so that nothing is added across blocks and the same inputs give the same bits:
 *
 *   hopper_kv  owns keys: dk, dv, over all queries that see them, of all heads of the group
 *   hopper_q   owns queries: dq
 *
 * A block has one warpgroup that copies, and some that multiply, of 64 rows each: of a matrix of
 * scores whose rows are the block's own, and whose columns are N of the other axis at a time.
 * Scores and their gradients stay in registers, where they are rows of the next products. At the
 * end of a step all products are done: with some under way there, nvcc 13.0 would wait for each.
 *
 * Tiles in shared memory are panels of 64 elements of a head, one after the other: all rows of the
 * first, of 128 bytes, swizzled as the copies do; then those of the second.
 */
#ifndef MFK_CUDA_ATTENTION_HOPPER_CUH
#define MFK_CUDA_ATTENTION_HOPPER_CUH

#include "kernels/cuda/attention/flash.cuh"
#include "kernels/cuda/attention/hopper_products.cuh"

#define GROUP_LANES 128 /* threads of a warpgroup */
#define BOX_ROWS    64
#define ROW_BYTES   128
#define SWIZZLED    1024 /* bytes that a swizzle repeats after */

/* Of tensors [batch, seq, heads * D], in boxes of BOX_ROWS rows of a panel. */
struct hopper_maps {
	CUtensorMap q, k, v, dout;
};

/* ---- which rows a block owns ---- */

/* Masked, those with the most work come first, and all heads' together: the last to end are small.
 * Else a head's tiles follow each other, and share the other axis in L2. */
static __device__ __forceinline__ flash_place hopper_place_of(int block, int tiles, int heads,
							      bool causal, bool last_first)
{
	int all = (int)gridDim.x / tiles; /* of all sequences */
	int tile = causal ? block / all : block % tiles;
	int head = causal ? block % all : block / tiles;

	return {last_first ? tiles - 1 - tile : tile, head % heads, head / heads};
}

static __device__ __forceinline__ int hopper_steps(int size, int step)
{
	return (size + step - 1) / step;
}

/* ---- rings of stages ---- */

template <int STAGES> struct hopper_ring {
	int stage = 0;
	uint32_t parity = 0;

	__device__ __forceinline__ void next()
	{
		if (++stage == STAGES) {
			stage = 0;
			parity ^= 1;
		}
	}
};

template <int STAGES> struct hopper_barriers {
	uint64_t own, full[STAGES], empty[STAGES];
};

/* All threads of the block. */
template <int STAGES>
static __device__ __forceinline__ void hopper_begin(hopper_barriers<STAGES> *b, int warps)
{
	if (threadIdx.x == 0) {
		barrier_init(&b->own, 1);
		for (int i = 0; i < STAGES; i++) {
			barrier_init(&b->full[i], 1);
			barrier_init(&b->empty[i], warps);
		}
		fence_async();
	}
	__syncthreads();
}

/* ROWS rows from `row` on, of D elements, of a head. */
template <int ROWS, int D>
static __device__ __forceinline__ void hopper_copy(unsigned char *to, const CUtensorMap *map,
						   uint64_t *bar, int head, int row, int batch)
{
	for (int c = 0; c < D / 64; c++)
		for (int r = 0; r < ROWS; r += BOX_ROWS)
			copy_box(to + (c * ROWS + r) * ROW_BYTES, map, bar, head * D + c * 64,
				 row + r, batch);
}

/* ---- products ---- */

/* s = a warpgroup's 64 rows, of a tile of ROWS, times a tile's N rows. */
template <typename T, int D, int ROWS, int N>
static __device__ __forceinline__ void hopper_scores(float (&s)[N / 2], uint64_t own, uint64_t tile)
{
#pragma unroll
	for (int k = 0; k < D; k += 16) {
		const uint64_t a = own + ((k / 64 * ROWS * ROW_BYTES + k % 64 * 2) >> 4);
		const uint64_t b = tile + ((k / 64 * N * ROW_BYTES + k % 64 * 2) >> 4);

		if (k == 0)
			Products<T, N>::set(s, a, b);
		else
			Products<T, N>::add(s, a, b);
	}
}

/* sum += p, of N columns, rounded, times a tile of N rows: a group of products of its own. */
template <typename T, int D, int N>
static __device__ __forceinline__ void hopper_sum(float (&sum)[D / 2], const float (&p)[N / 2],
						  uint64_t tile)
{
	uint32_t words[N / 16][4];

#pragma unroll
	for (int i = 0; i < N / 4; i++)
		words[i / 4][i % 4] = half2_of<T>::pack(p[i * 2], p[i * 2 + 1]);
	products_begin();
#pragma unroll
	for (int k = 0; k < N; k += 16)
		Products<T, D>::add_rows(sum, words[k / 16], tile + ((k * ROW_BYTES) >> 4));
	products_commit();
}

template <int N> static __device__ __forceinline__ void hopper_clear(float (&d)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		d[i] = 0;
}

/* ---- the end ---- */

/* A warpgroup's 64 rows, times `by`: to is the first row's; so many are there. */
template <typename T, int D>
static __device__ __forceinline__ void hopper_store(void *to, int64_t ld, int rows,
						    const float (&d)[D / 2], float by)
{
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % GROUP_LANES / 32;

#pragma unroll
	for (int h = 0; h < 2; h++) {
		int row = warp * 16 + lane / 4 + h * 8;
		T *at = (T *)to + row * ld;

#pragma unroll
		for (int j = 0; j < D / 8; j += 4) {
			uint32_t w[4];

#pragma unroll
			for (int i = 0; i < 4; i++)
				w[i] = half2_of<T>::pack(d[(j + i) * 4 + h * 2] * by,
							 d[(j + i) * 4 + h * 2 + 1] * by);
			exchange(w);
			if (row < rows)
				*(uint4 *)(at + (j + lane % 4) * 8) =
					make_uint4(w[0], w[1], w[2], w[3]);
		}
	}
}

#endif
