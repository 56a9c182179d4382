/*
 * Attention to cached keys, in fp32 without tensor cores. A block has one token and up to eight of
 * the heads that share a head of keys, and goes over the keys in tiles that lie in shared memory:
 * scores, the weights that they have, and what the values add. How large a tile is depends on the
 * dimensions alone, so that a token's sums have the same order in any company.
 */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>

#define THREADS 128
#define WARPS	(THREADS / 32)
#define HEADS	8  /* of a block, at most */
#define KEYS	64 /* of a tile, at most */
#define PAIRS	8  /* of neighbouring columns times heads, of a thread's results */
#define MAX_DIM 1024
#define SHARED	(48 << 10) /* what a kernel has without asking */

/* How the work is divided. */
struct Shape {
	int heads;	  /* of a block */
	int blocks;	  /* of heads that share keys */
	int keys;	  /* of a tile */
	int qk_ld, k_ld;  /* elements of a row of queries, and of keys: eights, with zeros */
	int v_ld;	  /* of values */
	int pair_threads; /* of a head's columns: a power of two, THREADS / HEADS at least */
	bool wide;	  /* 16 bytes at a time */
};

/* What a block has of shared memory: the rows begin after this. */
struct Room {
	float score[HEADS][KEYS]; /* then weights */
	float most[HEADS], sum[HEADS], shrink[HEADS];
};

/* ---- the cache ---- */

/* The row of the cache that a position of the token's sequence has, in rows of a head. */
static __device__ __forceinline__ int64_t cached_row(const mfk_attention_cached &a, int64_t t,
						     int64_t position)
{
	return (static_cast<int64_t>(a.sequence[t]) * a.length + position) * a.kv_heads;
}

template <typename T>
static __device__ __forceinline__ void copy(void *to, int64_t at, const void *from, int64_t first,
					    int64_t count)
{
	for (int64_t i = threadIdx.x; i < count; i += THREADS)
		static_cast<T *>(to)[at + i] = static_cast<const T *>(from)[first + i];
}

/* Block t. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) store_tokens(mfk_attention_cached a)
{
	const int64_t t = blockIdx.x, k = a.kv_heads * a.qk_dim, v = a.kv_heads * a.v_dim;
	int64_t row;

	if (a.sequence[t] < 0)
		return;
	row = cached_row(a, t, a.position[t]);
	copy<T>(a.keys, row * a.qk_dim, a.k, t * k, k);
	copy<T>(a.values, row * a.v_dim, a.v, t * v, v);
}

/* ---- a tile ---- */

/* Rows of dim elements that are stride apart, as rows of ld in shared memory: rounded up to eights,
 * with zeros. */
template <typename T>
static __device__ __forceinline__ void load_rows(T *to, int ld, const T *from, int64_t stride,
						 int dim, int rows, bool wide)
{
	const int words = (dim + MFK_N - 1) / MFK_N;

#pragma unroll 4
	for (int i = static_cast<int>(threadIdx.x); i < rows * words; i += THREADS) {
		const int row = i / words, at = (i - row * words) * MFK_N;
		const Raw<T> x = load_raw(from + row * stride + at, dim - at, wide);

		store_raw(to + row * ld + at, x, MFK_N, true);
	}
}

/* Both begin at 16 bytes. */
template <typename T>
static __device__ __forceinline__ float dot(const float *q, const T *k, int count)
{
	float sum = 0;

	for (int i = 0; i < count; i += MFK_N) {
		const Raw<T> x = load_raw(k + i, MFK_N, true);
		const Raw<float> y = load_raw(q + i, MFK_N, true);

#pragma unroll
		for (int n = 0; n < MFK_N; n++)
			sum += y.x[n] * to_float(x.x[n]);
	}
	return sum;
}

/* Keys from count on have no weight. */
template <typename T>
static __device__ __forceinline__ void score_tile(Room *room, const Shape &s, int heads, int count,
						  const float *query, const T *keys)
{
	for (int i = static_cast<int>(threadIdx.x); i < heads * KEYS; i += THREADS) {
		const int h = i / KEYS, n = i % KEYS;

		if (n < count)
			room->score[h][n] = dot(query + h * s.qk_ld, keys + n * s.k_ld, s.qk_ld);
		else if (n < s.keys)
			room->score[h][n] = -INFINITY;
	}
}

