/* Activations, alone or gated, and their gradients. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#define TWO_SQRT_2_OVER_PI 1.59576912f
#define SQRT_HALF	   0.707106781f
#define INV_SQRT_2PI	   0.398942280f
#define GELU_CUBIC	   0.044715f
#define QUICK		   1.702f

static __device__ __forceinline__ float sigmoid(float x)
{
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.f + fast_exp(-x)));
	return y;
}

/* f(x) and f'(x); what nobody uses is not computed. GELU's 0.5 (1 + tanh(u)) is sigmoid(2u). */
template <int KIND> static __device__ __forceinline__ float activation(float x, float *slope)
{
	float s;

	if (KIND == MFK_GELU_TANH) {
		s = sigmoid(TWO_SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
		*slope = s + x * s * (1 - s) * TWO_SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
		return x * s;
	}
	if (KIND == MFK_GELU_ERF) {
		s = 0.5f * erfcf(-x * SQRT_HALF);
		*slope = s + x * INV_SQRT_2PI * fast_exp(-0.5f * x * x);
		return x * s;
	}
	if (KIND == MFK_SILU) {
		s = sigmoid(x);
		*slope = s + x * s * (1 - s);
		return x * s;
	}
	if (KIND == MFK_RELU_SQUARED) {
		s = fmaxf(x, 0.f);
		*slope = 2 * s;
		return s * s;
	}
	s = sigmoid(QUICK * x);
	*slope = s + x * s * (1 - s) * QUICK;
	return x * s;
}

template <int KIND> static __device__ __forceinline__ void each(float f[MFK_N], float slope[MFK_N])
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		f[k] = activation<KIND>(f[k], &slope[k]);
}

/* f: x, then f(x) */
static __device__ __forceinline__ void activations(enum mfk_activation kind, float f[MFK_N],
						   float slope[MFK_N])
{
	switch (kind) {
	case MFK_GELU_TANH:
		each<MFK_GELU_TANH>(f, slope);
		break;
	case MFK_GELU_ERF:
		each<MFK_GELU_ERF>(f, slope);
		break;
	case MFK_SILU:
		each<MFK_SILU>(f, slope);
		break;
	case MFK_RELU_SQUARED:
		each<MFK_RELU_SQUARED>(f, slope);
		break;
	case MFK_QUICK_GELU:
		each<MFK_QUICK_GELU>(f, slope);
		break;
	}
}

template <typename T> static __global__ void act_kernel(mfk_act a, bool wide)
{
	int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
	const T *x = static_cast<const T *>(a.x) + row * a.cols * (a.gated ? 2 : 1);
	T *y = static_cast<T *>(a.y) + row * a.cols;
	float scale;

	if (row >= a.rows)
		return;
	scale = a.row_scale ? a.row_scale[row] : 1.f;
	for (int64_t col = threadIdx.x * MFK_N; col < a.cols; col += blockDim.x * MFK_N) {
		float f[MFK_N], up[MFK_N], slope[MFK_N];

		load(f, x + col, a.cols - col, wide);
		if (a.gated)
			load(up, x + a.cols + col, a.cols - col, wide);
		activations(a.kind, f, slope);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			f[k] *= a.gated ? up[k] * scale : scale;
		store(y + col, f, a.cols - col, wide);
	}
}

/*
 * The same for rows of whole vectors, which are taken as one: no thread idles at the end of a row.
 * A thread has EACH vectors, whose loads are all under way before the first is used.
 */
#define EACH 2

template <typename T>
static __global__ void flat_kernel(mfk_act a, uint32_t per_row, uint32_t count)
{
	const uint32_t first = blockIdx.x * EACH * MFK_THREADS + threadIdx.x;
	const T *x = static_cast<const T *>(a.x);
	Raw<T> raw[EACH], raw_up[EACH];

#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const uint32_t v = first + j * MFK_THREADS;
		const int64_t at =
			static_cast<int64_t>(v) * MFK_N + (a.gated ? v / per_row * a.cols : 0);

		if (v >= count)
			break;
		raw[j] = load_raw(x + at, MFK_N, true);
		if (a.gated)
			raw_up[j] = load_raw(x + at + a.cols, MFK_N, true);
	}
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const uint32_t v = first + j * MFK_THREADS;
		float f[MFK_N], up[MFK_N], slope[MFK_N], scale;

		if (v >= count)
			break;
		scale = a.row_scale ? a.row_scale[v / per_row] : 1.f;
		unpack(f, raw[j]);
		if (a.gated)
			unpack(up, raw_up[j]);
		activations(a.kind, f, slope);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			f[k] *= a.gated ? up[k] * scale : scale;
		store(static_cast<T *>(a.y) + static_cast<int64_t>(v) * MFK_N, f, MFK_N, true);
	}
}

