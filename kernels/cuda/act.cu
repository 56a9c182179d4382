/* Activations, alone or gated, and their gradients. */
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define TWO_SQRT_2_OVER_PI 1.59576912f
#define SQRT_HALF	   0.707106781f
#define INV_SQRT_2PI	   0.398942280f
#define GELU_CUBIC	   0.044715f
#define QUICK		   1.702f

static __device__ __forceinline__ float sigmoid(float x)
{
	return __fdividef(1.f, 1.f + __expf(-x));
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
		*slope = s + x * INV_SQRT_2PI * __expf(-0.5f * x * x);
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

void mfk_cuda_act(struct mfk_ctx *c, const struct mfk_act *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	bool wide = aligned(a->x, a->y) && a->cols % MFK_N == 0;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		act_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide);
	});
	mfk_cuda_end(c, "activation");
}

void mfk_cuda_act_backward(struct mfk_ctx *c, const struct mfk_act *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	bool wide = aligned(a->x, a->dy, a->dx) && a->cols % MFK_N == 0;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		act_backward_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide);
	});
	mfk_cuda_end(c, "activation's gradient");
}
