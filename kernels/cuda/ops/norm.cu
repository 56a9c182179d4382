/* RMSNorm and LayerNorm of rows. A block has a row; a thread keeps its columns in registers. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/ops/columns.cuh"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>

#define MAX_THREADS 1024
#define FORWARD	    4 /* vectors of a thread */
#define BACKWARD    2

struct row_args {
	int64_t cols;
	bool layernorm, zero_centered, wide;
	float eps;
};

/* As few threads as hold a row with so many vectors each; 0: a row is too long. */
static unsigned threads_for(int64_t cols, int vectors)
{
	int64_t threads = ceil_div(ceil_div(cols, MFK_N * vectors), 32) * 32;

	return threads > MAX_THREADS ? 0 : static_cast<unsigned>(threads);
}

template <typename T>
static __device__ __forceinline__ void load_weight(float w[MFK_N], const T *weight, int64_t col,
						   const row_args &a)
{
	load(w, weight + col, a.cols - col, a.wide);
	if (a.zero_centered)
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			w[k] += 1.f;
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
	norm_kernel(row_args a, const T *x, const T *residual, const T *weight, const T *bias,
		    T *sum, T *y, float *mean, float *rstd)
{
	__shared__ float room[MAX_THREADS / 32];
	int64_t row = blockIdx.x, at = row * a.cols;
	Raw<T> kept[FORWARD];
	float v[MFK_N], w[MFK_N], b[MFK_N];
	float total = 0, mu = 0, r;

#pragma unroll
	for (int j = 0; j < FORWARD; j++) {
		int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;

		if (col < a.cols)
			kept[j] = load_raw(x + at + col, a.cols - col, a.wide);
	}
#pragma unroll
	for (int j = 0; j < FORWARD; j++) {
		int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;

		if (col >= a.cols)
			continue;
		unpack(v, kept[j]);
		if (residual) {
			load(b, residual + at + col, a.cols - col, a.wide);
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				v[k] += b[k];
			kept[j] = pack<T>(v);
			unpack(v, kept[j]);
			store_raw(sum + at + col, kept[j], a.cols - col, a.wide);
		}
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			total += a.layernorm ? v[k] : v[k] * v[k];
	}
	total = row_sum(total, room);
	if (a.layernorm) {
		mu = total / a.cols;
		total = 0;
#pragma unroll
		for (int j = 0; j < FORWARD; j++) {
			int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;

			if (col >= a.cols)
				continue;
			unpack(v, kept[j]);
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				total += col + k < a.cols ? (v[k] - mu) * (v[k] - mu) : 0.f;
		}
		total = row_sum(total, room);
	}
	r = rsqrtf(total / a.cols + a.eps);
#pragma unroll
	for (int j = 0; j < FORWARD; j++) {
		int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;

		if (col >= a.cols)
			continue;
		unpack(v, kept[j]);
		load_weight(w, weight, col, a);
		if (bias)
			load(b, bias + col, a.cols - col, a.wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			v[k] = (v[k] - mu) * r * w[k] + (bias ? b[k] : 0.f);
		store(y + at + col, v, a.cols - col, a.wide);
	}
	if (threadIdx.x == 0) {
		if (mean)
			mean[row] = mu;
		if (rstd)
			rstd[row] = r;
	}
}

void mfk_cuda_norm(struct mfk_ctx *c, const struct mfk_norm *a)
{
	unsigned threads = threads_for(a->cols, FORWARD);
	row_args r = {};

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	if (!threads) {
		mfk_cuda_fail(c, -EINVAL, "norm: a row has %lld columns, at most %d are possible",
			      static_cast<long long>(a->cols), MAX_THREADS * FORWARD * MFK_N);
		return;
	}
	r.cols = a->cols;
	r.layernorm = a->layernorm;
	r.zero_centered = a->zero_centered;
	r.eps = a->eps;
	r.wide =
		aligned(a->x, a->residual, a->weight, a->bias, a->residual ? a->sum : NULL, a->y) &&
		a->cols % MFK_N == 0;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		norm_kernel<<<static_cast<unsigned>(a->rows), threads, 0, c->stream>>>(
			r, static_cast<const T *>(a->x), static_cast<const T *>(a->residual),
			static_cast<const T *>(a->weight), static_cast<const T *>(a->bias),
			static_cast<T *>(a->sum), static_cast<T *>(a->y),
			a->layernorm ? a->mean : NULL, a->rstd);
	});
	mfk_cuda_end(c, "norm");
}

/*
 * With xhat = (x - mean) rstd and g = dy weight: dx = rstd (g - xhat avg(g xhat) - avg(g)), the
 * last for LayerNorm alone. A block has the rows blockIdx, blockIdx + gridDim, ..., and adds up
 * dweight = sum of dy xhat and dbias = sum of dy of its own rows in registers. While it works on a
 * row, the next one is on its way.
 */
template <typename T> struct Row {
	Raw<T> x[BACKWARD], dy[BACKWARD], more[BACKWARD];
	float mean, rstd;
};