template <typename T>
static __global__ void flat_backward_kernel(mfk_act a, uint32_t per_row, uint32_t count)
{
	const uint32_t first = blockIdx.x * EACH * MFK_THREADS + threadIdx.x;
	const T *x = static_cast<const T *>(a.x), *dy = static_cast<const T *>(a.dy);
	Raw<T> raw[EACH], raw_up[EACH], raw_d[EACH];

#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const uint32_t v = first + j * MFK_THREADS;
		const int64_t own = static_cast<int64_t>(v) * MFK_N;
		const int64_t at = own + (a.gated ? v / per_row * a.cols : 0);

		if (v >= count)
			break;
		raw[j] = load_raw(x + at, MFK_N, true);
		raw_d[j] = load_raw(dy + own, MFK_N, true);
		if (a.gated)
			raw_up[j] = load_raw(x + at + a.cols, MFK_N, true);
	}
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const uint32_t v = first + j * MFK_THREADS;
		const int64_t at =
			static_cast<int64_t>(v) * MFK_N + (a.gated ? v / per_row * a.cols : 0);
		T *dx = static_cast<T *>(a.dx) + at;
		float f[MFK_N], up[MFK_N], d[MFK_N], slope[MFK_N], scale;

		if (v >= count)
			break;
		scale = a.row_scale ? a.row_scale[v / per_row] : 1.f;
		unpack(f, raw[j]);
		unpack(d, raw_d[j]);
		if (a.gated)
			unpack(up, raw_up[j]);
		activations(a.kind, f, slope);
#pragma unroll
		for (int k = 0; k < MFK_N; k++) {
			d[k] *= scale;
			f[k] *= d[k];
			slope[k] *= d[k] * (a.gated ? up[k] : 1.f);
		}
		store(dx, slope, MFK_N, true);
		if (a.gated)
			store(dx + a.cols, f, MFK_N, true);
	}
}

template <typename T> static __global__ void act_backward_kernel(mfk_act a, bool wide)
{
	__shared__ float room[MFK_THREADS / 32];
	int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
	int64_t cols = row < a.rows ? a.cols : 0; /* all threads stay for the sum */
	const T *x = static_cast<const T *>(a.x) + row * a.cols * (a.gated ? 2 : 1);
	const T *dy = static_cast<const T *>(a.dy) + row * a.cols;
	T *dx = static_cast<T *>(a.dx) + row * a.cols * (a.gated ? 2 : 1);
	float scale = a.row_scale && cols ? a.row_scale[row] : 1.f, sum = 0;

	for (int64_t col = threadIdx.x * MFK_N; col < cols; col += blockDim.x * MFK_N) {
		float f[MFK_N], up[MFK_N], d[MFK_N], slope[MFK_N];

		load(f, x + col, cols - col, wide);
		load(d, dy + col, cols - col, wide);
		if (a.gated)
			load(up, x + a.cols + col, cols - col, wide);
		activations(a.kind, f, slope);
#pragma unroll
		for (int k = 0; k < MFK_N; k++) {
			float u = a.gated ? up[k] : 1.f;

			/* Beyond the row d is 0. */
			sum += d[k] * f[k] * u;
			d[k] *= scale;
			f[k] *= d[k];
			slope[k] *= d[k] * u;
		}
		store(dx + col, slope, cols - col, wide);
		if (a.gated)
			store(dx + a.cols + col, f, cols - col, wide);
	}
	if (!a.drow_scale)
		return;
	sum = row_sum(sum, room);
	if (threadIdx.x == 0 && cols)
		a.drow_scale[row] = sum;
}

/* Vectors of all rows; 0: rows are gone through one by one. */
static uint32_t flat_count(const struct mfk_act *a, bool wide)
{
	const int64_t count = a->rows * (a->cols / MFK_N);

	return wide && !a->drow_scale && count <= INT32_MAX ? static_cast<uint32_t>(count) : 0;
}

static unsigned blocks_of_flat(uint32_t count)
{
	return static_cast<unsigned>(ceil_div(count, EACH * MFK_THREADS));
}

void mfk_cuda_act(struct mfk_ctx *c, const struct mfk_act *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	const bool wide = aligned(a->x, a->y) && a->cols % MFK_N == 0;
	const uint32_t count = flat_count(a, wide);

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		if (count)
			flat_kernel<T><<<blocks_of_flat(count), MFK_THREADS, 0, c->stream>>>(
				*a, static_cast<uint32_t>(a->cols / MFK_N), count);
		else
			act_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide);
	});
	mfk_cuda_end(c, "activation");
}

void mfk_cuda_act_backward(struct mfk_ctx *c, const struct mfk_act *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	const bool wide = aligned(a->x, a->dy, a->dx) && a->cols % MFK_N == 0;
	const uint32_t count = flat_count(a, wide);

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		if (count)
			flat_backward_kernel<T>
				<<<blocks_of_flat(count), MFK_THREADS, 0, c->stream>>>(
					*a, static_cast<uint32_t>(a->cols / MFK_N), count);
		else
			act_backward_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide);
	});
	mfk_cuda_end(c, "activation's gradient");
}
