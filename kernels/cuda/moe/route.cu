/*
 * The router of a mixture of experts: a warp has a token, and its numbers of all experts are in
 * shared memory. Sums over experts are in the order of lanes; counts of tokens are integers.
 */
#include "kernels/cuda/base/operations.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>
#include <math.h>

#define TINY	    1e-20f /* Megatron adds it to a sum that it divides by */
#define ROOM_MOST   49152  /* bytes of shared memory of a block */
#define WARPS_MOST  8
#define ROW_NUMBERS 5 /* of each expert */
#define FULL	    0xffffffffu

enum { FREE, CLOSED, CHOSEN };

/* A token's numbers. */
struct row {
	float *logits, *score, *key, *sum;
	int *chosen;
	int lane;
};

static __device__ __forceinline__ row row_of(float *room, int warp, int64_t experts)
{
	float *at = room + warp * ROW_NUMBERS * experts;
	row r;

	r.logits = at;
	r.score = at + experts;
	r.key = at + 2 * experts;
	r.sum = at + 3 * experts;
	r.chosen = reinterpret_cast<int *>(at + 4 * experts);
	r.lane = threadIdx.x % 32;
	return r;
}

/* y = e^(x - most), divided by the sum; returns the logarithm of the sum of e^x. y may be x. */
static __device__ float softmax(const float *x, int n, float *y, int lane)
{
	float most = -INFINITY, sum = 0;

	for (int i = lane; i < n; i += 32)
		most = fmaxf(most, x[i]);
	most = lane_max(most);
	for (int i = lane; i < n; i += 32)
		sum += expf(x[i] - most);
	sum = lane_sum(sum, 32);
	for (int i = lane; i < n; i += 32)
		y[i] = expf(x[i] - most) / sum;
	__syncwarp();
	return most + logf(sum);
}

static __device__ __forceinline__ float sigmoid(float x)
{
	return 1.f / (1.f + expf(-x));
}

static __device__ __forceinline__ float slope(enum mfk_score kind, float logit, float score)
{
	float s;

	if (kind == MFK_SCORE_SIGMOID)
		return score * (1.f - score);
	s = sigmoid(logit);
	return score > 0 ? s / (2.f * score) : 0.f;
}

/* Logits, and scores before any division of those that are no softmax. */
template <typename T>
static __device__ void load_token(const mfk_route &a, int64_t token, const row &r)
{
	const int n = a.experts;

	for (int e = r.lane; e < n; e += 32)
		r.logits[e] = to_float(static_cast<const T *>(a.logits)[token * n + e]);
	__syncwarp();
	if (a.score == MFK_SCORE_SOFTMAX) {
		softmax(r.logits, n, r.score, r.lane);
		return;
	}
	for (int e = r.lane; e < n; e += 32) {
		float x = r.logits[e];

		r.score[e] = a.score == MFK_SCORE_SIGMOID ? sigmoid(x)
							  : sqrtf(x > 20.f ? x : log1pf(expf(x)));
	}
	__syncwarp();
}

/* ---- choices ---- */

/* The best of [first, end) that is free; of equal ones the first. There is one. No key is NaN. */
static __device__ int best(const float *key, const int *chosen, int first, int end, int lane)
{
	float most = 0;
	int found = -1;

	for (int i = first + lane; i < end; i += 32)
		if (chosen[i] == FREE && (found < 0 || key[i] > most)) {
			most = key[i];
			found = i;
		}
	for (int step = 16; step > 0; step /= 2) {
		float other = __shfl_xor_sync(FULL, most, step);
		int at = __shfl_xor_sync(FULL, found, step);

		if (at >= 0 && (found < 0 || other > most || (other == most && at < found))) {
			most = other;
			found = at;
		}
	}
	return found;
}

static __device__ void mark(int *chosen, int at, int as, int lane)
{
	__syncwarp();
	if (lane == 0)
		chosen[at] = as;
	__syncwarp();
}

static __device__ void free_all(int *chosen, int n, int lane)
{
	__syncwarp();
	for (int i = lane; i < n; i += 32)
		chosen[i] = FREE;
	__syncwarp();
}

/* Closes experts that are in none of the best groups. */
static __device__ void close_groups(const mfk_route &a, const row &r)
{
	const int n = a.experts, groups = a.groups, each = n / groups;
	const int take = a.top_k / a.group_top_k;

	for (int g = 0; g < groups; g++) {
		float sum = 0;

		for (int i = 0; i < take; i++) {
			int e = best(r.key, r.chosen, g * each, (g + 1) * each, r.lane);

			sum += r.key[e];
			mark(r.chosen, e, CHOSEN, r.lane);
		}
		if (r.lane == 0)
			r.sum[g] = sum;
	}
	free_all(r.chosen, n, r.lane);
	for (int i = 0; i < a.group_top_k; i++)
		mark(r.chosen, best(r.sum, r.chosen, 0, groups, r.lane), CHOSEN, r.lane);
	for (int g = r.lane; g < groups; g += 32)
		r.sum[g] = r.chosen[g] == CHOSEN;
	__syncwarp();
	for (int e = r.lane; e < n; e += 32)
		r.chosen[e] = r.sum[e / each] != 0.f ? FREE : CLOSED;
	__syncwarp();
}

