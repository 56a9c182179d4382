/*
 * What the rule of a gated delta net starts from: convolutions, lengths, decay and beta.
 *
 * A block has a token, and a warp of it one head after the other. What a head's length needs is
 * computed twice, so that heads may have any size. Backward is four kernels: gradients before SiLU,
 * which go to scratch in fp32; those of the columns that were convolved; those of conv; and rates.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/ops/columns.cuh"

#include <algorithm>

#define WARPS (MFK_THREADS / 32)

/* Elements of a token: of q or k, of v, of what is convolved, of all. */
struct widths {
	int64_t k, v, conv, all;
};

static __host__ __device__ widths widths_of(const mfk_delta &a)
{
	const int64_t k = a.key_heads * a.key_dim, v = a.value_heads * a.value_dim;

	return {k, v, 2 * k + v, 2 * (k + v + a.value_heads)};
}

/* A head of q, k or v: its first column, and its place in the token's row of that part. */
struct head {
	int part; /* 0, 1, 2 */
	int64_t first, at, dim;
};

static __device__ __forceinline__ head head_of(const mfk_delta &a, const widths &w, int64_t h)
{
	const int part = h < a.key_heads ? 0 : h < 2 * a.key_heads ? 1 : 2;
	const int64_t number = h - part * a.key_heads, dim = part == 2 ? a.value_dim : a.key_dim;

	return {part, part * w.k + number * dim, number * dim, dim};
}

static __device__ __forceinline__ float sigmoid(float x)
{
	return 1.f / (1.f + expf(-x));
}

static __device__ __forceinline__ float softplus(float x)
{
	return x > 20.f ? x : log1pf(expf(x));
}

/* A column of a token, before SiLU. */
template <typename T>
static __device__ __forceinline__ float convolved(const mfk_delta &a, const widths &w, int64_t t,
						  int64_t column)
{
	const T *x = static_cast<const T *>(a.packed) + t * w.all + column;
	const T *conv = static_cast<const T *>(a.conv) + column * a.width;
	const int64_t most = min(t % a.seq, a.width - 1);
	float sum = 0;

	for (int64_t back = most; back >= 0; back--)
		sum += to_float(conv[a.width - 1 - back]) * to_float(x[-back * w.all]);
	return sum;
}

/* ---- forward ---- */

template <typename T>
static __device__ __forceinline__ void rates(const mfk_delta &a, const widths &w, int64_t t)
{
	const T *b = static_cast<const T *>(a.packed) + t * w.all + w.all - 2 * a.value_heads;

	for (int64_t h = threadIdx.x; h < a.value_heads; h += MFK_THREADS) {
		const float x = to_float(b[a.value_heads + h]) +
				to_float(static_cast<const T *>(a.dt_bias)[h]);

		a.decay[t * a.value_heads + h] =
			-expf(to_float(static_cast<const T *>(a.a_log)[h])) * softplus(x);
		a.beta[t * a.value_heads + h] = sigmoid(to_float(b[h]));
	}
}

template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS) inputs_kernel(mfk_delta a)
{
	const widths w = widths_of(a);
	const int64_t t = blockIdx.x;
	const int lane = threadIdx.x % 32;

	for (int64_t i = threadIdx.x / 32; i < 2 * a.key_heads + a.value_heads; i += WARPS) {
		const head h = head_of(a, w, i);
		T *y = static_cast<T *>(h.part == 0   ? a.q
					: h.part == 1 ? a.k
						      : a.v) +
		       t * (h.part == 2 ? w.v : w.k) + h.at;
		float squares = 0, by = 1;

		for (int64_t j = lane; h.part < 2 && j < h.dim; j += 32) {
			const float u = convolved<T>(a, w, t, h.first + j), x = u * sigmoid(u);

			squares += x * x;
		}
		if (h.part < 2)
			by = rsqrtf(lane_sum(squares, 32) + MFK_DELTA_EPS);
		for (int64_t j = lane; j < h.dim; j += 32) {
			const float u = convolved<T>(a, w, t, h.first + j);

			y[j] = from_float<T>(u * sigmoid(u) * by);
		}
	}
	rates<T>(a, w, t);
}

