/*
 * Log-probs of labels and entropies of rows of logits. A block has a row, whose greatest element
 * and sums each thread keeps up to date as it goes.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#define THREADS_MOST 512
#define STATS	     4
#define LEAST	     (-104.f) /* e^x is 0 from here on down, and x is finite */

/* The greatest z so far, and with d = z - most the sums of e^d and of e^d d. */
struct online {
	float most, sum, weighted;
};

/* The same sums, of another greatest element; sum and weighted are 0 where there is none yet. */
static __device__ __forceinline__ void move_to(online &o, float most)
{
	const float below = fmaxf(o.most - most, LEAST), by = fast_exp(below);

	o.weighted = by * (o.weighted + below * o.sum);
	o.sum *= by;
	o.most = most;
}

static __device__ __forceinline__ void take(online &o, const float *z, int64_t count)
{
	float most = o.most;

#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		most = k < count ? fmaxf(most, z[k]) : most;
	if (most == -INFINITY) /* nothing but -infinity so far */
		return;
	move_to(o, most);
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		const float d = z[k] - most, e = k < count ? fast_exp(d) : 0.f;

		o.sum += e;
		o.weighted += e * fmaxf(d, LEAST);
	}
}

/* Of all threads; each gets it. */
static __device__ __forceinline__ online merge(online o)
{
	__shared__ float most_room[THREADS_MOST / 32], sum_room[THREADS_MOST / 32],
		weighted_room[THREADS_MOST / 32];
	const float warp_most = lane_max(o.most);
	float most = -INFINITY;

	__syncthreads(); /* the row before has read the rooms */
	if (threadIdx.x % 32 == 0)
		most_room[threadIdx.x / 32] = warp_most;
	__syncthreads();
	for (unsigned i = 0; i < blockDim.x / 32; i++)
		most = fmaxf(most, most_room[i]);
	if (most != -INFINITY)
		move_to(o, most);
	o.sum = row_sum_once(o.sum, sum_room);
	o.weighted = row_sum_once(o.weighted, weighted_room);
	return o;
}

/* Columns here that are no padding. */
static __device__ __forceinline__ int64_t known_here(const mfk_log_probs &a)
{
	return max(int64_t{0}, min(a.known - a.first, a.vocab));
}

template <typename T>
static __device__ __forceinline__ online walk(const mfk_log_probs &a, const T *x, bool wide)
{
	const int64_t known = known_here(a);
	online o = {-INFINITY, 0.f, 0.f};

	for (int64_t i = threadIdx.x * MFK_N; i < known; i += blockDim.x * MFK_N) {
		float z[MFK_N];

		load(z, x + i, known - i, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			z[k] *= a.by;
		take(o, z, known - i);
	}
	return merge(o);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS_MOST)
	part_kernel(mfk_log_probs a, bool wide, uint64_t *fault)
{
	float *stats = a.stats + STATS * a.part * a.rows;

	for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
		const T *x = static_cast<const T *>(a.logits) + i * a.ld;
		const int64_t label = a.labels[i], at = label - a.first;
		online o;

		if (label < 0 || label >= a.known) {
			if (threadIdx.x == 0)
				*reinterpret_cast<volatile uint64_t *>(fault) =
					static_cast<uint64_t>(MFK_FAULT_LABEL) << 32 |
					static_cast<uint32_t>(label);
			continue;
		}
		o = walk(a, x, wide);
		if (threadIdx.x == 0) {
			stats[i] = o.most;
			stats[a.rows + i] = o.sum;
			stats[2 * a.rows + i] =
				at >= 0 && at < a.vocab ? a.by * to_float(x[at]) : 0.f;
			stats[3 * a.rows + i] = o.weighted;
		}
	}
}

/* ---- all parts ---- */

/* A row of all parts, in their order. */
struct joined {
	float most, label, sum, weighted;
};