static __device__ void choose(const mfk_route &a, const row &r, bool groups)
{
	const int n = a.experts;

	free_all(r.chosen, n, r.lane);
	if (groups)
		close_groups(a, r);
	for (int i = 0; i < a.top_k; i++)
		mark(r.chosen, best(r.key, r.chosen, 0, n, r.lane), CHOSEN, r.lane);
}

/* Probabilities of those that are chosen, before scale, in place. Returns what they were divided
 * by. */
static __device__ float probabilities(const mfk_route &a, float *prob, int lane)
{
	const int k = a.top_k;
	float sum = 0;

	if (a.score == MFK_SCORE_SOFTMAX && !a.pre_softmax) {
		softmax(prob, k, prob, lane);
		return 1.f;
	}
	if (a.score == MFK_SCORE_SOFTMAX || k == 1)
		return 1.f;
	for (int i = lane; i < k; i += 32)
		sum += prob[i];
	sum = lane_sum(sum, 32) + TINY;
	for (int i = lane; i < k; i += 32)
		prob[i] /= sum;
	__syncwarp();
	return sum;
}

/* What probabilities are made of. */
static __device__ __forceinline__ const float *measure(const mfk_route &a, const row &r)
{
	return a.score == MFK_SCORE_SOFTMAX && !a.pre_softmax ? r.logits : r.score;
}

template <typename T>
static __device__ void route_token(const mfk_route &a, int64_t token, const row &r)
{
	const float *of = measure(a, r);
	const int n = a.experts;
	int count = 0;

	for (int e = r.lane; e < n; e += 32) {
		float key = a.key ? a.key[token * n + e] : of[e] + (a.bias ? a.bias[e] : 0.f);

		r.key[e] = isnan(key) ? -INFINITY : key;
	}
	choose(a, r, a.groups > 0);
	for (int base = 0; base < n; base += 32) {
		int e = base + r.lane;
		bool mine = e < n && r.chosen[e] == CHOSEN;
		unsigned all = __ballot_sync(FULL, mine);

		if (mine) {
			int at = count + __popc(all & ((1u << r.lane) - 1));

			a.expert[token * a.top_k + at] = e;
			r.sum[at] = of[e];
		}
		count += __popc(all);
	}
	__syncwarp();
	probabilities(a, r.sum, r.lane);
	for (int k = r.lane; k < a.top_k; k += 32)
		a.prob[token * a.top_k + k] = to_float(from_float<T>(r.sum[k] * a.scale));
	__syncwarp();
}

/* ---- losses ---- */

/* Scores as losses see them: their sum is 1. Returns what they were divided by. */
static __device__ float normalise(const mfk_route &a, const row &r, float *y)
{
	const int n = a.experts;
	float sum = 0;

	for (int e = r.lane; e < n; e += 32)
		sum += r.score[e];
	sum = a.score == MFK_SCORE_SOFTMAX ? 1.f : lane_sum(sum, 32) + TINY;
	for (int e = r.lane; e < n; e += 32)
		y[e] = r.score[e] / sum;
	__syncwarp();
	return sum;
}

static __device__ void count_load(const mfk_route &a, int64_t token, const row &r)
{
	int32_t *load = a.load + token / a.balance_tokens * a.experts;

	normalise(a, r, r.key);
	for (int e = r.lane; e < a.experts; e += 32)
		if (isnan(r.key[e]))
			r.key[e] = -INFINITY;
	choose(a, r, false);
	for (int e = r.lane; e < a.experts; e += 32)
		if (r.chosen[e] == CHOSEN)
			atomicAdd(&load[e], 1);
	__syncwarp();
}

/* The warp's token; beyond the last one for the last warps. */
static __device__ __forceinline__ int64_t token_of_warp()
{
	return static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
}

template <typename T> static __global__ void route_kernel(mfk_route a)
{
	extern __shared__ float room[];
	int64_t t = token_of_warp();
	row r = row_of(room, threadIdx.x / 32, a.experts);

	if (t >= a.tokens)
		return;
	load_token<T>(a, t, r);
	route_token<T>(a, t, r);
	if (a.load)
		count_load(a, t, r);
	if (a.z) {
		float lse = softmax(r.logits, a.experts, r.sum, r.lane);

		if (r.lane == 0)
			a.z[t] = a.z_factor * lse * lse;
	}
}

