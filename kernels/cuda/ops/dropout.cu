/* Random numbers: dropout, and normal and uniform numbers for weights. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/philox.cuh"
#include "kernels/cuda/base/vec.cuh"

template <typename T> static __global__ void dropout_kernel(mfk_dropout a, float by, bool wide)
{
	int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
	int64_t left = a.count - i;
	float v[MFK_N], more[MFK_N] = {};
	uint32_t random[MFK_N];

	if (left <= 0)
		return;
	load(v, static_cast<const T *>(a.x) + i, left, wide);
	if (a.residual)
		load(more, static_cast<const T *>(a.residual) + i, left, wide);
	philox8(a.offset + i, a.seed, random);
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		v[k] = more[k] + (dropout_keeps(random[k], a.p) ? v[k] * by : 0.f);
	store(static_cast<T *>(a.y) + i, v, left, wide);
}

void mfk_cuda_dropout(struct mfk_ctx *c, const struct mfk_dropout *a)
{
	bool wide = aligned(a->x, a->residual, a->y);

	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		dropout_kernel<T><<<flat_blocks(a->count), MFK_THREADS, 0, c->stream>>>(
			*a, 1.f / (1.f - a->p), wide);
	});
	mfk_cuda_end(c, "dropout");
}

/* The same mask; the residual's gradient is dy itself. */
void mfk_cuda_dropout_backward(struct mfk_ctx *c, const struct mfk_dropout *a)
{
	struct mfk_dropout b = *a;

	b.residual = NULL;
	mfk_cuda_dropout(c, &b);
}

/* Numbers 2n and 2n + 1 make the normal numbers 2n and 2n + 1 (Box and Muller 1958). */
static __device__ __forceinline__ float2 normals(uint32_t a, uint32_t b)
{
	float r = sqrtf(-2.f * logf((static_cast<float>(a >> 8) + 1.f) * 0x1p-24f)), sin, cos;

	sincospif(2.f * uniform(b), &sin, &cos);
	return make_float2(r * cos, r * sin);
}

static __global__ void normal_kernel(enum mfk_dtype t, void *x, int64_t count, float mean,
				     float std, uint64_t seed, uint64_t offset, bool wide)
{
	int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
	int skip = static_cast<int>((offset + i) % 4);
	uint32_t random[12];
	float all[12], v[MFK_N];

	if (i >= count)
		return;
	philox12(offset + i, seed, random);
#pragma unroll
	for (int k = 0; k < 12; k += 2) {
		float2 pair = k < MFK_N || skip ? normals(random[k], random[k + 1])
						: make_float2(0.f, 0.f);

		all[k] = pair.x;
		all[k + 1] = pair.y;
	}
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		v[k] = mean + std * (skip == 0	 ? all[k]
				     : skip == 1 ? all[k + 1]
				     : skip == 2 ? all[k + 2]
						 : all[k + 3]);
	store_any(t, x, i, v, count - i, wide);
}

void mfk_cuda_fill_normal(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count,
			  float mean, float std, uint64_t seed, uint64_t offset)
{
	if (count <= 0 || !mfk_cuda_begin(c))
		return;
	normal_kernel<<<flat_blocks(count), MFK_THREADS, 0, c->stream>>>(dtype, x, count, mean, std,
									 seed, offset, aligned(x));
	mfk_cuda_end(c, "normal numbers");
}

static __global__ void uniform_kernel(mfk_uniform a, bool wide)
{
	int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
	uint32_t random[MFK_N];
	float v[MFK_N];

	if (i >= a.count)
		return;
	philox8(a.offset + i, a.seed, random);
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		float u = (static_cast<float>(random[k] >> 8) + 1.f) * 0x1p-24f;

		v[k] = a.low + (a.high - a.low) * u;
		v[k] = a.logarithm ? logf(v[k]) : v[k];
	}
	store_any(a.dtype, a.x, i, v, a.count - i, wide);
}

void mfk_cuda_fill_uniform(struct mfk_ctx *c, const struct mfk_uniform *a)
{
	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	uniform_kernel<<<flat_blocks(a->count), MFK_THREADS, 0, c->stream>>>(*a, aligned(a->x));
	mfk_cuda_end(c, "uniform numbers");
}