static __device__ __forceinline__ int64_t column(int j)
{
	return (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;
}

template <typename T>
static __device__ __forceinline__ void load_row(Row<T> &r, const mfk_norm_backward &a, int64_t row,
						bool wide)
{
	const T *x = static_cast<const T *>(a.x) + row * a.cols;
	const T *dy = static_cast<const T *>(a.dy) + row * a.cols;
	const T *more = static_cast<const T *>(a.dresidual) + row * a.cols;

#pragma unroll
	for (int j = 0; j < BACKWARD; j++) {
		int64_t col = column(j), left = a.cols - col;

		if (left <= 0)
			continue;
		r.x[j] = load_raw(x + col, left, wide);
		r.dy[j] = load_raw(dy + col, left, wide);
		if (a.dresidual)
			r.more[j] = load_raw(more + col, left, wide);
	}
	r.mean = a.layernorm ? a.mean[row] : 0.f;
	r.rstd = a.rstd[row];
}

/* parts: of dweight [gridDim, cols], and then of dbias with BIAS. Long rows, and those of fp32,
 * leave no registers for a row AHEAD. */
template <typename T, int THREADS, bool BIAS, bool AHEAD = THREADS <= 512 && sizeof(T) == 2>
static __global__ void __launch_bounds__(THREADS)
	norm_backward_kernel(mfk_norm_backward a, float *parts, bool wide)
{
	__shared__ float room[2][2][MAX_THREADS / 32];
	float dw[BACKWARD][MFK_N] = {}, db[BACKWARD][MFK_N] = {};
	float centre = a.zero_centered ? 1.f : 0.f;
	Raw<T> weight[BACKWARD];
	Row<T> next;
	int turn = 0; /* rows take turns with the rooms of their sums */

#pragma unroll
	for (int j = 0; j < BACKWARD; j++)
		if (column(j) < a.cols)
			weight[j] = load_raw(static_cast<const T *>(a.weight) + column(j),
					     a.cols - column(j), wide);
	if (AHEAD)
		load_row(next, a, blockIdx.x, wide);
	for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
		T *dx = static_cast<T *>(a.dx) + row * a.cols;
		float sum_g = 0, sum_gx = 0;
		Row<T> r = next;

		if (!AHEAD)
			load_row(r, a, row, wide);
		else if (row + gridDim.x < a.rows)
			load_row(next, a, row + gridDim.x, wide);
#pragma unroll
		for (int j = 0; j < BACKWARD; j++)
#pragma unroll
			for (int k = 0; k < MFK_N && column(j) < a.cols; k++) {
				float d = to_float(r.dy[j].x[k]); /* 0 beyond the row */
				float xhat = (to_float(r.x[j].x[k]) - r.mean) * r.rstd;
				float g = d * (to_float(weight[j].x[k]) + centre);

				dw[j][k] += d * xhat;
				if (BIAS)
					db[j][k] += d;
				sum_g += g;
				sum_gx += g * xhat;
			}
		sum_gx = row_sum_once(sum_gx, room[turn][0]) / a.cols;
		sum_g = a.layernorm ? row_sum_once(sum_g, room[turn][1]) / a.cols : 0.f;
#pragma unroll
		for (int j = 0; j < BACKWARD; j++) {
			float v[MFK_N];

			if (column(j) >= a.cols)
				continue;
#pragma unroll
			for (int k = 0; k < MFK_N; k++) {
				float xhat = (to_float(r.x[j].x[k]) - r.mean) * r.rstd;
				float g = to_float(r.dy[j].x[k]) *
					  (to_float(weight[j].x[k]) + centre);

				v[k] = r.rstd * (g - xhat * sum_gx - sum_g);
				if (a.dresidual)
					v[k] += to_float(r.more[j].x[k]);
			}
			store(dx + column(j), v, a.cols - column(j), wide);
		}
	}
	parts += blockIdx.x * a.cols;
#pragma unroll
	for (int j = 0; j < BACKWARD; j++) {
		if (column(j) >= a.cols)
			continue;
		store(parts + column(j), dw[j], a.cols - column(j), wide);
		if (BIAS)
			store(parts + gridDim.x * a.cols + column(j), db[j], a.cols - column(j),
			      wide);
	}
}

/* Returns the number of blocks, each of which has left a row of parts; 0: the context failed. */
template <typename T, int THREADS, bool BIAS>
static int64_t launch_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a,
			       unsigned threads, bool wide, float **parts)
{
	auto kernel = norm_backward_kernel<T, THREADS, BIAS>;
	int64_t blocks = min(a->rows, blocks_at_once(c, kernel, threads, 0));

	*parts = static_cast<float *>(mfk_cuda_scratch(
		c, static_cast<size_t>(blocks * a->cols) * sizeof(float) * (BIAS ? 2 : 1), "norm"));
	if (!*parts)
		return 0;
	kernel<<<static_cast<unsigned>(blocks), threads, 0, c->stream>>>(*a, *parts, wide);
	mfk_cuda_end(c, "norm's gradient");
	return blocks;
}

void mfk_cuda_norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a)
{
	unsigned threads = threads_for(a->cols, BACKWARD);
	bool wide = aligned(a->x, a->weight, a->dy, a->dresidual, a->dx) && a->cols % MFK_N == 0;
	int64_t blocks = 0;
	float *parts;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	if (!threads) {
		mfk_cuda_fail(c, -EINVAL, "norm: a row has %lld columns, at most %d are possible",
			      static_cast<long long>(a->cols), MAX_THREADS * BACKWARD * MFK_N);
		return;
	}
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		auto launch = threads <= 512 ? (a->dbias ? launch_backward<T, 512, true>
							 : launch_backward<T, 512, false>)
					     : (a->dbias ? launch_backward<T, MAX_THREADS, true>
							 : launch_backward<T, MAX_THREADS, false>);

		blocks = launch(c, a, threads, wide, &parts);
	});
	if (!blocks)
		return;
	mfk_cuda_add_columns(c, a->grad, a->dweight, parts, blocks, a->cols);
	if (a->dbias)
		mfk_cuda_add_columns(c, a->grad, a->dbias, parts + blocks * a->cols, blocks,
				     a->cols);
}
