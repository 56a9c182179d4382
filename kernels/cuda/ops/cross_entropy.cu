/*
 * Cross entropy of rows of logits. A block goes through its row twice: for the maximum and the sum
 * of exponentials, which each thread keeps up to date as it goes, and for the gradient. In between
 * the row is in shared memory, as far as that goes, and the rest in memory. A row's gradient is
 * computed while the next row is read, so that memory and arithmetic work at the same time.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#define MAX_THREADS 1024
#define EACH	    2 /* vectors that a thread has at once */

/* The greatest x so far, and the sum of e^(x - most). */
struct online {
	float most, sum;
};

template <typename T> static __device__ __forceinline__ void take(online &o, const Raw<T> r[EACH])
{
	float most = o.most, sum = 0;

#pragma unroll
	for (int j = 0; j < EACH; j++)
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			most = fmaxf(most, to_float(r[j].x[k]));
	if (most == -INFINITY) /* nothing but -infinity so far */
		return;
#pragma unroll
	for (int j = 0; j < EACH; j++)
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			sum += fast_exp(to_float(r[j].x[k]) - most);
	o.sum = o.sum * fast_exp(o.most - most) + sum;
	o.most = most;
}

/* Of all threads; each gets it. The rooms may be used again and again, in turn. */
static __device__ __forceinline__ online merge(online o, float *most_room, float *sum_room)
{
	float most = lane_max(o.most);
	unsigned warps = blockDim.x / 32;
	online all;

	if (threadIdx.x % 32 == 0)
		most_room[threadIdx.x / 32] = most;
	__syncthreads();
	all.most = -INFINITY;
	for (unsigned i = 0; i < warps; i++)
		all.most = fmaxf(all.most, most_room[i]);
	o.sum = o.most == -INFINITY ? 0.f : o.sum * fast_exp(o.most - all.most);
	all.sum = row_sum_once(o.sum, sum_room);
	return all;
}

/* A row in memory, and the first vectors of it that are kept in shared memory. */
template <typename T> struct Row {
	const T *x;
	Raw<T> *cache;
	int64_t kept, cols;
	bool wide;
};

/* EACH vectors of a thread, from number i on. */
template <typename T>
static __device__ __forceinline__ void load_vectors(const Row<T> &row, int64_t i, Raw<T> r[EACH])
{
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const int64_t at = (i + j * blockDim.x) * MFK_N;

		if (at < row.cols)
			r[j] = load_raw(row.x + at, row.cols - at, row.wide);
	}
}

/* Puts them into the cache. Beyond the row there is -infinity. */
template <typename T>
static __device__ __forceinline__ void take_vectors(const Row<T> &row, int64_t i, Raw<T> r[EACH],
						    online &o)
{
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const int64_t v = i + j * blockDim.x, left = row.cols - v * MFK_N;

		if (left < MFK_N)
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				r[j].x[k] = k < left ? r[j].x[k] : from_float<T>(-INFINITY);
		if (v < row.kept)
			row.cache[v] = r[j];
	}
	take(o, r);
}

template <typename T> static __device__ __forceinline__ online first_pass(const Row<T> &row)
{
	online o = {-INFINITY, 0.f};

	for (int64_t i = threadIdx.x; i * MFK_N < row.cols; i += EACH * blockDim.x) {
		Raw<T> r[EACH];

		load_vectors(row, i, r);
		take_vectors(row, i, r, o);
	}
	return o;
}

/* A row after its first pass: its gradient is d = (softmax - onehot) * scale. */
template <typename T> struct Summed {
	Row<T> row;
	T *d; /* NULL: there is none */
	float lse, scale;
	int64_t label;
};

template <typename T>
static __device__ __forceinline__ void gradient(const Summed<T> &s, const Raw<T> &r, int64_t at)
{
	const int64_t left = s.row.cols - at;
	float f[MFK_N];

#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		f[k] = fast_exp(to_float(r.x[k]) - s.lse);
	if (s.label >= at && s.label < at + MFK_N)
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			f[k] -= at + k == s.label ? 1.f : 0.f;
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		f[k] *= s.scale;
	store(s.d + at, f, left, s.row.wide);
}

