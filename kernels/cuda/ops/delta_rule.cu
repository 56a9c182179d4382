/*
 * The rule of a gated delta net, token by token. Columns of a state do not depend on each other: a
 * warp has some of them, and a lane every 32nd row of these, in registers. So a token is two sums
 * over a warp's lanes, and no warp waits for another one.
 *
 * Backward has a block for a head of one sequence, since gradients of q and k are sums over all
 * columns. It computes the states that chunks begin with, and then, from the last chunk on, those
 * of a chunk; each thread has its own part of them in scratch. A token's sums over warps are in
 * shared memory, in one of two places by turns, so that a token is one barrier. Heads of values
 * that share q and k are added up at the end.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>

#include <algorithm>

#define LARGEST	      256 /* elements of a head */
#define FORWARD_WARPS 4	  /* of a block */
#define FORWARD_COLS  4	  /* of a warp */
#define MOST_WARPS    32

/* A head of values in one sequence, and what a thread has of its state: columns from col on, and
 * every 32nd row from lane on. */
struct seat {
	int64_t sequence, values, keys;
	int col, lane;
};

static __device__ __forceinline__ seat seat_of(const mfk_delta &a, int64_t unit, int col)
{
	const int64_t values = unit % a.value_heads;

	return {unit / a.value_heads, values, values * a.key_heads / a.value_heads, col,
		static_cast<int>(threadIdx.x % 32)};
}

static __device__ __forceinline__ int64_t key_at(const mfk_delta &a, const seat &s, int64_t t)
{
	return ((s.sequence * a.seq + t) * a.key_heads + s.keys) * a.key_dim;
}

static __device__ __forceinline__ int64_t rate_at(const mfk_delta &a, const seat &s, int64_t t)
{
	return (s.sequence * a.seq + t) * a.value_heads + s.values;
}

/* A thread's rows of a key, 0 where there are none. */
template <typename T, int R>
static __device__ __forceinline__ void load_rows(float *x, const mfk_delta &a, const seat &s,
						 const void *from, int64_t t)
{
	const T *p = static_cast<const T *>(from) + key_at(a, s, t);

#pragma unroll
	for (int r = 0; r < R; r++)
		x[r] = s.lane + 32 * r < a.key_dim ? to_float(p[s.lane + 32 * r]) : 0.f;
}

/* Its columns of a value. */
template <typename T, int C>
static __device__ __forceinline__ void load_columns(float *x, const mfk_delta &a, const seat &s,
						    const void *from, int64_t t)
{
	const T *p = static_cast<const T *>(from) + rate_at(a, s, t) * a.value_dim;

#pragma unroll
	for (int j = 0; j < C; j++)
		x[j] = s.col + j < a.value_dim ? to_float(p[s.col + j]) : 0.f;
}

/* Lane j of the first ones writes column j. */
template <typename T, int C>
static __device__ __forceinline__ void store_columns(const float *x, const mfk_delta &a,
						     const seat &s, void *to, int64_t t)
{
	T *p = static_cast<T *>(to) + rate_at(a, s, t) * a.value_dim;

#pragma unroll
	for (int j = 0; j < C; j++)
		if (s.lane == j && s.col + j < a.value_dim)
			p[s.col + j] = from_float<T>(x[j]);
}

template <int C> static __device__ __forceinline__ void sum_lanes(float *x)
{
#pragma unroll
	for (int j = 0; j < C; j++)
		x[j] = lane_sum(x[j], 32);
}

/* What a state needs of a token. */
template <int R, int C> struct Token {
	float k[R], v[C], fade, beta;
};

template <typename T, int R, int C>
static __device__ __forceinline__ void load_token(Token<R, C> &x, const mfk_delta &a, const seat &s,
						  int64_t t)
{
	load_rows<T, R>(x.k, a, s, a.k, t);
	load_columns<T, C>(x.v, a, s, a.v, t);
	x.fade = expf(a.decay[rate_at(a, s, t)]);
	x.beta = a.beta[rate_at(a, s, t)];
}

/* state = fade state; d = v - state^T k */
template <int R, int C>
static __device__ __forceinline__ void fade_state(float (&state)[R][C], const Token<R, C> &x,
						  float *d)
{
#pragma unroll
	for (int j = 0; j < C; j++)
		d[j] = 0;
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int j = 0; j < C; j++) {
			state[r][j] *= x.fade;
			d[j] += x.k[r] * state[r][j];
		}
	sum_lanes<C>(d);
#pragma unroll
	for (int j = 0; j < C; j++)
		d[j] = x.v[j] - d[j];
}

