/*
 * Cross entropy of rows of logits. A block reads its row twice: for the maximum and the sum of
 * exponentials, which each thread keeps up to date as it goes, and for the gradient. The second
 * time the row is in the L2 cache.
 */
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#define MAX_THREADS 1024

/* The greatest x so far, and the sum of e^(x - most). */
struct online {
	float most, sum;
};

static __device__ __forceinline__ void take(online &o, const float v[MFK_N], int64_t left)
{
	float most = o.most, sum = 0;

#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		most = k < left ? fmaxf(most, v[k]) : most;
	if (most == -INFINITY) /* nothing but -infinity so far */
		return;
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		sum += k < left ? __expf(v[k] - most) : 0.f;
	o.sum = o.sum * __expf(o.most - most) + sum;
	o.most = most;
}

/* Of all threads; each gets it. */
static __device__ __forceinline__ online merge(online o, float *room)
{
	float most = lane_max(o.most);
	unsigned warps = blockDim.x / 32;
	online all;

	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = most;
	__syncthreads();
	all.most = -INFINITY;
	for (unsigned i = 0; i < warps; i++)
		all.most = fmaxf(all.most, room[i]);
	__syncthreads();
	o.sum = o.most == -INFINITY ? 0.f : o.sum * __expf(o.most - all.most);
	all.sum = row_sum(o.sum, room);
	return all;
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
	cross_entropy_kernel(mfk_cross_entropy a, bool wide, uint64_t *fault)
{
	__shared__ float room[MAX_THREADS / 32];
	int64_t row = blockIdx.x;
	const T *x = static_cast<const T *>(a.logits) + row * a.ld;
	T *d = static_cast<T *>(a.dlogits) + row * a.ld;
	int32_t label = a.labels[row];
	online o = {-INFINITY, 0.f};
	float v[MFK_N], at_label = 0, lse, scale;

	if (label < 0 || label >= a.vocab) {
		if (threadIdx.x == 0)
			*reinterpret_cast<volatile uint64_t *>(fault) =
				static_cast<uint64_t>(MFK_FAULT_LABEL) << 32 |
				static_cast<uint32_t>(label);
		return;
	}
	/* dlogits may be logits: whoever needs this one reads it before the gradient is written. */
	if (threadIdx.x == 0)
		at_label = to_float(x[label]);
#pragma unroll 2
	for (int64_t col = threadIdx.x * MFK_N; col < a.vocab; col += blockDim.x * MFK_N) {
		load(v, x + col, a.vocab - col, wide);
		take(o, v, a.vocab - col);
	}
	o = merge(o, room);
	lse = o.most + logf(o.sum);
	if (threadIdx.x == 0) {
		a.loss[row] = lse - at_label;
		if (a.lse)
			a.lse[row] = lse;
	}
	if (!a.dlogits)
		return;
	scale = a.scale[row];
#pragma unroll 2
	for (int64_t col = threadIdx.x * MFK_N; col < a.vocab; col += blockDim.x * MFK_N) {
		load(v, x + col, a.vocab - col, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			v[k] = (__expf(v[k] - lse) - (col + k == label ? 1.f : 0.f)) * scale;
		store(d + col, v, a.vocab - col, wide);
	}
}

void mfk_cuda_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	int64_t threads = ceil_div(ceil_div(a->vocab, MFK_N), 32) * 32;
	bool wide = aligned(a->logits, a->dlogits) && a->ld % MFK_N == 0;

	if (a->rows <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		cross_entropy_kernel<T><<<static_cast<unsigned>(a->rows),
					  static_cast<unsigned>(threads), 0, c->stream>>>(
			*a, wide, c->fault);
	});
	mfk_cuda_end(c, "cross entropy");
}
