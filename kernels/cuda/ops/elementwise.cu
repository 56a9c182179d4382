/* Operations that look at each element once: sums, scaling, casts, fills. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

static __device__ __forceinline__ int64_t first_element()
{
	return (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
}

template <typename T>
static __global__ void add_kernel(T *y, const T *a, const T *b, int64_t count, bool wide)
{
	int64_t i = first_element();
	float va[MFK_N], vb[MFK_N];

	if (i >= count)
		return;
	load(va, a + i, count - i, wide);
	load(vb, b + i, count - i, wide);
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		va[k] += vb[k];
	store(y + i, va, count - i, wide);
}

void mfk_cuda_add(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		  int64_t count)
{
	if (count <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		add_kernel<<<flat_blocks(count), MFK_THREADS, 0, c->stream>>>(
			static_cast<T *>(y), static_cast<const T *>(a), static_cast<const T *>(b),
			count, aligned(y, a, b));
	});
	mfk_cuda_end(c, "add");
}

static __global__ void scale_kernel(enum mfk_dtype t, void *x, float by, int64_t count, bool wide)
{
	int64_t i = first_element();
	float v[MFK_N];

	if (i >= count)
		return;
	load_any(v, t, x, i, count - i, wide);
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		v[k] *= by;
	store_any(t, x, i, v, count - i, wide);
}

void mfk_cuda_scale(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count)
{
	if (count <= 0 || !mfk_cuda_begin(c))
		return;
	scale_kernel<<<flat_blocks(count), MFK_THREADS, 0, c->stream>>>(dtype, x, by, count,
									aligned(x));
	mfk_cuda_end(c, "scale");
}

static __global__ void cast_kernel(enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
				   const void *from, int64_t count, bool wide)
{
	int64_t i = first_element();
	float v[MFK_N];

	if (i >= count)
		return;
	load_any(v, from_type, from, i, count - i, wide);
	store_any(to_type, to, i, v, count - i, wide);
}

void mfk_cuda_cast(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		   const void *from, int64_t count)
{
	if (count <= 0 || !mfk_cuda_begin(c))
		return;
	cast_kernel<<<flat_blocks(count), MFK_THREADS, 0, c->stream>>>(to_type, to, from_type, from,
								       count, aligned(to, from));
	mfk_cuda_end(c, "cast");
}

static __global__ void fill_kernel(enum mfk_dtype t, void *x, float value, int64_t count, bool wide)
{
	int64_t i = first_element();
	float v[MFK_N];

	if (i >= count)
		return;
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		v[k] = value;
	store_any(t, x, i, v, count - i, wide);
}

void mfk_cuda_fill(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value)
{
	if (count <= 0 || !mfk_cuda_begin(c))
		return;
	fill_kernel<<<flat_blocks(count), MFK_THREADS, 0, c->stream>>>(dtype, x, value, count,
								       aligned(x));
	mfk_cuda_end(c, "fill");
}

static __global__ void bias_kernel(mfk_gemm a, const float *product)
{
	int64_t i = blockIdx.x;

	for (int64_t j = threadIdx.x; j < a.n; j += MFK_THREADS) {
		int64_t at = i * a.ldc + j;
		float sum = product ? product[i * a.n + j] : 0.f;

		if (a.beta != 0)
			sum += a.beta * load_one(a.dtype_c, a.c, at);
		if (a.bias)
			sum += load_one(a.dtype_bias, a.bias, j);
		store_one(a.dtype_c, a.c, at, sum);
	}
}

void mfk_cuda_gemm_bias(struct mfk_ctx *c, const struct mfk_gemm *a, const float *product)
{
	if (!mfk_cuda_begin(c))
		return;
	bias_kernel<<<static_cast<unsigned>(a->m), MFK_THREADS, 0, c->stream>>>(*a, product);
	mfk_cuda_end(c, "product");
}