/* state += k (by d)^T */
template <int R, int C>
static __device__ __forceinline__ void add_outer(float (&state)[R][C], const float *k,
						 const float *d, float by)
{
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int j = 0; j < C; j++)
			state[r][j] += k[r] * (by * d[j]);
}

/* ---- forward ---- */

template <typename T, int R>
static __global__ void __launch_bounds__(FORWARD_WARPS * 32) rule_kernel(mfk_delta a)
{
	constexpr int C = FORWARD_COLS;
	const int warp = blockIdx.x * FORWARD_WARPS + threadIdx.x / 32;
	const seat s = seat_of(a, blockIdx.y, warp * C);
	float state[R][C] = {}, q[R], next_q[R] = {}, d[C], out[C];
	Token<R, C> x, next;

	if (s.col >= a.value_dim)
		return;
	load_token<T>(next, a, s, 0);
	load_rows<T, R>(next_q, a, s, a.q, 0);
	for (int64_t t = 0; t < a.seq; t++) {
		x = next;
#pragma unroll
		for (int r = 0; r < R; r++)
			q[r] = next_q[r];
		if (t + 1 < a.seq) {
			load_token<T>(next, a, s, t + 1);
			load_rows<T, R>(next_q, a, s, a.q, t + 1);
		}
		fade_state(state, x, d);
		add_outer(state, x.k, d, x.beta);
#pragma unroll
		for (int j = 0; j < C; j++)
			out[j] = 0;
#pragma unroll
		for (int r = 0; r < R; r++)
#pragma unroll
			for (int j = 0; j < C; j++)
				out[j] += q[r] * state[r][j];
		sum_lanes<C>(out);
#pragma unroll
		for (int j = 0; j < C; j++)
			out[j] *= a.scale;
		store_columns<T, C>(out, a, s, a.out, t);
	}
}

/* ---- backward ---- */

/* How a head is divided among a block's threads: R rows and C columns each. */
struct division {
	int rows, cols, warps;
};

static division division_of(const struct mfk_delta *a)
{
	const int rows = a->key_dim <= 32 ? 1 : a->key_dim <= 64 ? 2 : a->key_dim <= 128 ? 4 : 8;
	const int cols = a->value_dim <= 4 * MOST_WARPS ? 4 : 8;

	return {rows, cols, static_cast<int>(ceil_div(a->value_dim, cols))};
}

static int64_t chunks(const struct mfk_delta *a)
{
	const int64_t chunk = mfk_delta_chunk(a->seq);

	return ceil_div(a->seq, chunk);
}

/* Floats of all states of a head of one sequence: those that chunks begin with, then a chunk's. */
static int64_t states_floats(const struct mfk_delta *a)
{
	const division d = division_of(a);

	return (chunks(a) + mfk_delta_chunk(a->seq)) * d.warps * 32 * d.rows * d.cols;
}

static int64_t heads_floats(const struct mfk_delta *a)
{
	return a->batch * a->seq * a->value_heads * a->key_dim;
}

/* States, and then dq and dk of each head of values; or what backward of the inputs has there. */
size_t mfk_cuda_delta_scratch(struct mfk_device *d, const struct mfk_delta *a)
{
	const int64_t rule = a->batch * a->value_heads * states_floats(a) + 2 * heads_floats(a);
	const int64_t inputs =
		a->batch * a->seq * (2 * a->key_heads * a->key_dim + a->value_heads * a->value_dim);

	(void)d;
	return static_cast<size_t>(std::max(rule, inputs)) * sizeof(float);
}

/* Where a block's threads have their states; element e of a state of thread i is at e * threads +
 * i. */
struct States {
	float *begins, *chunk; /* this thread's */
	int64_t step;	       /* from state to state */
	int threads;
};

template <int R, int C>
static __device__ __forceinline__ void put(float *to, const float (&state)[R][C], int threads)
{
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int j = 0; j < C; j++)
			to[(r * C + j) * threads] = state[r][j];
}

template <int R, int C>
static __device__ __forceinline__ void get(float (&state)[R][C], const float *from, int threads)
{
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int j = 0; j < C; j++)
			state[r][j] = from[(r * C + j) * threads];
}

/* Runs tokens, and keeps the state before each one that first + i * every is. */
template <typename T, int R, int C>
static __device__ __forceinline__ void run_states(const mfk_delta &a, const seat &s,
						  float (&state)[R][C], int64_t begin, int64_t end,
						  float *to, int64_t every, const States &p)
{
	Token<R, C> x;
	float d[C];

	for (int64_t t = begin; t < end; t++) {
		if ((t - begin) % every == 0)
			put(to + (t - begin) / every * p.step, state, p.threads);
		load_token<T>(x, a, s, t);
		fade_state(state, x, d);
		add_outer(state, x.k, d, x.beta);
	}
}

