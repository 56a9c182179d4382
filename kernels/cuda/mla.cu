/* Queries, keys and values of multi-latent attention: a block has a token, a thread an element. */
#include "kernels/cuda/vec.cuh"

/* Where a token's numbers begin. */
struct place {
	int64_t q, kv, v, rope, angles;
	int head, kv_head, half;
};

static __device__ __forceinline__ place place_of(const mfk_mla &a)
{
	int64_t t = blockIdx.x;
	place p;

	p.head = static_cast<int>(a.nope + a.rope);
	p.kv_head = static_cast<int>(a.nope + a.v_dim);
	p.half = static_cast<int>(a.rotary_dim) / 2;
	p.q = t * a.heads * p.head;
	p.kv = t * a.heads * p.kv_head;
	p.v = t * a.heads * a.v_dim;
	p.rope = t * a.rope;
	p.angles = p.half ? static_cast<int64_t>(a.positions[t]) * p.half : 0;
	return p;
}

/* Element i of x turned: neighbours become two halves. */
template <typename T>
static __device__ __forceinline__ float turned(const mfk_mla &a, const place &p, const T *x, int i)
{
	int pair = i < p.half ? i : i - p.half;
	float x1, x2, cos, sin;

	if (i >= 2 * p.half)
		return to_float(x[i]);
	x1 = to_float(x[2 * pair]);
	x2 = to_float(x[2 * pair + 1]);
	cos = a.cos[p.angles + pair];
	sin = a.sin[p.angles + pair];
	return i < p.half ? x1 * cos - x2 * sin : x2 * cos + x1 * sin;
}

/* Element i of what had y1 in the first half of a turned pair, and y2 in the second. */
static __device__ __forceinline__ float turned_back(const mfk_mla &a, const place &p, float y1,
						    float y2, int i)
{
	float cos = a.cos[p.angles + i / 2], sin = a.sin[p.angles + i / 2];

	return i % 2 ? y2 * cos - y1 * sin : y1 * cos + y2 * sin;
}

template <typename T> static __global__ void __launch_bounds__(MFK_THREADS) mla_kernel(mfk_mla a)
{
	const place p = place_of(a);
	const T *q_up = static_cast<const T *>(a.q_up) + p.q;
	const T *kv_up = static_cast<const T *>(a.kv_up) + p.kv;
	const T *k_rope = static_cast<const T *>(a.k_rope) + p.rope;
	const int nope = static_cast<int>(a.nope), heads = static_cast<int>(a.heads);
	const int v_dim = static_cast<int>(a.v_dim);

	for (int i = threadIdx.x; i < heads * p.head; i += MFK_THREADS) {
		int h = i / p.head, e = i % p.head;
		const T *of = q_up + h * p.head;
		bool plain = e < nope;
		float q = plain ? to_float(of[e]) : turned(a, p, of + nope, e - nope);
		float k =
			plain ? to_float(kv_up[h * p.kv_head + e]) : turned(a, p, k_rope, e - nope);

		static_cast<T *>(a.q)[p.q + i] = from_float<T>(q);
		static_cast<T *>(a.k)[p.q + i] = from_float<T>(k);
	}
	for (int i = threadIdx.x; i < heads * v_dim; i += MFK_THREADS)
		static_cast<T *>(a.v)[p.v + i] = kv_up[i / v_dim * p.kv_head + nope + i % v_dim];
}

/* The gradient of element i of what was turned: get(j) is that of element j of the result. */
template <typename F>
static __device__ __forceinline__ float back(const mfk_mla &a, const place &p, int i, F get)
{
	if (i >= 2 * p.half)
		return get(i);
	return turned_back(a, p, get(i / 2), get(i / 2 + p.half), i);
}

template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS) mla_backward_kernel(mfk_mla a)
{
	const place p = place_of(a);
	const T *dq = static_cast<const T *>(a.dq) + p.q;
	const T *dk = static_cast<const T *>(a.dk) + p.q;
	const T *dv = static_cast<const T *>(a.dv) + p.v;
	const int nope = static_cast<int>(a.nope), heads = static_cast<int>(a.heads);

	for (int i = threadIdx.x; i < heads * p.head; i += MFK_THREADS) {
		int e = i % p.head;
		const T *of = dq + i / p.head * p.head + nope;
		float d = e < nope ? to_float(dq[i])
				   : back(a, p, e - nope, [&](int j) { return to_float(of[j]); });

		static_cast<T *>(a.dq_up)[p.q + i] = from_float<T>(d);
	}
	for (int i = threadIdx.x; i < heads * p.kv_head; i += MFK_THREADS) {
		int h = i / p.kv_head, e = i % p.kv_head;

		static_cast<T *>(a.dkv_up)[p.kv + i] =
			e < nope ? dk[h * p.head + e] : dv[h * a.v_dim + e - nope];
	}
	for (int i = threadIdx.x; i < a.rope; i += MFK_THREADS) {
		float d = back(a, p, i, [&](int j) {
			float sum = 0;

			for (int h = 0; h < heads; h++)
				sum += to_float(dk[h * p.head + nope + j]);
			return sum;
		});

		static_cast<T *>(a.dk_rope)[p.rope + i] = from_float<T>(d);
	}
}

void mfk_cuda_mla(struct mfk_ctx *c, const struct mfk_mla *a)
{
	if (a->tokens <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		mla_kernel<T><<<static_cast<unsigned>(a->tokens), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "mla");
}

void mfk_cuda_mla_backward(struct mfk_ctx *c, const struct mfk_mla *a)
{
	if (a->tokens <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		mla_backward_kernel<T>
			<<<static_cast<unsigned>(a->tokens), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "mla's gradient");
}