/* A warp has a head: scores become weights, and what was added up so far shrinks. */
static __device__ __forceinline__ void weigh_tile(Room *room, const Shape &s, int heads)
{
	const int lane = static_cast<int>(threadIdx.x) % 32;

	for (int h = static_cast<int>(threadIdx.x) / 32; h < heads; h += WARPS) {
		const float before = room->most[h];
		float most = -INFINITY, sum = 0;

		for (int n = lane; n < s.keys; n += 32)
			most = fmaxf(most, room->score[h][n]);
		most = fmaxf(lane_max(most), before);
		for (int n = lane; n < s.keys; n += 32) {
			const float p = most > -INFINITY ? expf(room->score[h][n] - most) : 0.f;

			room->score[h][n] = p;
			sum += p;
		}
		sum = lane_sum(sum, 32);
		__syncwarp();
		if (lane == 0) {
			const float shrink = before > -INFINITY ? expf(before - most) : 0.f;

			room->shrink[h] = shrink;
			room->sum[h] = room->sum[h] * shrink + sum;
			room->most[h] = most;
		}
	}
}

template <typename T> struct alignas(2 * sizeof(T)) Two {
	T x, y;
};

/* A thread's results: C pairs of columns, of PAIRS / C heads. */
template <int C> struct Results {
	float2 x[C][PAIRS / C];
};

template <int C, typename T>
static __device__ __forceinline__ void add_tile(Results<C> *r, const Room *room, const Shape &s,
						int heads, int count, const T *values)
{
	const int rows = THREADS / s.pair_threads;
	const int row = static_cast<int>(threadIdx.x) / s.pair_threads;
	const int pair = static_cast<int>(threadIdx.x) % s.pair_threads;

#pragma unroll
	for (int k = 0; k < PAIRS / C; k++) {
		if (k * rows >= heads)
			break;
		const float shrink = room->shrink[row + k * rows];

#pragma unroll
		for (int c = 0; c < C; c++) {
			r->x[c][k].x *= shrink;
			r->x[c][k].y *= shrink;
		}
	}
#pragma unroll
	for (int c = 0; c < C; c++) {
		const int col = 2 * (pair + c * THREADS);

		if (col >= s.v_ld)
			break;
#pragma unroll 4
		for (int n = 0; n < count; n++) {
			const Two<T> v =
				*reinterpret_cast<const Two<T> *>(values + n * s.v_ld + col);
			const float x = to_float(v.x), y = to_float(v.y);

#pragma unroll
			for (int k = 0; k < PAIRS / C; k++) {
				if (k * rows >= heads)
					break;
				const float p = room->score[row + k * rows][n];

				r->x[c][k].x += p * x;
				r->x[c][k].y += p * y;
			}
		}
	}
}

template <int C, typename T>
static __device__ __forceinline__ void write(const Results<C> &r, const Room *room, const Shape &s,
					     int heads, T *out, int v_dim)
{
	const int rows = THREADS / s.pair_threads;
	const int row = static_cast<int>(threadIdx.x) / s.pair_threads;
	const int pair = static_cast<int>(threadIdx.x) % s.pair_threads;

#pragma unroll
	for (int c = 0; c < C; c++) {
		const int col = 2 * (pair + c * THREADS);

#pragma unroll
		for (int k = 0; k < PAIRS / C; k++) {
			const int h = row + k * rows;
			const float sum = h < heads ? room->sum[h] : 0.f;

			if (h < heads && col < v_dim)
				out[static_cast<int64_t>(h) * v_dim + col] =
					from_float<T>(sum > 0.f ? r.x[c][k].x / sum : 0.f);
			if (h < heads && col + 1 < v_dim)
				out[static_cast<int64_t>(h) * v_dim + col + 1] =
					from_float<T>(sum > 0.f ? r.x[c][k].y / sum : 0.f);
		}
	}
}

static __device__ __forceinline__ void begin(Room *room, float *query, const Shape &s)
{
	for (int i = static_cast<int>(threadIdx.x); i < s.heads * s.qk_ld; i += THREADS)
		query[i] = 0;
	if (threadIdx.x < HEADS) {
		room->most[threadIdx.x] = -INFINITY;
		room->sum[threadIdx.x] = 0;
	}
}