void mfk_cuda_delta_inputs(struct mfk_ctx *c, const struct mfk_delta *a)
{
	const int64_t tokens = a->batch * a->seq;

	if (tokens <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		inputs_kernel<T><<<static_cast<unsigned>(tokens), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "inputs of a gated delta net");
}

/* ---- backward ---- */

/* du [T, columns]: gradients before SiLU. */
template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS) before_silu_kernel(mfk_delta a, float *du)
{
	const widths w = widths_of(a);
	const int64_t t = blockIdx.x;
	const int lane = threadIdx.x % 32;

	for (int64_t i = threadIdx.x / 32; i < 2 * a.key_heads + a.value_heads; i += WARPS) {
		const head h = head_of(a, w, i);
		const T *d = static_cast<const T *>(h.part == 0	  ? a.dq
						    : h.part == 1 ? a.dk
								  : a.dv) +
			     t * (h.part == 2 ? w.v : w.k) + h.at;
		float squares = 0, product = 0, by = 1;

		for (int64_t j = lane; h.part < 2 && j < h.dim; j += 32) {
			const float u = convolved<T>(a, w, t, h.first + j), x = u * sigmoid(u);

			squares += x * x;
			product += x * to_float(d[j]);
		}
		if (h.part < 2) {
			by = rsqrtf(lane_sum(squares, 32) + MFK_DELTA_EPS);
			product = lane_sum(product, 32) * by * by;
		}
		for (int64_t j = lane; j < h.dim; j += 32) {
			const float u = convolved<T>(a, w, t, h.first + j), s = sigmoid(u);
			const float dx = by * (to_float(d[j]) - u * s * product);

			du[t * w.conv + h.first + j] = dx * (s + u * s * (1.f - s));
		}
	}
}

template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS)
	convolved_backward_kernel(mfk_delta a, const float *du)
{
	const widths w = widths_of(a);
	const int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;
	const int64_t t = i / w.conv, column = i % w.conv;
	const T *conv = static_cast<const T *>(a.conv) + column * a.width;
	int64_t most;
	float sum = 0;

	if (t >= a.batch * a.seq)
		return;
	most = min(a.seq - 1 - t % a.seq, a.width - 1);
	for (int64_t ahead = 0; ahead <= most; ahead++)
		sum += to_float(conv[a.width - 1 - ahead]) * du[(t + ahead) * w.conv + column];
	static_cast<T *>(a.dpacked)[t * w.all + column] = from_float<T>(sum);
}

/* parts [blocks, columns, width]: of block.z's tokens, for one of the width elements. */
template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS)
	conv_backward_kernel(mfk_delta a, const float *du, float *parts, int64_t each)
{
	const widths w = widths_of(a);
	const int64_t column = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;
	const int64_t back = a.width - 1 - blockIdx.y, begin = blockIdx.z * each;
	const int64_t end = min(begin + each, a.batch * a.seq);
	float sum = 0;

	if (column >= w.conv)
		return;
	for (int64_t t = begin; t < end; t++)
		if (back <= t % a.seq)
			sum += du[t * w.conv + column] *
			       to_float(static_cast<const T *>(
				       a.packed)[(t - back) * w.all + column]);
	parts[(blockIdx.z * w.conv + column) * a.width + blockIdx.y] = sum;
}

