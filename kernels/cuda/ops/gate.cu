/* Gates of outputs: rows of gates lie apart from each other, in a wider matrix. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

/* f(x), and f'(x). */
static __device__ __forceinline__ float gate_function(bool silu, float x, float *slope)
{
	const float s = 1.f / (1.f + expf(-x)), rest = 1.f / (1.f + expf(x));

	*slope = silu ? s + x * s * rest : s * rest;
	return silu ? x * s : s;
}

/* N: elements that a thread has, of one row. */
template <typename T, int N>
static __global__ void __launch_bounds__(MFK_THREADS) gate_kernel(mfk_gate a)
{
	const int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * N;
	const int64_t at = i / a.cols * a.ld + i % a.cols;
	float x[N], gate[N], slope;

	if (i >= a.rows * a.cols)
		return;
	load<N>(x, static_cast<const T *>(a.x) + i, N, N > 1);
	load<N>(gate, static_cast<const T *>(a.gate) + at, N, N > 1);
#pragma unroll
	for (int k = 0; k < N; k++)
		x[k] *= gate_function(a.silu, gate[k], &slope);
	store<N>(static_cast<T *>(a.y) + i, x, N, N > 1);
}

template <typename T, int N>
static __global__ void __launch_bounds__(MFK_THREADS) gate_backward_kernel(mfk_gate a)
{
	const int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * N;
	const int64_t at = i / a.cols * a.ld + i % a.cols;
	float x[N], gate[N], d[N];

	if (i >= a.rows * a.cols)
		return;
	load<N>(x, static_cast<const T *>(a.x) + i, N, N > 1);
	load<N>(gate, static_cast<const T *>(a.gate) + at, N, N > 1);
	load<N>(d, static_cast<const T *>(a.dy) + i, N, N > 1);
#pragma unroll
	for (int k = 0; k < N; k++) {
		float slope, f = gate_function(a.silu, gate[k], &slope);

		gate[k] = d[k] * x[k] * slope;
		d[k] *= f;
	}
	store<N>(static_cast<T *>(a.dgate) + at, gate, N, N > 1);
	store<N>(static_cast<T *>(a.dx) + i, d, N, N > 1);
}

/* ---- launches ---- */

static bool wide(const mfk_gate *a)
{
	return (a->cols | a->ld) % MFK_N == 0 &&
	       aligned(a->x, a->gate, a->y, a->dy, a->dx, a->dgate);
}

static unsigned blocks(const mfk_gate *a, int each)
{
	return static_cast<unsigned>(ceil_div(a->rows * a->cols, MFK_THREADS * each));
}

void mfk_cuda_gate(struct mfk_ctx *c, const struct mfk_gate *a)
{
	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		if (wide(a))
			gate_kernel<T, MFK_N><<<blocks(a, MFK_N), MFK_THREADS, 0, c->stream>>>(*a);
		else
			gate_kernel<T, 1><<<blocks(a, 1), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "gates");
}

void mfk_cuda_gate_backward(struct mfk_ctx *c, const struct mfk_gate *a)
{
	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		if (wide(a))
			gate_backward_kernel<T, MFK_N>
				<<<blocks(a, MFK_N), MFK_THREADS, 0, c->stream>>>(*a);
		else
			gate_backward_kernel<T, 1><<<blocks(a, 1), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "gates' gradient");
}