/* A warp's terms of a token's sums: dq and dk of all rows, ddecay and dbeta. */
#define TERMS(R) (2 * 32 * (R) + 2)

template <typename T, int R, int C>
static __device__ __forceinline__ void token_backward(const mfk_delta &a, const seat &s,
						      const float *before, float (&ds)[R][C],
						      int64_t t, float *terms, const States &p)
{
	float state[R][C], q[R], dout[C], d[C], dd[C], of_decay = 0, of_beta = 0;
	Token<R, C> x;

	load_token<T>(x, a, s, t);
	load_rows<T, R>(q, a, s, a.q, t);
	load_columns<T, C>(dout, a, s, a.dout, t);
	get(state, before, p.threads);
	fade_state(state, x, d);
#pragma unroll
	for (int j = 0; j < C; j++) {
		dout[j] *= a.scale;
		dd[j] = 0;
	}
	add_outer(ds, q, dout, 1.f);
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int j = 0; j < C; j++)
			dd[j] += ds[r][j] * x.k[r];
	sum_lanes<C>(dd);
#pragma unroll
	for (int j = 0; j < C; j++) {
		of_beta += dd[j] * d[j];
		d[j] *= x.beta;
		dd[j] *= x.beta; /* dv */
	}
	store_columns<T, C>(dd, a, s, a.dv, t);
#pragma unroll
	for (int r = 0; r < R; r++) {
		float dq = 0, dk = 0;

#pragma unroll
		for (int j = 0; j < C; j++) {
			dq += dout[j] * (state[r][j] + x.k[r] * d[j]);
			dk += ds[r][j] * d[j] - state[r][j] * dd[j];
			ds[r][j] -= x.k[r] * dd[j];
			of_decay += state[r][j] * ds[r][j];
			ds[r][j] *= x.fade;
		}
		terms[s.lane + 32 * r] = dq;
		terms[32 * R + s.lane + 32 * r] = dk;
	}
	of_decay = lane_sum(of_decay, 32);
	if (s.lane == 0) {
		terms[64 * R] = of_decay;
		terms[64 * R + 1] = of_beta;
	}
}

/* Sums over the warps, of one term after the other. dq, dk: [T, value_heads, key_dim] */
template <int R>
static __device__ __forceinline__ void add_terms(const mfk_delta &a, const seat &s,
						 const float *room, int64_t t, float *dq, float *dk)
{
	const int64_t rate = rate_at(a, s, t);
	const int warps = blockDim.x / 32;

	for (int i = threadIdx.x; i < TERMS(R); i += blockDim.x) {
		const int row = i % (32 * R);
		float sum = 0;

		for (int j = 0; j < warps; j++)
			sum += room[j * TERMS(R) + i];
		if (i >= 64 * R)
			(i == 64 * R ? a.ddecay : a.dbeta)[rate] = sum;
		else if (row < a.key_dim)
			(i < 32 * R ? dq : dk)[rate * a.key_dim + row] = sum;
	}
}

template <typename T, int R, int C>
static __global__ void __launch_bounds__(MOST_WARPS * 32)
	rule_backward_kernel(mfk_delta a, int64_t chunk, int64_t count, float *dq, float *dk)
{
	extern __shared__ float room[]; /* twice [warps, TERMS(R)] */
	const int warp = threadIdx.x / 32, terms = blockDim.x / 32 * TERMS(R);
	const seat s = seat_of(a, blockIdx.x, warp * C);
	States p;
	float state[R][C] = {}, ds[R][C] = {};

	p.threads = blockDim.x;
	p.step = static_cast<int64_t>(R * C) * p.threads;
	p.begins = static_cast<float *>(a.scratch) + blockIdx.x * (count + chunk) * p.step +
		   threadIdx.x;
	p.chunk = p.begins + count * p.step;
	run_states<T>(a, s, state, 0, a.seq, p.begins, chunk, p);
	for (int64_t n = count - 1; n >= 0; n--) {
		const int64_t begin = n * chunk, end = min(begin + chunk, a.seq);

		get(state, p.begins + n * p.step, p.threads);
		run_states<T>(a, s, state, begin, end, p.chunk, 1, p);
		for (int64_t t = end - 1; t >= begin; t--) {
			float *here = room + t % 2 * terms;

			token_backward<T>(a, s, p.chunk + (t - begin) * p.step, ds, t,
					  here + warp * TERMS(R), p);
			__syncthreads();
			add_terms<R>(a, s, here, t, dq, dk);
		}
	}
}

