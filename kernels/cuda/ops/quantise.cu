/*
 * Numbers become elements of 8 bits (kernels.h: struct mfk_quantise): the greatest of them, and the
 * matrix with its transposed one.
 *
 * A block has tiles of 128 rows and columns, each in one group. A thread loads 16 numbers of a row,
 * stores their codes as 16 bytes of q, and puts them into shared memory; then it takes 16 rows of
 * four columns from there, turns them in registers, and stores 16 bytes of each of the columns. So
 * both ways eight threads next to each other write 128 bytes.
 */
#include <cuda_fp8.h>

#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"
#include "kernels/cuda/ops/ops.h"
#include "kernels/eight_bits.h"

#define TILE	128
#define EACH	16	      /* numbers of a row that a thread has at once, and rows of a column */
#define ACROSS	(TILE / EACH) /* threads of a row */
#define THREADS 256
#define ROUNDS	(TILE * ACROSS / THREADS) /* rows of a thread */

/* ---- tiles ---- */

struct tile {
	int64_t group;
	int64_t row, col;   /* the first, of x */
	int64_t rows, cols; /* that there are; rows 0: there is no such tile */
	int64_t column;	    /* in qt */
};

/* Tiles of rows of all groups, at most. */
static int64_t tiles_down(const struct mfk_quantise *a)
{
	return ceil_div(a->rows, TILE) + a->groups;
}

/* The first tile of a group, whose columns begin at mfk_group_column(). */
static __device__ __forceinline__ int64_t first_tile(const mfk_quantise &a, int64_t group)
{
	return (a.offsets[group] + TILE - 1) / TILE + group;
}

