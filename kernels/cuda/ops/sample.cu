/*
 * Tokens drawn of rows of logits: a block has one row. Nothing is sorted: what is left out are the
 * logits below a limit, and the limit is found by halving the range of floats, whose bits are in
 * the order of their values. The row comes from the second-level cache each time.
 */
#include "kernels/cuda/base/philox.cuh"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"
#include "kernels/cuda/ops/ops.h"

#define THREADS 1024

/* Shared memory of a block. */
struct Room {
	float floats[THREADS / 32];
	double doubles[THREADS / 32];
	double sums[THREADS]; /* of each thread's piece of the row */
	int token;
};

/* Logit i of a row, over the temperature. */
template <typename T>
static __device__ __forceinline__ float logit(const mfk_sample &a, int64_t row, int64_t i)
{
	const uint32_t cols = static_cast<uint32_t>(a.cols);
	const uint32_t part = a.parts > 1 ? static_cast<uint32_t>(i) / cols : 0;
	const int64_t at = (part * a.rows + row) * a.ld + i - static_cast<int64_t>(part) * a.cols;
	const float x = to_float(static_cast<const T *>(a.logits)[at]);

	return a.temperature > 0.f ? x / a.temperature : x;
}

/* All threads call these, and each gets the result. */

template <typename T> static __device__ float greatest(const mfk_sample &a, int64_t row, Room *room)
{
	float most = -INFINITY;

	for (int64_t i = threadIdx.x; i < a.vocab; i += THREADS)
		most = fmaxf(most, logit<T>(a, row, i));
	most = lane_max(most);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		room->floats[threadIdx.x / 32] = most;
	__syncthreads();
	for (int i = 0; i < THREADS / 32; i++)
		most = fmaxf(most, room->floats[i]);
	return most;
}

template <typename T>
static __device__ double sum_of_all(const mfk_sample &a, int64_t row, float most, Room *room)
{
	double sum = 0;

	for (int64_t i = threadIdx.x; i < a.vocab; i += THREADS)
		sum += static_cast<double>(expf(logit<T>(a, row, i) - most));
	return row_sum(sum, room->doubles);
}

/* Of what is left: how many there are, or the sum of their exponentials. */
template <typename T>
static __device__ double left_from(const mfk_sample &a, int64_t row, float most, float limit,
				   bool counts, Room *room)
{
	double sum = 0;

	for (int64_t i = threadIdx.x; i < a.vocab; i += THREADS) {
		const float z = logit<T>(a, row, i);

		if (z >= limit)
			sum += counts ? 1. : static_cast<double>(expf(z - most));
	}
	return row_sum(sum, room->doubles);
}

/* ---- what is left out ---- */

/* Whole numbers in the order of floats, and back. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
	const uint32_t u = __float_as_uint(x);

	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static __device__ __forceinline__ float of_key(uint32_t key)
{
	return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The greatest limit that leaves at least so many, or so much; low is one that does. */
template <typename T>
static __device__ float greatest_limit(const mfk_sample &a, int64_t row, float most, float low,
				       bool counts, double enough, Room *room)
{
	uint32_t does = key_of(low), does_not = key_of(most) + 1;

	while (does_not - does > 1) {
		const uint32_t middle = does + (does_not - does) / 2;

		if (left_from<T>(a, row, most, of_key(middle), counts, room) >= enough)
			does = middle;
		else
			does_not = middle;
	}
	return of_key(does);
}

template <typename T>
static __device__ float limit_of(const mfk_sample &a, int64_t row, float most, Room *room)
{
	float limit = -INFINITY;

	if (a.top_k > 0 && a.top_k < a.vocab)
		limit = greatest_limit<T>(a, row, most, limit, true, static_cast<double>(a.top_k),
					  room);
	if (a.top_p < 1.f) {
		const double all = left_from<T>(a, row, most, limit, false, room);

		limit = greatest_limit<T>(a, row, most, limit, false,
					  static_cast<double>(a.top_p) * all, room);
	}
	return limit;
}

/* ---- draws ---- */

