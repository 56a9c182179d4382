/* RMSNorm and LayerNorm of rows. A block has a row; a thread keeps its columns in registers. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

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
	r.wide = aligned(a->x, a->residual, a->weight, a->bias, a->residual ? a->sum : NULL,
			 a->y) &&
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
 * dweight = sum of dy xhat and dbias = sum of dy of its own rows in registers.
 */
template <typename T, int THREADS>
static __global__ void __launch_bounds__(THREADS)
	norm_backward_kernel(row_args a, int64_t rows, const T *x, const T *weight, const T *dy,
			     const T *dresidual, const float *mean, const float *rstd, T *dx,
			     float *dweight, float *dbias)
{
	__shared__ float room[MAX_THREADS / 32], room2[MAX_THREADS / 32];
	float dw[BACKWARD][MFK_N] = {}, db[BACKWARD][MFK_N] = {};

	for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
		int64_t at = row * a.cols;
		float mu = a.layernorm ? mean[row] : 0.f, r = rstd[row];
		float sum_g = 0, sum_gx = 0;
		Raw<T> kept_x[BACKWARD], kept_dy[BACKWARD];

#pragma unroll
		for (int j = 0; j < BACKWARD; j++) {
			int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;

			if (col >= a.cols)
				continue;
			kept_x[j] = load_raw(x + at + col, a.cols - col, a.wide);
			kept_dy[j] = load_raw(dy + at + col, a.cols - col, a.wide);
		}
#pragma unroll
		for (int j = 0; j < BACKWARD; j++) {
			int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;
			float w[MFK_N];

			if (col >= a.cols)
				continue;
			load_weight(w, weight, col, a);
#pragma unroll
			for (int k = 0; k < MFK_N; k++) {
				float d = to_float(kept_dy[j].x[k]);
				float xhat = (to_float(kept_x[j].x[k]) - mu) * r;

				/* Beyond the row dy is 0. */
				dw[j][k] += d * xhat;
				db[j][k] += d;
				sum_g += d * w[k];
				sum_gx += d * w[k] * xhat;
			}
		}
		sum_gx = row_sum(sum_gx, room) / a.cols;
		sum_g = a.layernorm ? row_sum(sum_g, room2) / a.cols : 0.f;
#pragma unroll
		for (int j = 0; j < BACKWARD; j++) {
			int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;
			float w[MFK_N], more[MFK_N], v[MFK_N];

			if (col >= a.cols)
				continue;
			load_weight(w, weight, col, a);
			if (dresidual)
				load(more, dresidual + at + col, a.cols - col, a.wide);
#pragma unroll
			for (int k = 0; k < MFK_N; k++) {
				float xhat = (to_float(kept_x[j].x[k]) - mu) * r;
				float g = to_float(kept_dy[j].x[k]) * w[k];

				v[k] = r * (g - xhat * sum_gx - sum_g);
				if (dresidual)
					v[k] += more[k];
			}
			store(dx + at + col, v, a.cols - col, a.wide);
		}
	}
#pragma unroll
	for (int j = 0; j < BACKWARD; j++) {
		int64_t col = (threadIdx.x + static_cast<int64_t>(j) * blockDim.x) * MFK_N;
		int64_t at = blockIdx.x * a.cols + col;

		if (col >= a.cols)
			continue;
		store(dweight + at, dw[j], a.cols - col, a.wide);
		if (dbias)
			store(dbias + at, db[j], a.cols - col, a.wide);
	}
}

template <int THREADS>
static void launch_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a, const row_args &r,
			    unsigned blocks, unsigned threads, float *dweight, float *dbias)
{
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		norm_backward_kernel<T, THREADS><<<blocks, threads, 0, c->stream>>>(
			r, a->rows, static_cast<const T *>(a->x), static_cast<const T *>(a->weight),
			static_cast<const T *>(a->dy), static_cast<const T *>(a->dresidual),
			a->mean, a->rstd, static_cast<T *>(a->dx), dweight, dbias);
	});
}

void mfk_cuda_norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a)
{
	unsigned threads = threads_for(a->cols, BACKWARD);
	int64_t blocks;
	row_args r = {};
	float *parts;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	if (!threads) {
		mfk_cuda_fail(c, -EINVAL, "norm: a row has %lld columns, at most %d are possible",
			      static_cast<long long>(a->cols), MAX_THREADS * BACKWARD * MFK_N);
		return;
	}
	blocks = c->device->multiprocessors * (threads < MAX_THREADS ? MAX_THREADS / threads : 1);
	if (blocks > a->rows)
		blocks = a->rows;
	parts = static_cast<float *>(mfk_cuda_scratch(
		c, static_cast<size_t>(blocks * a->cols) * sizeof(float) * (a->dbias ? 2 : 1),
		"norm"));
	if (!parts)
		return;
	r.cols = a->cols;
	r.layernorm = a->layernorm;
	r.zero_centered = a->zero_centered;
	r.wide = aligned(a->x, a->weight, a->dy, a->dresidual, a->dx) && a->cols % MFK_N == 0;
	(threads <= 512 ? launch_backward<512> : launch_backward<MAX_THREADS>)(
		c, a, r, static_cast<unsigned>(blocks), threads, parts,
		a->dbias ? parts + blocks * a->cols : NULL);
	mfk_cuda_end(c, "norm");
	mfk_cuda_add_columns(c, a->grad, a->dweight, parts, blocks, a->cols);
	if (a->dbias)
		mfk_cuda_add_columns(c, a->grad, a->dbias, parts + blocks * a->cols, blocks,
				     a->cols);
}