static __device__ __forceinline__ int64_t group_at(const mfk_quantise &a, int64_t down)
{
	int64_t low = 0, high = a.groups;

	while (high - low > 1) {
		const int64_t middle = (low + high) / 2;

		if (first_tile(a, middle) <= down)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Tile number `down` of rows, and `across` of columns. */
static __device__ struct tile tile_at(const mfk_quantise &a, int64_t down, int64_t across)
{
	struct tile t = {0, down * TILE, across * TILE, a.rows, 0, down * TILE};

	if (a.groups) {
		t.group = group_at(a, down);
		down -= first_tile(a, t.group);
		t.row = a.offsets[t.group] + down * TILE;
		t.rows = a.offsets[t.group + 1];
		t.column = mfk_group_column(a.offsets[t.group], t.group) + down * TILE;
	}
	t.rows = t.rows > t.row ? t.rows - t.row : 0;
	t.rows = t.rows < TILE ? t.rows : TILE;
	t.cols = a.cols - t.col < TILE ? a.cols - t.col : TILE;
	return t;
}

/* The thread's numbers of all its rows of the tile: those that are not there are 0. All are asked
 * for before the first is used. */
template <typename T> struct numbers {
	Raw<T, EACH> raw[ROUNDS];

	__device__ __forceinline__ numbers(const mfk_quantise &a, const struct tile &t, bool wide)
	{
		const int col = threadIdx.x % ACROSS * EACH;
		const T *p = static_cast<const T *>(a.x) + t.row * a.ld + t.col + col;

#pragma unroll
		for (int i = 0; i < ROUNDS; i++) {
			const int row = row_of(i);
			const int64_t left = row < t.rows && col < t.cols ? t.cols - col : 0;

			raw[i] = load_raw<EACH>(p + (left ? row * a.ld : 0), left, wide);
		}
	}

	static __device__ __forceinline__ int row_of(int round)
	{
		return threadIdx.x / ACROSS + round * (THREADS / ACROSS);
	}
};

/* ---- the greatest ---- */

/* Of the block's threads: it goes to where all blocks' does. Bits of floats from 0 on are ordered
 * as the floats are, and the greatest does not depend on an order. fmaxf passes over a NaN. */
static __device__ __forceinline__ void raise_amax(float most, struct mfk_scale *s)
{
	most = lane_max(most);
	if (threadIdx.x % 32 == 0 && most > 0.f)
		atomicMax(reinterpret_cast<int *>(&s->amax), __float_as_int(most));
}

static __device__ __forceinline__ float greatest_of(const float *v)
{
	float most = 0.f;

#pragma unroll
	for (int i = 0; i < EACH; i++)
		most = fmaxf(most, fabsf(v[i]));
	return most;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) amax_kernel(mfk_quantise a, bool wide)
{
	const struct tile t = tile_at(a, blockIdx.x, blockIdx.y);
	float most = 0.f, v[EACH];

	if (!t.rows)
		return;
	const numbers<T> all(a, t, wide);
#pragma unroll
	for (int i = 0; i < ROUNDS; i++) {
		unpack(v, all.raw[i]);
		most = fmaxf(most, greatest_of(v));
	}
	raise_amax(most, &a.scales[t.group]);
}

/* Rows of words that are 16 bytes apart. */
static bool clear_amax(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	return mfk_cuda_check(
		c,
		cudaMemset2DAsync(&a->scales->amax, sizeof(*a->scales), 0, sizeof(a->scales->amax),
				  static_cast<size_t>(a->groups ? a->groups : 1), c->stream),
		"amax");
}

/* One block at least, which makes the scales. */
static dim3 grid_of(const struct mfk_quantise *a)
{
	const int64_t down = tiles_down(a), across = ceil_div(a->cols, TILE);

	return dim3(static_cast<unsigned>(down > 0 ? down : 1),
		    static_cast<unsigned>(across > 0 ? across : 1));
}

static bool is_wide(const struct mfk_quantise *a)
{
	return a->ld % MFK_N == 0 && aligned(a->x);
}

void mfk_cuda_amax(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	if (!mfk_cuda_begin(c) || !clear_amax(c, a) || a->rows <= 0 || a->cols <= 0)
		return;
	with_type(a->from, [&](auto tag) {
		amax_kernel<typename decltype(tag)::type>
			<<<grid_of(a), THREADS, 0, c->stream>>>(*a, is_wide(a));
	});
	mfk_cuda_end(c, "amax");
}

/* ---- elements ---- */

template <__nv_fp8_interpretation_t F>
static __device__ __forceinline__ uint4 codes_of(const float *v, float scale)
{
	union {
		__nv_fp8x2_storage_t pair[EACH / 2];
		uint4 all;
	} codes;

#pragma unroll
	for (int i = 0; i < EACH / 2; i++)
		codes.pair[i] = __nv_cvt_float2_to_fp8x2(
			make_float2(__fmul_rn(v[2 * i], scale), __fmul_rn(v[2 * i + 1], scale)),
			__NV_SATFINITE, F);
	return codes.all;
}

/* Words of 16 bytes of a row, which lie so that neither rows nor columns meet in a bank. */
static __device__ __forceinline__ int place_of(int row, int unit)
{
	return row * ACROSS + (unit ^ (row / EACH & (ACROSS - 1)));
}

static __device__ __forceinline__ void store_codes(uint8_t *p, const uint4 &codes, int64_t left,
						   bool wide)
{
	union {
		uint4 all;
		uint8_t x[EACH];
	} u;

	u.all = codes;
	if (wide && left >= EACH) {
		*reinterpret_cast<uint4 *>(p) = codes;
		return;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		if (i < left)
			p[i] = u.x[i];
}

/* Four rows of four bytes become four columns. */
static __device__ __forceinline__ void turn(const uint32_t *rows, uint32_t *cols)
{
	const uint32_t a = __byte_perm(rows[0], rows[1], 0x5140);
	const uint32_t b = __byte_perm(rows[2], rows[3], 0x5140);
	const uint32_t c = __byte_perm(rows[0], rows[1], 0x7362);
	const uint32_t d = __byte_perm(rows[2], rows[3], 0x7362);

	cols[0] = __byte_perm(a, b, 0x5410);
	cols[1] = __byte_perm(a, b, 0x7632);
	cols[2] = __byte_perm(c, d, 0x5410);
	cols[3] = __byte_perm(c, d, 0x7632);
}

/* The thread's 16 rows of four columns. */
static __device__ __forceinline__ void store_columns(const mfk_quantise &a, const struct tile &t,
						     const uint4 *codes)
{
	const int rows = threadIdx.x % ACROSS, word = threadIdx.x / ACROSS;
	const uint32_t *from = reinterpret_cast<const uint32_t *>(codes);
	uint8_t *to = static_cast<uint8_t *>(a.qt) + (t.col + 4 * word) * a.ld_qt + t.column +
		      rows * EACH;
	uint32_t in[EACH], out[EACH / 4][4];

	if (rows * EACH >= t.rows)
		return;
#pragma unroll
	for (int i = 0; i < EACH; i++)
		in[i] = from[4 * place_of(rows * EACH + i, word / 4) + word % 4];
#pragma unroll
	for (int i = 0; i < EACH / 4; i++)
		turn(in + 4 * i, out[i]);
#pragma unroll
	for (int k = 0; k < 4; k++)
		if (4 * word + k < t.cols)
			*reinterpret_cast<uint4 *>(to + k * a.ld_qt) =
				make_uint4(out[0][k], out[1][k], out[2][k], out[3][k]);
}

/* Each block makes the scale of amax for itself, which is a division, and no launch. */
static __device__ __forceinline__ float scale_now(const mfk_quantise &a, const struct tile &t)
{
	const struct mfk_scale *s = &a.scales[t.group];

	return a.given ? s->scale : mfk_scale_of(a.to, s->amax).scale;
}

/* For those who use q. No block reads them, and none writes amax now. */
static __device__ void write_scales(const mfk_quantise &a)
{
	for (int64_t i = threadIdx.x; i < (a.groups ? a.groups : 1); i += THREADS) {
		const struct mfk_scale s = mfk_scale_of(a.to, a.scales[i].amax);

		a.scales[i].scale = s.scale;
		a.scales[i].inverse = s.inverse;
	}
}

template <typename T, __nv_fp8_interpretation_t F>
static __global__ void __launch_bounds__(THREADS)
	quantise_kernel(mfk_quantise a, bool wide, bool wide_q)
{
	__shared__ uint4 codes[TILE * ACROSS];
	const struct tile t = tile_at(a, blockIdx.x, blockIdx.y);
	const int unit = threadIdx.x % ACROSS, col = unit * EACH;
	uint8_t *to = static_cast<uint8_t *>(a.q) + t.row * a.cols + t.col + col;
	float most = 0.f, v[EACH], scale;

	if (!a.given && !blockIdx.x && !blockIdx.y)
		write_scales(a);
	if (!t.rows)
		return;
	scale = scale_now(a, t);
	const numbers<T> all(a, t, wide);
#pragma unroll
	for (int i = 0; i < ROUNDS; i++) {
		const int row = numbers<T>::row_of(i);
		uint4 now;

		unpack(v, all.raw[i]);
		now = codes_of<F>(v, scale);
		codes[place_of(row, unit)] = now;
		if (a.q && row < t.rows)
			store_codes(to + row * a.cols, now, t.cols - col, wide_q);
		most = fmaxf(most, greatest_of(v));
	}
	if (a.given)
		raise_amax(most, &a.scales[t.group]);
	__syncthreads();
	if (a.qt)
		store_columns(a, t, codes);
}

template <__nv_fp8_interpretation_t F>
static void launch(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	const bool wide_q = a->cols % EACH == 0 && aligned(a->q);

	with_type(a->from, [&](auto tag) {
		quantise_kernel<typename decltype(tag)::type, F>
			<<<grid_of(a), THREADS, 0, c->stream>>>(*a, is_wide(a), wide_q);
	});
}

void mfk_cuda_quantise(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	if (!mfk_cuda_begin(c))
		return;
	if (a->to == MFK_E4M3)
		launch<__NV_E4M3>(c, a);
	else
		launch<__NV_E5M2>(c, a);
	mfk_cuda_end(c, "quantise");
}

/* ---- delayed scaling ---- */

static __global__ void update_kernel(mfk_update_scales a)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;

	if (i < a.count)
		mfk_scale_update(&a, i);
}

void mfk_cuda_update_scales(struct mfk_ctx *c, const struct mfk_update_scales *a)
{
	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	update_kernel<<<static_cast<unsigned>(ceil_div(a->count, MFK_THREADS)), MFK_THREADS, 0,
			c->stream>>>(*a);
	mfk_cuda_end(c, "update_scales");
}