/* to [T, key_heads, key_dim] = sums of from's heads of values that share a head of keys. */
template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS)
	sum_heads_kernel(mfk_delta a, T *to, const float *from)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;
	const int64_t share = a.value_heads / a.key_heads;
	float sum = 0;

	if (i >= a.batch * a.seq * a.key_heads * a.key_dim)
		return;
	for (int64_t h = 0; h < share; h++)
		sum += from[(i / a.key_dim * share + h) * a.key_dim + i % a.key_dim];
	to[i] = from_float<T>(sum);
}

/* ---- launches ---- */

/* Calls f with the number of rows of a thread. */
template <typename F> static void with_rows(int rows, F f)
{
	if (rows == 1)
		f(std::integral_constant<int, 1>());
	else if (rows == 2)
		f(std::integral_constant<int, 2>());
	else if (rows == 4)
		f(std::integral_constant<int, 4>());
	else
		f(std::integral_constant<int, 8>());
}

static bool begin(struct mfk_ctx *c, const struct mfk_delta *a)
{
	if (a->batch * a->seq <= 0 || !mfk_cuda_begin(c))
		return false;
	if (a->key_dim <= LARGEST && a->value_dim <= LARGEST)
		return true;
	mfk_cuda_fail(c, -ENOTSUP,
		      "a gated delta net has heads of %lld and %lld elements; at most %d are "
		      "possible",
		      (long long)a->key_dim, (long long)a->value_dim, LARGEST);
	return false;
}

void mfk_cuda_delta_rule(struct mfk_ctx *c, const struct mfk_delta *a)
{
	const dim3 grid(static_cast<unsigned>(ceil_div(a->value_dim, FORWARD_WARPS * FORWARD_COLS)),
			static_cast<unsigned>(a->batch * a->value_heads));

	if (!begin(c, a))
		return;
	with_type(a->dtype, [&](auto tag) {
		with_rows(division_of(a).rows, [&](auto rows) {
			rule_kernel<typename decltype(tag)::type, decltype(rows)::value>
				<<<grid, FORWARD_WARPS * 32, 0, c->stream>>>(*a);
		});
	});
	mfk_cuda_end(c, "rule of a gated delta net");
}

/* dq, dk: of each head of values. */
template <typename T, int R, int C>
static void backward(struct mfk_ctx *c, const struct mfk_delta *a, float *dq, float *dk)
{
	const division d = division_of(a);
	const size_t room = 2 * sizeof(float) * d.warps * TERMS(R);
	auto kernel = rule_backward_kernel<T, R, C>;

	if (!mfk_cuda_check(c,
			    cudaFuncSetAttribute(kernel,
						 cudaFuncAttributeMaxDynamicSharedMemorySize,
						 static_cast<int>(room)),
			    "rule of a gated delta net"))
		return;
	kernel<<<static_cast<unsigned>(a->batch * a->value_heads), d.warps * 32, room, c->stream>>>(
		*a, mfk_delta_chunk(a->seq), chunks(a), dq, dk);
}

template <typename T>
static void sum_heads(struct mfk_ctx *c, const struct mfk_delta *a, const float *dq,
		      const float *dk)
{
	const unsigned blocks = static_cast<unsigned>(
		ceil_div(a->batch * a->seq * a->key_heads * a->key_dim, MFK_THREADS));

	sum_heads_kernel<T><<<blocks, MFK_THREADS, 0, c->stream>>>(*a, static_cast<T *>(a->dq), dq);
	sum_heads_kernel<T><<<blocks, MFK_THREADS, 0, c->stream>>>(*a, static_cast<T *>(a->dk), dk);
}

void mfk_cuda_delta_rule_backward(struct mfk_ctx *c, const struct mfk_delta *a)
{
	const division d = division_of(a);
	float *dq, *dk;

	if (!begin(c, a))
		return;
	dq = static_cast<float *>(a->scratch) + a->batch * a->value_heads * states_floats(a);
	dk = dq + heads_floats(a);
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		with_rows(d.rows, [&](auto rows) {
			if (d.cols == 4)
				backward<T, decltype(rows)::value, 4>(c, a, dq, dk);
			else
				backward<T, decltype(rows)::value, 8>(c, a, dq, dk);
		});
		sum_heads<T>(c, a, dq, dk);
	});
	mfk_cuda_end(c, "gradient of the rule of a gated delta net");
}
