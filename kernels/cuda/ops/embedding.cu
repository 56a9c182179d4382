/* Rows of a table, looked up and, backward, added to. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

static __device__ __forceinline__ bool valid(int32_t id, int64_t end, enum mfk_cuda_fault fault,
					     uint64_t *ret)
{
	if (id >= 0 && id < end)
		return true;
	*reinterpret_cast<volatile uint64_t *>(ret) =
		static_cast<uint64_t>(fault) << 32 | static_cast<uint32_t>(id);
	return false;
}

template <typename T>
static __global__ void embedding_kernel(mfk_embedding a, bool wide, uint64_t *fault)
{
	int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, id, position = 0;
	const T *wte = static_cast<const T *>(a.wte), *wpe = static_cast<const T *>(a.wpe);
	T *y = static_cast<T *>(a.y) + t * a.cols;

	if (t >= a.tokens)
		return;
	id = a.ids[t];
	if (!valid(static_cast<int32_t>(id), a.all ? a.all : a.vocab, MFK_FAULT_TOKEN, fault))
		return;
	id -= a.first;
	if (wpe) {
		position = a.positions[t];
		if (!valid(static_cast<int32_t>(position), a.positions_max, MFK_FAULT_POSITION,
			   fault))
			return;
	}
	for (int64_t col = threadIdx.x * MFK_N; col < a.cols; col += blockDim.x * MFK_N) {
		Raw<T> r;

		if (id >= 0 && id < a.vocab) {
			r = load_raw(wte + id * a.cols + col, a.cols - col, wide);
		} else {
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				r.x[k] = from_float<T>(0.f);
		}
		if (wpe) {
			float v[MFK_N], more[MFK_N];

			unpack(v, r);
			load(more, wpe + position * a.cols + col, a.cols - col, wide);
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				v[k] += more[k];
			r = pack<T>(v);
		}
		store_raw(y + col, r, a.cols - col, wide);
	}
}

void mfk_cuda_embedding(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	row_block b = rows_of_threads(a->tokens, a->cols);
	bool wide = aligned(a->wte, a->wpe, a->y) && a->cols % MFK_N == 0;

	if (a->tokens <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		embedding_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide, c->fault);
	});
	mfk_cuda_end(c, "embedding");
}

/*
 * Block (i, y) stands at place i of the order. If the row of the token there is another than that
 * of the token before, the block adds up this row: all tokens that follow with the same one. Of
 * rows [0, end) those from first on are here, count of them.
 */
template <typename T>
static __global__ void table_kernel(mfk_embedding a, const int32_t *order, const int32_t *rows,
				    int64_t first, int64_t count, int64_t end,
				    enum mfk_cuda_fault kind, void *grad, bool wide,
				    uint64_t *fault)
{
	int64_t i = blockIdx.x;
	int64_t col = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * MFK_N;
	const T *dy = static_cast<const T *>(a.dy);
	int32_t row = rows[order[i]];
	const int64_t at = row - first;
	float sum[MFK_N], v[MFK_N];

	if (col >= a.cols || (i && rows[order[i - 1]] == row) || !valid(row, end, kind, fault))
		return;
	if (at < 0 || at >= count)
		return;
	load_any(sum, a.grad, grad, at * a.cols + col, a.cols - col, wide);
#pragma unroll 4
	for (; i < a.tokens && rows[order[i]] == row; i++) {
		load(v, dy + order[i] * a.cols + col, a.cols - col, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			sum[k] += v[k];
	}
	store_any(a.grad, grad, at * a.cols + col, sum, a.cols - col, wide);
}

static void table_backward(struct mfk_ctx *c, const struct mfk_embedding *a, const int32_t *order,
			   const int32_t *rows, int64_t first, int64_t count, int64_t end,
			   enum mfk_cuda_fault kind, void *grad)
{
	int64_t vectors = ceil_div(a->cols, MFK_N);
	unsigned threads = vectors < 128 ? static_cast<unsigned>(ceil_div(vectors, 32) * 32) : 128;
	dim3 blocks(static_cast<unsigned>(a->tokens),
		    static_cast<unsigned>(ceil_div(vectors, threads)));
	bool wide = aligned(a->dy, grad) && a->cols % MFK_N == 0;

	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		table_kernel<T><<<blocks, threads, 0, c->stream>>>(*a, order, rows, first, count,
								   end, kind, grad, wide, c->fault);
	});
	mfk_cuda_end(c, "embedding's gradient");
}

void mfk_cuda_embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	if (a->tokens <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	table_backward(c, a, a->order, a->ids, a->first, a->vocab, a->all ? a->all : a->vocab,
		       MFK_FAULT_TOKEN, a->dwte);
	if (a->dwpe)
		table_backward(c, a, a->position_order, a->positions, 0, a->positions_max,
			       a->positions_max, MFK_FAULT_POSITION, a->dwpe);
}