template <typename T> static __global__ void balance_kernel(mfk_route a)
{
	extern __shared__ float room[];
	int64_t t = token_of_warp();
	row r = row_of(room, threadIdx.x / 32, a.experts);
	const float *weight;
	float sum = 0;

	if (t >= a.tokens)
		return;
	load_token<T>(a, t, r);
	normalise(a, r, r.key);
	weight = a.weight + t / a.balance_tokens * a.experts;
	for (int e = r.lane; e < a.experts; e += 32)
		sum += r.key[e] * weight[e];
	sum = lane_sum(sum, 32);
	if (r.lane == 0)
		a.balance[t] = sum;
}

/* ---- backward ---- */

static __device__ __forceinline__ float dprob_of(const mfk_route &a, int64_t choice)
{
	int64_t at = a.row ? a.row[choice] : choice;

	return at < 0 ? 0 : a.scale * a.dprob[at];
}

/* Of what was chosen. Probabilities are in r.key. */
static __device__ void add_chosen(const mfk_route &a, int64_t token, const row &r)
{
	const int32_t *expert = a.expert + token * a.top_k;
	const float *of = measure(a, r);
	const bool soft = a.score == MFK_SCORE_SOFTMAX;
	float by, dot = 0;

	for (int k = r.lane; k < a.top_k; k += 32)
		r.key[k] = of[expert[k]];
	__syncwarp();
	by = probabilities(a, r.key, r.lane);
	for (int k = r.lane; k < a.top_k; k += 32)
		dot += r.key[k] * dprob_of(a, token * a.top_k + k);
	dot = lane_sum(dot, 32);
	if (!soft && a.top_k == 1)
		dot = 0;
	for (int e = r.lane; e < a.experts; e += 32)
		r.sum[e] = soft && a.pre_softmax ? -r.score[e] * dot : 0.f;
	__syncwarp();
	for (int k = r.lane; k < a.top_k; k += 32) {
		float d = dprob_of(a, token * a.top_k + k);
		int e = expert[k];

		if (soft)
			r.sum[e] += r.key[k] * (a.pre_softmax ? d : d - dot);
		else
			r.sum[e] += (d - dot) / by * slope(a.score, r.logits[e], r.score[e]);
	}
	__syncwarp();
}

static __device__ void add_balance(const mfk_route &a, int64_t token, const row &r)
{
	const float *weight = a.weight + token / a.balance_tokens * a.experts;
	float by = normalise(a, r, r.key), dot = 0;

	for (int e = r.lane; e < a.experts; e += 32)
		dot += r.key[e] * (a.dbalance * weight[e]);
	dot = lane_sum(dot, 32);
	for (int e = r.lane; e < a.experts; e += 32) {
		float d = a.dbalance * weight[e] - dot;

		r.sum[e] += a.score == MFK_SCORE_SOFTMAX
				    ? r.key[e] * d
				    : d / by * slope(a.score, r.logits[e], r.score[e]);
	}
	__syncwarp();
}

static __device__ void add_z(const mfk_route &a, const row &r)
{
	float lse = softmax(r.logits, a.experts, r.key, r.lane);

	for (int e = r.lane; e < a.experts; e += 32)
		r.sum[e] += 2.f * a.dz * lse * r.key[e];
}

template <typename T> static __global__ void route_backward_kernel(mfk_route a)
{
	extern __shared__ float room[];
	int64_t t = token_of_warp();
	row r = row_of(room, threadIdx.x / 32, a.experts);

	if (t >= a.tokens)
		return;
	load_token<T>(a, t, r);
	add_chosen(a, t, r);
	if (a.dbalance != 0.f)
		add_balance(a, t, r);
	if (a.dz != 0.f)
		add_z(a, r);
	for (int e = r.lane; e < a.experts; e += 32)
		static_cast<T *>(a.dlogits)[t * a.experts + e] = from_float<T>(r.sum[e]);
}

/* ---- launches ---- */

struct shape {
	unsigned blocks, threads;
	size_t room; /* bytes of shared memory */
};

/* False: there are too many experts, and the context has failed. */
static bool shape_of(struct mfk_ctx *c, const struct mfk_route *a, struct shape *s)
{
	size_t each = static_cast<size_t>(a->experts) * ROW_NUMBERS * sizeof(float);
	unsigned warps = WARPS_MOST;

	while (warps > 1 && warps * each > ROOM_MOST)
		warps /= 2;
	if (each > ROOM_MOST) {
		mfk_cuda_fail(c, -EINVAL, "router: %lld experts, at most %zu are possible",
			      static_cast<long long>(a->experts),
			      ROOM_MOST / (ROW_NUMBERS * sizeof(float)));
		return false;
	}
	s->blocks = static_cast<unsigned>(ceil_div(a->tokens, warps));
	s->threads = warps * 32;
	s->room = warps * each;
	return true;
}