static __device__ __forceinline__ double uniform53(uint64_t seed, uint64_t number)
{
	const uint64_t high = philox1(2 * number, seed), low = philox1(2 * number + 1, seed);

	return static_cast<double>(high << 21 | low >> 11) * 0x1p-53;
}

/* In piece p of the row, the first token up to which more than target is left, where before is left
 * before it; otherwise the last that is left. */
template <typename T>
static __device__ int walk(const mfk_sample &a, int64_t row, float most, float limit, int64_t p,
			   double before, double target)
{
	const int64_t each = (a.vocab + THREADS - 1) / THREADS;
	const int64_t end = min((p + 1) * each, a.vocab);
	int last = 0;

	for (int64_t i = p * each; i < end; i++) {
		const float z = logit<T>(a, row, i);
		const float e = z >= limit ? expf(z - most) : 0.f;

		if (!(e > 0.f))
			continue;
		last = static_cast<int>(i);
		before += static_cast<double>(e);
		if (before > target)
			break;
	}
	return last;
}

/* By one thread, of the sums of pieces. */
template <typename T>
static __device__ int pick(const mfk_sample &a, int64_t row, float most, float limit, double u,
			   const Room *room)
{
	double all = 0, before = 0, before_last = 0, target;
	int last = 0;

	for (int p = 0; p < THREADS; p++)
		all += room->sums[p];
	target = u * all;
	for (int p = 0; p < THREADS; p++) {
		if (!(room->sums[p] > 0))
			continue;
		last = p;
		before_last = before;
		before += room->sums[p];
		if (before > target)
			break;
	}
	return walk<T>(a, row, most, limit, last, before_last, target);
}

/* Threads add up neighbours. */
template <typename T>
static __device__ void sum_pieces(const mfk_sample &a, int64_t row, float most, float limit,
				  Room *room)
{
	const int64_t each = (a.vocab + THREADS - 1) / THREADS;
	const int64_t end = min((threadIdx.x + 1) * each, a.vocab);
	double sum = 0;

	for (int64_t i = threadIdx.x * each; i < end; i++) {
		const float z = logit<T>(a, row, i);

		sum += z >= limit ? static_cast<double>(expf(z - most)) : 0.;
	}
	room->sums[threadIdx.x] = sum;
}

/* The first of the greatest: room->token. */
template <typename T>
static __device__ void find_greatest(const mfk_sample &a, int64_t row, float most, Room *room)
{
	for (int64_t i = threadIdx.x; i < a.vocab; i += THREADS)
		if (logit<T>(a, row, i) == most) {
			atomicMin(&room->token, static_cast<int>(i));
			return;
		}
}

/* Block i: token i. */
template <typename T> static __global__ void __launch_bounds__(THREADS) draw(mfk_sample a)
{
	__shared__ Room room;
	const int64_t i = blockIdx.x, row = a.row[i];
	const float most = greatest<T>(a, row, &room);
	const double sum = sum_of_all<T>(a, row, most, &room);
	const bool good = isfinite(most) && sum > 0; /* and not a NaN */
	float limit = -INFINITY;

	if (threadIdx.x == 0)
		room.token = INT32_MAX;
	if (good && a.temperature > 0.f)
		limit = limit_of<T>(a, row, most, &room);
	__syncthreads();
	if (good && a.temperature > 0.f)
		sum_pieces<T>(a, row, most, limit, &room);
	else if (good)
		find_greatest<T>(a, row, most, &room);
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	if (good && a.temperature > 0.f)
		room.token = pick<T>(a, row, most, limit, uniform53(a.seed[i], a.number[i]), &room);
	a.token[i] = good ? room.token : -1;
	a.log_prob[i] =
		good ? static_cast<float>(static_cast<double>(logit<T>(a, row, room.token)) -
					  static_cast<double>(most) - log(sum))
		     : 0.f;
}

void mfk_cuda_sample(struct mfk_ctx *c, const struct mfk_sample *a)
{
	if (a->count <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		draw<T><<<static_cast<unsigned>(a->count), THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "draws of tokens");
}