/* Block (t, some of a key head's heads, key head). */
template <int C, typename T>
static __global__ void __launch_bounds__(THREADS) attend(mfk_attention_cached a, Shape s)
{
	extern __shared__ uint4 shared[];
	Room *room = reinterpret_cast<Room *>(shared);
	float *query = reinterpret_cast<float *>(room + 1);
	T *keys = reinterpret_cast<T *>(query + s.heads * s.qk_ld);
	T *values = keys + s.keys * s.k_ld;
	const int64_t t = blockIdx.x, kv = blockIdx.z, each = a.heads / a.kv_heads;
	const int64_t head = kv * each + blockIdx.y * s.heads;
	const int heads =
		static_cast<int>(min(static_cast<int64_t>(s.heads), (kv + 1) * each - head));
	const int64_t end = static_cast<int64_t>(a.position[t]) + 1;
	const int64_t first = a.window && end > a.window ? end - a.window : 0;
	const bool none = a.sequence[t] < 0;
	const int qk_dim = static_cast<int>(a.qk_dim), v_dim = static_cast<int>(a.v_dim);
	const T *q = static_cast<const T *>(a.q) + (t * a.heads + head) * qk_dim;
	Results<C> results = {};

	begin(room, query, s);
	__syncthreads();
	for (int i = static_cast<int>(threadIdx.x); i < heads * qk_dim; i += THREADS)
		query[i / qk_dim * s.qk_ld + i % qk_dim] = to_float(q[i]) * a.scale;
	for (int64_t tile = first; tile < end && !none; tile += s.keys) {
		const int64_t row = cached_row(a, t, tile) + kv;
		const int count = static_cast<int>(min(end - tile, static_cast<int64_t>(s.keys)));

		__syncthreads();
		load_rows(keys, s.k_ld, static_cast<const T *>(a.keys) + row * qk_dim,
			  a.kv_heads * qk_dim, qk_dim, count, s.wide);
		load_rows(values, s.v_ld, static_cast<const T *>(a.values) + row * v_dim,
			  a.kv_heads * v_dim, v_dim, count, s.wide);
		__syncthreads();
		score_tile(room, s, heads, count, query, keys);
		__syncthreads();
		weigh_tile(room, s, heads);
		__syncthreads();
		add_tile(&results, room, s, heads, count, values);
	}
	__syncthreads();
	write(results, room, s, heads, static_cast<T *>(a.out) + (t * a.heads + head) * v_dim,
	      v_dim);
}

/* ---- host ---- */

static bool possible(struct mfk_ctx *c, const struct mfk_attention_cached *a)
{
	if (a->qk_dim <= MAX_DIM && a->v_dim <= MAX_DIM && a->heads < 65536)
		return true;
	mfk_cuda_fail(c, -EINVAL,
		      "attention to cached keys: %lld heads of %lld and %lld elements, at most "
		      "65535 of %d are possible",
		      (long long)a->heads, (long long)a->qk_dim, (long long)a->v_dim, MAX_DIM);
	return false;
}

static int eights(int64_t dim)
{
	return static_cast<int>(ceil_div(dim, MFK_N)) * MFK_N;
}

/* Pairs of columns that a thread has of a head: 1, 2 or 4. */
static int columns_of(const struct mfk_attention_cached *a)
{
	const int64_t each = ceil_div(ceil_div(a->v_dim, 2), THREADS);

	return each <= 2 ? static_cast<int>(each) : 4;
}

/* Rows of keys are read by neighbouring threads at the same column: eight elements more keep them
 * out of each other's banks. */
static Shape shape_of(const struct mfk_attention_cached *a, size_t size, size_t *bytes)
{
	const int64_t each = a->heads / a->kv_heads, most = PAIRS / columns_of(a);
	Shape s = {};
	size_t of_key, others;

	s.qk_ld = eights(a->qk_dim);
	s.k_ld = s.qk_ld + MFK_N;
	s.v_ld = eights(a->v_dim);
	s.pair_threads = THREADS / HEADS;
	while (s.pair_threads < THREADS && 2 * s.pair_threads < a->v_dim)
		s.pair_threads *= 2;
	s.heads = static_cast<int>(each < most ? each : most);
	s.blocks = static_cast<int>(ceil_div(each, s.heads));
	of_key = (static_cast<size_t>(s.k_ld) + static_cast<size_t>(s.v_ld)) * size;
	others = sizeof(Room) + sizeof(float) * static_cast<size_t>(s.heads * s.qk_ld);
	s.keys = static_cast<int>((SHARED - others) / of_key);
	s.keys = s.keys < KEYS ? s.keys : KEYS;
	s.wide = aligned(a->keys, a->values) && a->qk_dim * size % 16 == 0 &&
		 a->v_dim * size % 16 == 0;
	*bytes = others + of_key * static_cast<size_t>(s.keys);
	return s;
}

template <int C, typename T> static void launch(struct mfk_ctx *c, const mfk_attention_cached &a)
{
	size_t bytes;
	const Shape s = shape_of(&a, sizeof(T), &bytes);
	const dim3 blocks(static_cast<unsigned>(a.tokens), static_cast<unsigned>(s.blocks),
			  static_cast<unsigned>(a.kv_heads));

	attend<C, T><<<blocks, THREADS, bytes, c->stream>>>(a, s);
}

void mfk_cuda_attention_cached(struct mfk_ctx *c, const struct mfk_attention_cached *a)
{
	const unsigned tokens = static_cast<unsigned>(a->tokens);

	if (a->tokens <= 0 || !mfk_cuda_begin(c) || !possible(c, a))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		store_tokens<T><<<tokens, THREADS, 0, c->stream>>>(*a);
		switch (columns_of(a)) {
		case 1:
			launch<1, T>(c, *a);
			break;
		case 2:
			launch<2, T>(c, *a);
			break;
		default:
			launch<4, T>(c, *a);
		}
	});
	mfk_cuda_end(c, "attention to cached keys");
}