void mfk_cuda_route(struct mfk_ctx *c, const struct mfk_route *a)
{
	struct shape s;

	if (a->tokens <= 0 || !mfk_cuda_begin(c) || !shape_of(c, a, &s))
		return;
	if (a->load &&
	    !mfk_cuda_check(c,
			    cudaMemsetAsync(a->load, 0,
					    static_cast<size_t>(a->tokens / a->balance_tokens *
								a->experts) *
						    sizeof(*a->load),
					    c->stream),
			    "router"))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		route_kernel<T><<<s.blocks, s.threads, s.room, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "router");
}

void mfk_cuda_route_balance(struct mfk_ctx *c, const struct mfk_route *a)
{
	struct shape s;

	if (a->tokens <= 0 || !mfk_cuda_begin(c) || !shape_of(c, a, &s))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		balance_kernel<T><<<s.blocks, s.threads, s.room, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "balance of experts");
}

void mfk_cuda_route_backward(struct mfk_ctx *c, const struct mfk_route *a)
{
	struct shape s;

	if (a->tokens <= 0 || !mfk_cuda_begin(c) || !shape_of(c, a, &s))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		route_backward_kernel<T><<<s.blocks, s.threads, s.room, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "router's gradient");
}

/* ---- weights: a thread has a number of an expert ---- */

static __global__ void balance_sum_kernel(mfk_balance a, int64_t rows)
{
	int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;
	int32_t sum = 0;

	if (i >= rows * a.experts)
		return;
	for (int64_t s = 0; s < a.sequences / rows; s++)
		sum += a.load[s * a.experts + i];
	a.sum[i] = static_cast<float>(sum);
}

/* Sums become the mean of all microbatches' so far. One block: all of its threads have read the
 * count before one of them writes it. */
static __global__ void balance_mean_kernel(mfk_balance a)
{
	float count = a.running[a.experts] + 1;

	__syncthreads();
	for (int64_t e = threadIdx.x; e < a.experts; e += blockDim.x) {
		a.running[e] += a.sum[e];
		a.sum[e] = a.running[e] / count;
	}
	if (threadIdx.x == 0)
		a.running[a.experts] = count;
}

static __global__ void balance_weigh_kernel(mfk_balance a)
{
	int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;
	float weight;

	if (i >= a.sequences * a.experts)
		return;
	weight = a.factor * a.sum[a.apart ? i : i % a.experts];
	a.weight[i] = weight;
	a.total[i] = (a.adds ? a.total[i] : 0.f) + a.coeff * weight;
}

static unsigned blocks_of(int64_t count)
{
	return static_cast<unsigned>(ceil_div(count, MFK_THREADS));
}

void mfk_cuda_balance_sum(struct mfk_ctx *c, const struct mfk_balance *a)
{
	int64_t rows = a->apart ? a->sequences : 1;

	if (!mfk_cuda_begin(c))
		return;
	balance_sum_kernel<<<blocks_of(rows * a->experts), MFK_THREADS, 0, c->stream>>>(*a, rows);
	mfk_cuda_end(c, "loads of experts");
}

void mfk_cuda_balance_weigh(struct mfk_ctx *c, const struct mfk_balance *a)
{
	int64_t count = a->sequences * a->experts;

	if (!mfk_cuda_begin(c))
		return;
	if (a->running)
		balance_mean_kernel<<<1, MFK_THREADS, 0, c->stream>>>(*a);
	balance_weigh_kernel<<<blocks_of(count), MFK_THREADS, 0, c->stream>>>(*a);
	mfk_cuda_end(c, "weights of experts");
}

/* ---- bias ---- */

/* One thread: experts are few, and steps are long. */
static __global__ void balance_bias_kernel(float *bias, int32_t *totals, int64_t experts,
					   float rate)
{
	int64_t sum = 0;

	for (int64_t e = 0; e < experts; e++)
		sum += totals[e];
	for (int64_t e = 0; e < experts; e++) {
		int64_t lack = sum - totals[e] * experts;

		bias[e] += lack > 0 ? rate : lack < 0 ? -rate : 0.f;
		totals[e] = 0;
	}
}

void mfk_cuda_balance_bias(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			   float rate)
{
	if (!mfk_cuda_begin(c))
		return;
	balance_bias_kernel<<<1, 1, 0, c->stream>>>(bias, totals, experts, rate);
	mfk_cuda_end(c, "expert bias");
}