static __device__ __forceinline__ joined join_stats(const mfk_log_probs &a, int64_t row)
{
	const float *stats = a.stats + row;
	joined j = {-INFINITY, 0.f, 0.f, 0.f};

	for (int64_t p = 0; p < a.parts; p++)
		j.most = fmaxf(j.most, stats[STATS * p * a.rows]);
	for (int64_t p = 0; p < a.parts; p++) {
		const float *of = stats + STATS * p * a.rows;
		const float below = fmaxf(of[0] - j.most, LEAST), by = expf(below);

		j.label += of[2 * a.rows];
		j.sum += by * of[a.rows];
		j.weighted += by * (of[3 * a.rows] + below * of[a.rows]);
	}
	return j;
}

static __global__ void join_kernel(mfk_log_probs a)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

	if (i < a.rows) {
		const joined j = join_stats(a, i);
		const float log_sum = logf(j.sum);

		a.log_prob[i] = j.label - j.most - log_sum;
		a.entropy[i] = log_sum - j.weighted / j.sum;
	}
}

/* ---- the gradient ---- */

/* d = -p (dlog_prob + dentropy (log p + entropy)) by, with log p = by x - most - log sum. */
struct slope {
	float by, most, inverse_sum;
	float dlog_prob, dentropy; /* times -by */
	float shift;		   /* entropy - log sum */
	int64_t label;		   /* its column here */
};

static __device__ __forceinline__ slope slope_of(const mfk_log_probs &a, int64_t row)
{
	const joined j = join_stats(a, row);

	return {a.by,
		j.most,
		1 / j.sum,
		-a.by * a.dlog_prob[row],
		a.dentropy ? -a.by * a.dentropy[row] : 0.f,
		a.entropy[row] - logf(j.sum),
		a.labels[row] - a.first};
}

/* Of the vector at column `at`. */
static __device__ __forceinline__ void gradient(const slope &s, int64_t at, int64_t known, float *v)
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		const float d = s.by * v[k] - s.most;
		const float p = fast_exp(d) * s.inverse_sum;

		v[k] = p * (s.dlog_prob + s.dentropy * (fmaxf(d, LEAST) + s.shift));
		if (at + k == s.label)
			v[k] -= s.dlog_prob;
		if (at + k >= known)
			v[k] = 0;
	}
}

template <typename T>
static __global__ void __launch_bounds__(THREADS_MOST) backward_kernel(mfk_log_probs a, bool wide)
{
	const int64_t known = known_here(a);

	for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
		const T *x = static_cast<const T *>(a.logits) + row * a.ld;
		T *d = static_cast<T *>(a.dlogits) + row * a.ld;
		const slope s = slope_of(a, row);

		for (int64_t i = threadIdx.x * MFK_N; i < a.vocab; i += blockDim.x * MFK_N) {
			float v[MFK_N];

			load(v, x + i, a.vocab - i, wide);
			gradient(s, i, known, v);
			store(d + i, v, a.vocab - i, wide);
		}
	}
}

/* ---- launches ---- */

struct shape {
	unsigned blocks, threads;
	bool wide;
};

static shape shape_of(const struct mfk_log_probs *a)
{
	const int64_t vectors = ceil_div(a->vocab, MFK_N);

	return {static_cast<unsigned>(min(a->rows, 65535L)),
		static_cast<unsigned>(min(ceil_div(vectors, 32) * 32, (int64_t)THREADS_MOST)),
		aligned(a->logits, a->dlogits) && a->ld % MFK_N == 0};
}

void mfk_cuda_log_probs_part(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	const shape s = shape_of(a);

	if (a->rows <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		part_kernel<T><<<s.blocks, s.threads, 0, c->stream>>>(*a, s.wide, c->fault);
	});
	mfk_cuda_end(c, "a part's log-probs");
}

void mfk_cuda_log_probs_join(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	if (a->rows <= 0 || !mfk_cuda_begin(c))
		return;
	join_kernel<<<static_cast<unsigned>(ceil_div(a->rows, MFK_THREADS)), MFK_THREADS, 0,
		      c->stream>>>(*a);
	mfk_cuda_end(c, "log-probs of parts");
}

void mfk_cuda_log_probs_backward(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	const shape s = shape_of(a);

	if (a->rows <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		backward_kernel<T><<<s.blocks, s.threads, 0, c->stream>>>(*a, s.wide);
	});
	mfk_cuda_end(c, "the gradient of log-probs");
}
