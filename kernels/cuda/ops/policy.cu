/* Losses of policies, of rows of log-probs: a thread has a row; a warp adds up a response. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"
#include "kernels/policy_row.h"

static __global__ void rows_kernel(mfk_policy a)
{
	const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

	if (row < a.rows)
		mfk_policy_row(&a, row);
}

static unsigned blocks_of(int64_t threads)
{
	return static_cast<unsigned>(ceil_div(threads, MFK_THREADS));
}

void mfk_cuda_policy(struct mfk_ctx *c, const struct mfk_policy *a)
{
	if (a->rows <= 0 || !mfk_cuda_begin(c))
		return;
	rows_kernel<<<blocks_of(a->rows), MFK_THREADS, 0, c->stream>>>(*a);
	mfk_cuda_end(c, "policy");
}

/* ---- sums of responses ---- */

/* A response's rows are all among these; other ones may be among them, too. */
struct range {
	int first, end;
};

static __global__ void clear_kernel(range *ranges, int64_t count)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

	if (i < count)
		ranges[i] = {INT32_MAX, 0};
}

/* The response that a row counts for; -1: none. */
static __device__ __forceinline__ int64_t response_of(const mfk_policy &a, int64_t row)
{
	const int64_t number = a.number[row];

	return number < 0 || a.mask[row] == 0 ? -1 : row / a.length * a.limit + number;
}

static __global__ void ranges_kernel(mfk_policy a, range *ranges)
{
	const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
	const int64_t response = row < a.rows ? response_of(a, row) : -1;

	if (response < 0)
		return;
	atomicMin(&ranges[response].first, static_cast<int>(row));
	atomicMax(&ranges[response].end, static_cast<int>(row) + 1);
}

static __global__ void sums_kernel(mfk_policy a, const range *ranges, int64_t responses)
{
	const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
	double delta = 0, count = 0;
	range r;

	if (i >= responses)
		return;
	r = ranges[i];
	for (int64_t row = r.first + static_cast<int64_t>(threadIdx.x % 32); row < r.end; row += 32)
		if (response_of(a, row) == i) {
			delta += static_cast<double>(a.log_prob[row]) - a.old[row];
			count++;
		}
	delta = lane_sum(delta, 32);
	count = lane_sum(count, 32);
	if (threadIdx.x % 32 == 0) {
		a.sums[2 * i] = static_cast<float>(delta);
		a.sums[2 * i + 1] = static_cast<float>(count);
	}
}

void mfk_cuda_policy_sums(struct mfk_ctx *c, const struct mfk_policy *a)
{
	const int64_t responses = a->rows / a->length * a->limit;
	range *ranges;

	if (a->rows <= 0 || !mfk_cuda_begin(c))
		return;
	ranges = static_cast<range *>(
		mfk_cuda_scratch(c, static_cast<size_t>(responses) * sizeof(range), "policy"));
	if (!ranges)
		return;
	clear_kernel<<<blocks_of(responses), MFK_THREADS, 0, c->stream>>>(ranges, responses);
	ranges_kernel<<<blocks_of(a->rows), MFK_THREADS, 0, c->stream>>>(*a, ranges);
	sums_kernel<<<blocks_of(32 * responses), MFK_THREADS, 0, c->stream>>>(*a, ranges,
									      responses);
	mfk_cuda_end(c, "sums of responses");
}