/* Of EACH vectors of a thread, which are the same ones as in the first pass. */
template <typename T>
static __device__ __forceinline__ void gradients(const Summed<T> &s, int64_t i)
{
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		const int64_t v = i + j * blockDim.x, left = s.row.cols - v * MFK_N;

		if (v < s.row.kept)
			gradient(s, s.row.cache[v], v * MFK_N);
		else if (left > 0)
			gradient(s, load_raw(s.row.x + v * MFK_N, left, s.row.wide), v * MFK_N);
	}
}

template <typename T> static __device__ __forceinline__ void second_pass(const Summed<T> &s)
{
	for (int64_t i = threadIdx.x; i * MFK_N < s.row.cols; i += EACH * blockDim.x)
		gradients(s, i);
}

/* The second pass of a row together with the first pass of the next: rows are of one length. Loads
 * are under way while the vectors before them are computed. */
template <typename T>
static __device__ __forceinline__ online both_passes(const Summed<T> &s, const Row<T> &next)
{
	online o = {-INFINITY, 0.f};
	Raw<T> ahead[EACH];

	load_vectors(next, threadIdx.x, ahead);
	for (int64_t i = threadIdx.x; i * MFK_N < next.cols; i += EACH * blockDim.x) {
		Raw<T> r[EACH];

#pragma unroll
		for (int j = 0; j < EACH; j++)
			r[j] = ahead[j];
		load_vectors(next, i + EACH * blockDim.x, ahead);
		gradients(s, i);
		take_vectors(next, i, r, o);
	}
	return o;
}

/* kept: vectors of a row that there is shared memory for. */
template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
	cross_entropy_kernel(mfk_cross_entropy a, int64_t kept, bool wide, uint64_t *fault)
{
	extern __shared__ uint4 memory[];
	__shared__ float most_room[MAX_THREADS / 32], sum_room[MAX_THREADS / 32];
	Summed<T> last = {};

	for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
		Row<T> row = {static_cast<const T *>(a.logits) + i * a.ld,
			      reinterpret_cast<Raw<T> *>(memory), kept, a.vocab, wide};
		int32_t label = a.labels[i];
		float at_label = 0, lse;
		online o;

		if (label < 0 || label >= a.vocab) {
			if (threadIdx.x == 0)
				*reinterpret_cast<volatile uint64_t *>(fault) =
					static_cast<uint64_t>(MFK_FAULT_LABEL) << 32 |
					static_cast<uint32_t>(label);
			continue;
		}
		/* dlogits may be logits: this is read before the gradient is written. */
		if (threadIdx.x == 0)
			at_label = to_float(row.x[label]);
		o = merge(last.d ? both_passes(last, row) : first_pass(row), most_room, sum_room);
		lse = o.most + logf(o.sum);
		if (threadIdx.x == 0) {
			a.loss[i] = lse - at_label;
			if (a.lse)
				a.lse[i] = lse;
		}
		if (a.dlogits)
			last = {row, static_cast<T *>(a.dlogits) + i * a.ld, lse, a.scale[i],
				label};
	}
	if (last.d)
		second_pass(last);
}

/* A multiprocessor has two short rows, or as much of a long one as goes in. */
template <typename T> static void launch(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	const int64_t room = static_cast<int64_t>(c->device->shared_optin) - 1024;
	const int64_t vectors = ceil_div(a->vocab, MFK_N), bytes = vectors * sizeof(Raw<T>);
	const int64_t threads = min(ceil_div(vectors, 32) * 32, bytes > room / 2 ? 1024L : 512L);
	const int64_t kept = a->dlogits ? min(vectors, room / (int64_t)sizeof(Raw<T>)) : 0;
	const size_t shared = static_cast<size_t>(kept) * sizeof(Raw<T>);
	auto kernel = cross_entropy_kernel<T>;

	if (!mfk_cuda_check(c,
			    cudaFuncSetAttribute(kernel,
						 cudaFuncAttributeMaxDynamicSharedMemorySize,
						 static_cast<int>(shared)),
			    "cross entropy"))
		return;
	kernel<<<static_cast<unsigned>(
			 min(a->rows,
			     blocks_at_once(c, kernel, static_cast<unsigned>(threads), shared))),
		 static_cast<unsigned>(threads), shared, c->stream>>>(
		*a, kept, aligned(a->logits, a->dlogits) && a->ld % MFK_N == 0, c->fault);
}