/* parts [2, blocks, value_heads]: gradients of a_log and of dt_bias, by block.y's tokens. */
template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS)
	rates_backward_kernel(mfk_delta a, float *parts, int64_t each)
{
	__shared__ float room[WARPS];
	const widths w = widths_of(a);
	const int64_t h = blockIdx.x, begin = blockIdx.y * each, heads = a.value_heads;
	const int64_t end = min(begin + each, a.batch * a.seq);
	const float rate = -expf(to_float(static_cast<const T *>(a.a_log)[h]));
	const float bias = to_float(static_cast<const T *>(a.dt_bias)[h]);
	float of_log = 0, of_bias = 0;

	for (int64_t t = begin + threadIdx.x; t < end; t += MFK_THREADS) {
		const int64_t at = t * w.all + w.all - 2 * heads + h;
		const T *b = static_cast<const T *>(a.packed) + at;
		T *db = static_cast<T *>(a.dpacked) + at;
		const float x = to_float(b[heads]) + bias, d = a.ddecay[t * heads + h] * rate;
		const float beta = sigmoid(to_float(b[0])), dx = d * sigmoid(x);

		of_log += d * softplus(x);
		of_bias += dx;
		db[0] = from_float<T>(a.dbeta[t * heads + h] * beta * (1.f - beta));
		db[heads] = from_float<T>(dx);
	}
	of_log = row_sum(of_log, room);
	of_bias = row_sum(of_bias, room);
	if (threadIdx.x == 0) {
		parts[blockIdx.y * heads + h] = of_log;
		parts[(gridDim.y + blockIdx.y) * heads + h] = of_bias;
	}
}

/* Tokens of a block that adds up over them, and how many such blocks there are. */
struct slices {
	int64_t each;
	unsigned count;
};

static slices slices_of(int64_t tokens)
{
	const int64_t each = std::max<int64_t>(ceil_div(tokens, 32), 64);

	return {each, static_cast<unsigned>(ceil_div(tokens, each))};
}

template <typename T>
static void backward(struct mfk_ctx *c, const struct mfk_delta *a, float *parts, const slices &s)
{
	const widths w = widths_of(*a);
	const int64_t tokens = a->batch * a->seq;
	const unsigned columns = static_cast<unsigned>(ceil_div(w.conv, MFK_THREADS));
	float *du = static_cast<float *>(a->scratch);
	float *of_rates = parts + s.count * w.conv * a->width;

	before_silu_kernel<T><<<static_cast<unsigned>(tokens), MFK_THREADS, 0, c->stream>>>(*a, du);
	convolved_backward_kernel<T>
		<<<static_cast<unsigned>(ceil_div(tokens * w.conv, MFK_THREADS)), MFK_THREADS, 0,
		   c->stream>>>(*a, du);
	conv_backward_kernel<T><<<dim3(columns, static_cast<unsigned>(a->width), s.count),
				  MFK_THREADS, 0, c->stream>>>(*a, du, parts, s.each);
	rates_backward_kernel<T><<<dim3(static_cast<unsigned>(a->value_heads), s.count),
				   MFK_THREADS, 0, c->stream>>>(*a, of_rates, s.each);
}

void mfk_cuda_delta_inputs_backward(struct mfk_ctx *c, const struct mfk_delta *a)
{
	const widths w = widths_of(*a);
	const slices s = slices_of(a->batch * a->seq);
	const int64_t heads = a->value_heads, of_conv = s.count * w.conv * a->width;
	float *parts;

	if (a->batch * a->seq <= 0 || !mfk_cuda_begin(c))
		return;
	parts = static_cast<float *>(mfk_cuda_scratch(
		c, static_cast<size_t>(of_conv + 2 * s.count * heads) * sizeof(float),
		"inputs of a gated delta net"));
	if (!parts)
		return;
	with_type(a->dtype,
		  [&](auto tag) { backward<typename decltype(tag)::type>(c, a, parts, s); });
	mfk_cuda_add_columns(c, a->grad, a->dconv, parts, s.count, w.conv * a->width);
	mfk_cuda_add_columns(c, a->grad, a->da_log, parts + of_conv, s.count, heads);
	mfk_cuda_add_columns(c, a->grad, a->ddt_bias, parts + of_conv + s.count * heads, s.count,
			     heads);
	mfk_cuda_end(c, "gradient of inputs of a gated delta net");
}