void mfk_cuda_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	if (a->rows <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) { launch<typename decltype(tag)::type>(c, a); });
	mfk_cuda_end(c, "cross entropy");
}

/* ---- of columns that are divided ---- */

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
	part_kernel(mfk_cross_entropy a, bool wide, uint64_t *fault)
{
	__shared__ float most_room[MAX_THREADS / 32], sum_room[MAX_THREADS / 32];
	float *stats = a.stats + 3 * a.part * a.rows;

	for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
		const Row<T> row = {static_cast<const T *>(a.logits) + i * a.ld, NULL, 0, a.vocab,
				    wide};
		const int64_t label = a.labels[i], at = label - a.first;
		online o;

		if (label < 0 || label >= a.all) {
			if (threadIdx.x == 0)
				*reinterpret_cast<volatile uint64_t *>(fault) =
					static_cast<uint64_t>(MFK_FAULT_LABEL) << 32 |
					static_cast<uint32_t>(label);
			continue;
		}
		o = merge(first_pass(row), most_room, sum_room);
		if (threadIdx.x == 0) {
			stats[i] = o.most;
			stats[a.rows + i] = o.sum;
			stats[2 * a.rows + i] = at >= 0 && at < a.vocab ? to_float(row.x[at]) : 0.f;
		}
	}
}

/* The logarithm of a row's sum of exponentials, of all parts in their order. */
static __device__ __forceinline__ float join_stats(const mfk_cross_entropy &a, int64_t row,
						   float *ret_label)
{
	const float *stats = a.stats + row;
	float most = -INFINITY, sum = 0, label = 0;

	for (int64_t p = 0; p < a.parts; p++)
		most = fmaxf(most, stats[3 * p * a.rows]);
	for (int64_t p = 0; p < a.parts; p++) {
		sum += stats[(3 * p + 1) * a.rows] * fast_exp(stats[3 * p * a.rows] - most);
		label += stats[(3 * p + 2) * a.rows];
	}
	*ret_label = label;
	return most + logf(sum);
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS) join_kernel(mfk_cross_entropy a, bool wide)
{
	for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
		const Row<T> row = {static_cast<const T *>(a.logits) + i * a.ld, NULL, 0, a.vocab,
				    wide};
		float label;
		const float lse = join_stats(a, i, &label);

		if (threadIdx.x == 0) {
			a.loss[i] = lse - label;
			if (a.lse)
				a.lse[i] = lse;
		}
		if (a.dlogits)
			second_pass<T>({row, static_cast<T *>(a.dlogits) + i * a.ld, lse,
					a.scale[i], a.labels[i] - a.first});
	}
}

struct shape {
	unsigned blocks, threads;
	bool wide;
};

static shape shape_of(const struct mfk_cross_entropy *a)
{
	const int64_t vectors = ceil_div(a->vocab, MFK_N);

	return {static_cast<unsigned>(min(a->rows, 65535L)),
		static_cast<unsigned>(min(ceil_div(vectors, 32) * 32, 512L)),
		aligned(a->logits, a->dlogits) && a->ld % MFK_N == 0};
}

void mfk_cuda_cross_entropy_part(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	const shape s = shape_of(a);

	if (a->rows <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		part_kernel<T><<<s.blocks, s.threads, 0, c->stream>>>(*a, s.wide, c->fault);
	});
	mfk_cuda_end(c, "a part's cross entropy");
}

void mfk_cuda_cross_entropy_join(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	const shape s = shape_of(a);

	if (a->rows <= 0 || a->vocab <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		join_kernel<T><<<s.blocks, s.threads, 0, c->stream>>>(*a, s.wide);
	});
	mfk_cuda_end(c, "cross entropy of parts");
}
