/*
 * Flash attention: softmax(scale q k^T) v without a matrix of seq x seq, after Dao's
 * FlashAttention-2 (arXiv 2307.08691), on mma.m16n8k16.
 *
 * A block of threads owns rows of the matrix of scores (queries) or columns (keys), and walks along
 * the other axis in steps. Heads whose dimension is between two template sizes read zeros after it.
 *
 *   flash_forward     owns queries: out, lse
 *   flash_backward_q  owns queries: dq
 *   flash_backward_kv owns keys: dk, dv, over all query heads of its group
 *
 * Backward computes the scores twice, once for each owner. So nothing is added across blocks, and
 * the same inputs give the same bits.
 */
#ifndef MFK_CUDA_ATTENTION_FLASH_CUH
#define MFK_CUDA_ATTENTION_FLASH_CUH

#include "kernels/cuda/attention/warp.cuh"
#include "kernels/cuda/base/philox.cuh"

#ifndef MFK_EMULATE
#include <math_constants.h>
#define INFINITE CUDART_INF_F
#endif

#define FLASH_WARPS 4 /* of blocks that own queries */
#define FLASH_PAD   8 /* elements between rows in shared memory: no two of 8 rows share a bank */

struct flash {
	const void *q, *k, *v, *out, *dout;
	void *to, *dq, *dk, *dv; /* to: forward's out */
	float *lse;
	const int32_t *first_key;
	int batch, seq, heads, kv_heads, qk_dim, v_dim;
	bool causal;
	float scale, scale_log2;   /* scale_log2 = scale * log2(e) */
	float dropout, kept_scale; /* kept_scale: 1 / (1 - dropout) */
	uint64_t seed, offset;
	/* Blocks that run at the same time should share keys in L2: they are of this many heads. */
	int section;
	/* backward, [batch, heads, seq_padded]: lse * log2(e), and the sums of dout * out. Beyond
	 * seq: infinity and 0. seq_padded is a multiple of 128. */
	float *lse_log2, *dot;
	int seq_padded;
	/* backward: least and greatest first_key of each step of queries, [batch, steps] */
	int32_t *step_least, *step_greatest;
	int steps;
};

/* ---- which part of the work a block does ---- */

struct flash_place {
	int tile, head, batch;
};

/*
 * Blocks start in the order of their numbers: one section of heads after the other, in a section
 * tile by tile, and the heads of a tile together. last_first: tiles with much work are last in the
 * sequence, and start first.
 */
static __device__ __forceinline__ flash_place flash_place_of(int block, int tiles, int heads,
							     int batch, int section,
							     bool last_first)
{
	int all = heads * batch;
	int at = block / (section * tiles);
	int first = at * section;
	int of = min(section, all - first);
	int rest = block - first * tiles;
	int tile = rest / of;
	int head = first + rest % of;

	return {last_first ? tiles - 1 - tile : tile, head % heads, head / heads};
}

/* ---- tiles ---- */

/* rows x dim elements of global memory into a tile of ROWS x D; what is not there is zero. A thread
 * copies 16 bytes of every so many rows: one pointer moves down, and no table of them is kept. */
template <typename T, int ROWS, int D, int THREADS>
static __device__ __forceinline__ void tile_load(T *tile, const T *from, int64_t ld, int rows,
						 int dim)
{
	constexpr int chunks = D / 8, wide = chunks % 16 == 0 ? 16 : chunks % 8 == 0 ? 8 : 4;
	constexpr int pass = THREADS / wide;
	int row = (int)threadIdx.x / wide, col = (int)threadIdx.x % wide * 8;

	static_assert(ROWS % pass == 0 && chunks % wide == 0, "all threads copy alike");
	from += row * ld + col;
	tile += row * (D + FLASH_PAD) + col;
#pragma unroll
	for (int i = 0; i < ROWS / pass; i++) {
#pragma unroll
		for (int c = 0; c < D; c += wide * 8) {
			bool valid = row + i * pass < rows && col + c < dim;

			copy_async(tile + i * pass * (D + FLASH_PAD) + c, from + c, valid);
		}
		from += pass * ld;
	}
}

/* A warp's 16 x N part of a tile from its accumulators, times `by`, into global memory, through
 * rows of shared memory that are the warp's own. */
template <typename T, int N>
static __device__ __forceinline__ void rows_store(T *to, int64_t ld, int rows, int dim, T *own,
						  int own_ld, const float (&c)[N][4], float by_low,
						  float by_high, int lane)
{
	int g = lane / 4, t = lane % 4 * 2;

	sync_warp();
#pragma unroll
	for (int n = 0; n < N; n++) {
		*(uint32_t *)(own + g * own_ld + n * 8 + t) =
			half2_of<T>::pack(c[n][0] * by_low, c[n][1] * by_low);
		*(uint32_t *)(own + (g + 8) * own_ld + n * 8 + t) =
			half2_of<T>::pack(c[n][2] * by_high, c[n][3] * by_high);
	}
	sync_warp();
#pragma unroll
	for (int i = lane; i < 16 * N; i += 32) {
		int row = i / N, col = i % N * 8;

		if (row < rows && col < dim)
			*(uint4 *)(to + row * ld + col) =
				*(const uint4 *)(own + row * own_ld + col);
	}
}

/* c[N / 8 tiles] += a's 16 rows of a tile times the rows of b, both of D columns. */
template <typename T, int M, int N, int D>
static __device__ __forceinline__ void product(float (&c)[M][N][4], const T *a, int lda, const T *b,
					       int ldb, int lane)
{
#pragma unroll
	for (int k = 0; k < D; k += 16) {
		uint32_t fa[M][4];

#pragma unroll
		for (int m = 0; m < M; m++)
			load_a(fa[m], a + m * 16 * lda + k, lda, lane);
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			uint32_t fb[4];

			load_b(fb, b + n * 8 * ldb + k, ldb, lane);
#pragma unroll
			for (int m = 0; m < M; m++) {
				half2_of<T>::mma(c[m][n], fa[m], fb[0], fb[1]);
				half2_of<T>::mma(c[m][n + 1], fa[m], fb[2], fb[3]);
			}
		}
	}
}

/* c += p times b: p, 16 rows and 8 K columns, are accumulators that become A. */
template <typename T, int M, int K, int N>
static __device__ __forceinline__ void product_of(float (&c)[M][N][4], const float (&p)[M][K][4],
						  const T *b, int ldb, int lane)
{
#pragma unroll
	for (int k = 0; k < K; k += 2) {
		uint32_t fa[M][4];

#pragma unroll
		for (int m = 0; m < M; m++) {
			fa[m][0] = half2_of<T>::pack(p[m][k][0], p[m][k][1]);
			fa[m][1] = half2_of<T>::pack(p[m][k][2], p[m][k][3]);
			fa[m][2] = half2_of<T>::pack(p[m][k + 1][0], p[m][k + 1][1]);
			fa[m][3] = half2_of<T>::pack(p[m][k + 1][2], p[m][k + 1][3]);
		}
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			uint32_t fb[4];

			load_b_rows(fb, b + k * 8 * ldb + n * 8, ldb, lane);
#pragma unroll
			for (int m = 0; m < M; m++) {
				half2_of<T>::mma(c[m][n], fa[m], fb[0], fb[1]);
				half2_of<T>::mma(c[m][n + 1], fa[m], fb[2], fb[3]);
			}
		}
	}
}

template <int M, int N> static __device__ __forceinline__ void clear(float (&c)[M][N][4])
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				c[m][n][i] = 0;
}

/* ---- what queries see ---- */

/* Keys that rows [row, row + rows) see: no row sees one before `least` or from `end` on, and every
 * row all from `greatest` to its own. */
struct flash_span {
	int least, greatest, end;
};

/* All threads of the block. reduce: 2 ints for each warp, in shared memory. */
static __device__ __forceinline__ flash_span flash_span_of(const flash &f, int batch, int row,
							   int rows, int *reduce)
{
	int last = min(row + rows, f.seq);
	flash_span s = {0, 0, f.causal ? last : f.seq};

	if (!f.first_key || !f.causal)
		return s;

	int least = f.seq, greatest = 0;

	for (int i = row + (int)threadIdx.x; i < last; i += (int)blockDim.x) {
		int first = f.first_key[(int64_t)batch * f.seq + i];

		least = min(least, first);
		greatest = max(greatest, first);
	}
	for (int x = 1; x < 32; x *= 2) {
		least = min(least, lane_xor(least, x));
		greatest = max(greatest, lane_xor(greatest, x));
	}
	if (threadIdx.x % 32 == 0) {
		reduce[threadIdx.x / 32 * 2] = least;
		reduce[threadIdx.x / 32 * 2 + 1] = greatest;
	}
	sync_block();
	for (int w = 0; w < (int)blockDim.x / 32; w++) {
		least = min(least, reduce[w * 2]);
		greatest = max(greatest, reduce[w * 2 + 1]);
	}
	sync_block();
	s.least = max(min(least, s.end), 0);
	s.greatest = greatest;
	return s;
}

/* Scores of queries from `row` on and keys from `key` on: what is not seen becomes -infinity.
 * first_key is read anew each time, since only steps on a border come here. */
template <int M, int N>
static __device__ __forceinline__ void mask_rows(float (&s)[M][N][4], const flash &f, int batch,
						 int row, int key, int lane)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int i = row + m * 16 + h * 8 + lane / 4;
			int last = f.causal ? min(i, f.seq - 1) : f.seq - 1;
			int first = f.causal && f.first_key && i < f.seq
					    ? f.first_key[(int64_t)batch * f.seq + i]
					    : 0;

#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int x = 0; x < 2; x++) {
					int j = key + n * 8 + lane % 4 * 2 + x;

					if (j > last || j < first)
						s[m][n][h * 2 + x] = -INFINITE;
				}
		}
}

/* ---- dropout ---- */

/* The number of the score of query i and key j; head: of [batch, heads]. */
static __device__ __forceinline__ uint64_t drop_number(const flash &f, int64_t head, int i, int j)
{
	return f.offset + (uint64_t)((head * f.seq + i) * f.seq + j);
}

/* Bit k: number n + k is kept; n is a multiple of 4. */
static __device__ __forceinline__ int drop_quad(const flash &f, uint64_t n)
{
	uint4 x = philox(n / 4, f.seed);

	return (int)dropout_keeps(x.x, f.dropout) | (int)dropout_keeps(x.y, f.dropout) << 1 |
	       (int)dropout_keeps(x.z, f.dropout) << 2 | (int)dropout_keeps(x.w, f.dropout) << 3;
}

static __device__ __forceinline__ int drop_one(const flash &f, uint64_t n)
{
	return (int)dropout_keeps(philox1(n, f.seed), f.dropout);
}

/*
 * Which of a thread's scores are kept: bit k of kept[m][n] is of s[m][n][k]. Philox makes four
 * numbers at once, of four keys of a query. Where their counters begin at a multiple of four keys,
 * lanes that share them make them once: two lanes if queries are rows, four if keys are.
 */
template <int M, int N>
static __device__ __forceinline__ void drop_rows(int (&kept)[M][N], const flash &f, int64_t head,
						 int row, int key, int lane)
{
	bool quads = f.seq % 4 == 0 && f.offset % 4 == 0;
	int odd = lane & 1;

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++) {
			int i = row + m * 16 + lane / 4, j = key + n * 8 + lane % 4 * 2;

			if (quads) {
				/* even lanes of query i, odd ones of i + 8 */
				int all = drop_quad(f, drop_number(f, head, i + odd * 8, j & ~3))
					  << odd * 4;

				all |= lane_xor(all, 1);
				all >>= odd * 2;
				kept[m][n] = (all & 3) | (all >> 2 & 12);
				continue;
			}
			kept[m][n] = 0;
			for (int k = 0; k < 4; k++)
				kept[m][n] |=
					drop_one(f, drop_number(f, head, i + k / 2 * 8, j + k % 2))
					<< k;
		}
}

template <int M, int N>
static __device__ __forceinline__ void drop_columns(int (&kept)[M][N], const flash &f, int64_t head,
						    int key, int row, int lane)
{
	bool quads = f.seq % 4 == 0 && f.offset % 4 == 0;
	int own = lane / 4 % 4;

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++) {
			int i = row + n * 8 + lane % 4 * 2, j = key + m * 16 + lane / 4;

			if (quads) {
				/* Of four lanes, lane k makes what all need for score k. */
				int all = drop_quad(f, drop_number(f, head, i + own % 2,
								   (j & ~3) + own / 2 * 8))
					  << own * 4;

				all |= lane_xor(all, 4);
				all |= lane_xor(all, 8);
				all >>= own;
				kept[m][n] = (all & 1) | (all >> 3 & 2) | (all >> 6 & 4) |
					     (all >> 9 & 8);
				continue;
			}
			kept[m][n] = 0;
			for (int k = 0; k < 4; k++)
				kept[m][n] |=
					drop_one(f, drop_number(f, head, i + k % 2, j + k / 2 * 8))
					<< k;
		}
}

/* ---- forward ---- */

template <typename T, int DQ, int DV, int M, int N> struct flash_forward_tile {
	static constexpr int threads = FLASH_WARPS * 32, rows = FLASH_WARPS * 16 * M, keys = N * 8;
	static constexpr int ldq = DQ + FLASH_PAD, ldv = DV + FLASH_PAD;
	static constexpr int bytes = (rows * ldq + keys * ldq + keys * ldv) * 2;
	static_assert(DQ >= DV, "out goes through q's rows");
};

/* The softmax of a step: scores become exponentials, and what was summed before is scaled. */
template <int M, int N, int NV>
static __device__ __forceinline__ void softmax_step(float (&s)[M][N][4], float (&o)[M][NV][4],
						    float (&greatest)[M][2], float (&sum)[M][2],
						    float scale_log2)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float top = greatest[m][h];

#pragma unroll
			for (int n = 0; n < N; n++)
				top = fmaxf(top, fmaxf(s[m][n][h * 2], s[m][n][h * 2 + 1]));
			top = fmaxf(top, lane_xor(top, 1));
			top = fmaxf(top, lane_xor(top, 2));

			/* A row that sees nothing yet has no greatest score. */
			float base = top == -INFINITE ? 0 : top * scale_log2;
			float scale = exp2_fast(greatest[m][h] * scale_log2 - base);
			float add = 0;

			greatest[m][h] = top;
#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int i = h * 2; i < h * 2 + 2; i++) {
					s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale_log2, -base));
					add += s[m][n][i];
				}
			sum[m][h] = sum[m][h] * scale + add;
#pragma unroll
			for (int n = 0; n < NV; n++) {
				o[m][n][h * 2] *= scale;
				o[m][n][h * 2 + 1] *= scale;
			}
		}
}

template <typename T, int DQ, int DV, int M, int N, bool DROP>
__global__ void __launch_bounds__(FLASH_WARPS * 32) flash_forward(const flash f)
{
	using tile = flash_forward_tile<T, DQ, DV, M, N>;

	SHARED_MEMORY(memory);
	T *q = (T *)memory, *k = q + tile::rows * tile::ldq, *v = k + tile::keys * tile::ldq;
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	flash_place at = flash_place_of(blockIdx.x, (f.seq + tile::rows - 1) / tile::rows, f.heads,
					f.batch, f.section, f.causal);
	int row0 = at.tile * tile::rows, kv_head = at.head / (f.heads / f.kv_heads);
	int64_t token0 = (int64_t)at.batch * f.seq;
	int64_t ldq = (int64_t)f.heads * f.qk_dim, ldk = (int64_t)f.kv_heads * f.qk_dim;
	int64_t ldv = (int64_t)f.kv_heads * f.v_dim, ldo = (int64_t)f.heads * f.v_dim;
	const T *from_k = (const T *)f.k + token0 * ldk + kv_head * f.qk_dim;
	const T *from_v = (const T *)f.v + token0 * ldv + kv_head * f.v_dim;

	flash_span span = flash_span_of(f, at.batch, row0, tile::rows, (int *)memory);
	int begin = span.least / tile::keys, end = (span.end + tile::keys - 1) / tile::keys;
	const T *own_q = q + warp * 16 * M * tile::ldq;

	float o[M][DV / 8][4], greatest[M][2], sum[M][2];

	clear(o);
	for (int m = 0; m < M; m++)
		for (int h = 0; h < 2; h++) {
			greatest[m][h] = -INFINITE;
			sum[m][h] = 0;
		}

	auto load_k = [&](int step) {
		int key = step * tile::keys;

		tile_load<T, tile::keys, DQ, tile::threads>(k, from_k + key * ldk, ldk, f.seq - key,
							    f.qk_dim);
	};
	auto load_v = [&](int step) {
		int key = step * tile::keys;

		tile_load<T, tile::keys, DV, tile::threads>(v, from_v + key * ldv, ldv, f.seq - key,
							    f.v_dim);
	};

	tile_load<T, tile::rows, DQ, tile::threads>(
		q, (const T *)f.q + (token0 + row0) * ldq + at.head * f.qk_dim, ldq, f.seq - row0,
		f.qk_dim);
	if (begin < end)
		load_k(end - 1);
	copy_commit();

	/* From the diagonal back. v arrives during q k^T, and the next k during the rest. */
	for (int step = end - 1; step >= begin; step--) {
		float s[M][N][4];
		int key = step * tile::keys;

		copy_wait<0>();
		sync_block();
		load_v(step);
		copy_commit();

		clear(s);
		product<T, M, N, DQ>(s, own_q, tile::ldq, k, tile::ldq, lane);
		if ((f.causal && key + tile::keys - 1 > row0) || key < span.greatest ||
		    key + tile::keys > f.seq)
			mask_rows<M, N>(s, f, at.batch, row0 + warp * 16 * M, key, lane);

		copy_wait<0>();
		sync_block();
		if (step > begin)
			load_k(step - 1);
		copy_commit();

		softmax_step<M, N, DV / 8>(s, o, greatest, sum, f.scale_log2);
		if constexpr (DROP) {
			int kept[M][N];

			drop_rows<M, N>(kept, f, (int64_t)at.batch * f.heads + at.head,
					row0 + warp * 16 * M, key, lane);
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int n = 0; n < N; n++)
#pragma unroll
					for (int i = 0; i < 4; i++)
						s[m][n][i] = kept[m][n] >> i & 1 ? s[m][n][i] : 0;
		}
		product_of<T, M, N, DV / 8>(o, s, v, tile::ldv, lane);
	}
	copy_wait<0>();
	sync_block();

#pragma unroll
	for (int m = 0; m < M; m++) {
		int row = row0 + (warp * M + m) * 16;
		float by[2];

#pragma unroll
		for (int h = 0; h < 2; h++) {
			float total = sum[m][h];
			int i = row + h * 8 + lane / 4;

			total += lane_xor(total, 1);
			total += lane_xor(total, 2);
			by[h] = total > 0 ? (DROP ? f.kept_scale : 1) / total : 0;
			/* A row that sees no key adds nothing to any gradient. */
			if (lane % 4 == 0 && i < f.seq)
				f.lse[((int64_t)at.batch * f.heads + at.head) * f.seq + i] =
					total > 0 ? greatest[m][h] * f.scale + logf(total)
						  : INFINITE;
		}
		rows_store<T, DV / 8>((T *)f.to + (token0 + row) * ldo + at.head * f.v_dim, ldo,
				      f.seq - row, f.v_dim, q + (warp * M + m) * 16 * tile::ldq,
				      tile::ldq, o[m], by[0], by[1], lane);
	}
}

/* ---- backward ---- */

#define DOT_LANES 8 /* for each query of each head */
#define DOT_ROWS  (128 / DOT_LANES)

/* lse_log2 and dot. */
template <typename T> __global__ void __launch_bounds__(128) flash_dot(const flash f)
{
	int64_t at = (int64_t)blockIdx.x * DOT_ROWS + threadIdx.x / DOT_LANES;
	int lane = threadIdx.x % DOT_LANES;
	int64_t head = at / f.seq_padded; /* of [batch, heads] */
	int i = (int)(at % f.seq_padded);
	float sum = 0;

	if (i < f.seq) {
		int64_t row = (head / f.heads * f.seq + i) * f.heads + head % f.heads;
		const uint4 *o = (const uint4 *)((const T *)f.out + row * f.v_dim);
		const uint4 *d = (const uint4 *)((const T *)f.dout + row * f.v_dim);

		for (int c = lane; c < f.v_dim / 8; c += DOT_LANES) {
			uint4 x = o[c], y = d[c];
			uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};

#pragma unroll
			for (int k = 0; k < 4; k++)
				sum += half2_of<T>::low(xs[k]) * half2_of<T>::low(ys[k]) +
				       half2_of<T>::high(xs[k]) * half2_of<T>::high(ys[k]);
		}
	}
	for (int x = DOT_LANES / 2; x; x /= 2)
		sum += lane_xor(sum, x);
	if (lane == 0) {
		f.dot[at] = sum;
		f.lse_log2[at] =
			i < f.seq ? f.lse[head * f.seq + i] * 1.44269504088896341f : INFINITE;
	}
}

/* step_least and step_greatest: a thread for each step of queries. */
static __global__ void flash_steps(const flash f, int rows)
{
	int at = blockIdx.x * (int)blockDim.x + (int)threadIdx.x;

	if (at >= f.batch * f.steps)
		return;

	int row = at % f.steps * rows, last = min(row + rows, f.seq);
	int least = f.seq, greatest = 0;

	for (int i = row; i < last; i++) {
		int first = f.first_key[(int64_t)(at / f.steps) * f.seq + i];

		least = min(least, first);
		greatest = max(greatest, first);
	}
	f.step_least[at] = least;
	f.step_greatest[at] = greatest;
}

template <typename T, int DQ, int DV, int M, int N> struct flash_backward_q_tile {
	static constexpr int threads = FLASH_WARPS * 32, rows = FLASH_WARPS * 16 * M, keys = N * 8;
	static constexpr int ldq = DQ + FLASH_PAD, ldv = DV + FLASH_PAD;
	static constexpr int stage = keys * (ldq + ldv); /* elements */
	static constexpr int bytes = (rows * (ldq + ldv) + 2 * stage) * 2;
};

template <typename T, int DQ, int DV, int M, int N, bool DROP>
__global__ void __launch_bounds__(FLASH_WARPS * 32) flash_backward_q(const flash f)
{
	using tile = flash_backward_q_tile<T, DQ, DV, M, N>;

	SHARED_MEMORY(memory);
	T *q = (T *)memory, *d = q + tile::rows * tile::ldq, *stages = d + tile::rows * tile::ldv;
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	flash_place at = flash_place_of(blockIdx.x, (f.seq + tile::rows - 1) / tile::rows, f.heads,
					f.batch, f.section, f.causal);
	int row0 = at.tile * tile::rows, kv_head = at.head / (f.heads / f.kv_heads);
	int64_t token0 = (int64_t)at.batch * f.seq;
	int64_t ldq = (int64_t)f.heads * f.qk_dim, ldk = (int64_t)f.kv_heads * f.qk_dim;
	int64_t ldv = (int64_t)f.kv_heads * f.v_dim, ldo = (int64_t)f.heads * f.v_dim;
	const T *from_k = (const T *)f.k + token0 * ldk + kv_head * f.qk_dim;
	const T *from_v = (const T *)f.v + token0 * ldv + kv_head * f.v_dim;

	flash_span span = flash_span_of(f, at.batch, row0, tile::rows, (int *)memory);
	int begin = span.least / tile::keys, end = (span.end + tile::keys - 1) / tile::keys;
	const T *own_q = q + warp * 16 * M * tile::ldq, *own_d = d + warp * 16 * M * tile::ldv;
	float lse[M][2], dot[M][2], dq[M][DQ / 8][4];

	for (int m = 0; m < M; m++)
		for (int h = 0; h < 2; h++) {
			int i = row0 + (warp * M + m) * 16 + h * 8 + lane / 4;
			int64_t n = ((int64_t)at.batch * f.heads + at.head) * f.seq_padded + i;

			lse[m][h] = f.lse_log2[n];
			dot[m][h] = f.dot[n];
		}
	clear(dq);

	auto load = [&](int step) {
		int key = step * tile::keys;
		T *k = stages + step % 2 * tile::stage;

		tile_load<T, tile::keys, DQ, tile::threads>(k, from_k + key * ldk, ldk, f.seq - key,
							    f.qk_dim);
		tile_load<T, tile::keys, DV, tile::threads>(
			k + tile::keys * tile::ldq, from_v + key * ldv, ldv, f.seq - key, f.v_dim);
	};

	tile_load<T, tile::rows, DQ, tile::threads>(
		q, (const T *)f.q + (token0 + row0) * ldq + at.head * f.qk_dim, ldq, f.seq - row0,
		f.qk_dim);
	tile_load<T, tile::rows, DV, tile::threads>(
		d, (const T *)f.dout + (token0 + row0) * ldo + at.head * f.v_dim, ldo, f.seq - row0,
		f.v_dim);
	if (begin < end)
		load(begin);
	copy_commit();

	for (int step = begin; step < end; step++) {
		const T *k = stages + step % 2 * tile::stage, *v = k + tile::keys * tile::ldq;
		float s[M][N][4], dp[M][N][4];
		int key = step * tile::keys;

		copy_wait<0>();
		sync_block();
		if (step + 1 < end)
			load(step + 1);
		copy_commit();

		clear(s);
		product<T, M, N, DQ>(s, own_q, tile::ldq, k, tile::ldq, lane);
		if ((f.causal && key + tile::keys - 1 > row0) || key < span.greatest ||
		    key + tile::keys > f.seq)
			mask_rows<M, N>(s, f, at.batch, row0 + warp * 16 * M, key, lane);
		clear(dp);
		product<T, M, N, DV>(dp, own_d, tile::ldv, v, tile::ldv, lane);
		if constexpr (DROP) {
			int kept[M][N];

			drop_rows<M, N>(kept, f, (int64_t)at.batch * f.heads + at.head,
					row0 + warp * 16 * M, key, lane);
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int n = 0; n < N; n++)
#pragma unroll
					for (int i = 0; i < 4; i++)
						dp[m][n][i] *=
							kept[m][n] >> i & 1 ? f.kept_scale : 0;
		}
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					s[m][n][i] = exp2_fast(fmaf(s[m][n][i], f.scale_log2,
								    -lse[m][i / 2])) *
						     (dp[m][n][i] - dot[m][i / 2]);
		product_of<T, M, N, DQ / 8>(dq, s, k, tile::ldq, lane);
	}
	copy_wait<0>();
	sync_block();

#pragma unroll
	for (int m = 0; m < M; m++) {
		int row = row0 + (warp * M + m) * 16;

		rows_store<T, DQ / 8>((T *)f.dq + (token0 + row) * ldq + at.head * f.qk_dim, ldq,
				      f.seq - row, f.qk_dim, q + (warp * M + m) * 16 * tile::ldq,
				      tile::ldq, dq[m], f.scale, f.scale, lane);
	}
}

/* Keys own the rows here: everything is transposed, and N * 8 queries are a step. */
template <typename T, int DQ, int DV, int WARPS, int M, int N> struct flash_backward_kv_tile {
	static constexpr int threads = WARPS * 32, keys = WARPS * 16 * M, rows = N * 8;
	static constexpr int ldq = DQ + FLASH_PAD, ldv = DV + FLASH_PAD;
	static constexpr int stage = (rows * (ldq + ldv)) * 2 + rows * 2 * 4; /* bytes */
	static constexpr int bytes = keys * (ldq + ldv) * 2 + 2 * stage;
};

/* The same for keys from `key` on and queries from `row` on. */
template <int M, int N>
static __device__ __forceinline__ void mask_columns(float (&s)[M][N][4], const flash &f, int batch,
						    int key, int row, int lane)
{
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int x = 0; x < 2; x++) {
			int i = row + n * 8 + lane % 4 * 2 + x;
			int first = f.first_key && i < f.seq
					    ? f.first_key[(int64_t)batch * f.seq + i]
					    : 0;

#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int h = 0; h < 2; h++) {
					int j = key + m * 16 + h * 8 + lane / 4;

					if (j > i || j < first)
						s[m][n][h * 2 + x] = -INFINITE;
				}
		}
}

template <typename T, int DQ, int DV, int WARPS, int M, int N, bool DROP>
__global__ void __launch_bounds__(WARPS * 32) flash_backward_kv(const flash f)
{
	using tile = flash_backward_kv_tile<T, DQ, DV, WARPS, M, N>;

	SHARED_MEMORY(memory);
	T *k = (T *)memory, *v = k + tile::keys * tile::ldq;
	unsigned char *stages = (unsigned char *)(v + tile::keys * tile::ldv);
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	flash_place at = flash_place_of(blockIdx.x, (f.seq + tile::keys - 1) / tile::keys,
					f.kv_heads, f.batch, f.section, false);
	int key0 = at.tile * tile::keys, group = f.heads / f.kv_heads;
	int64_t token0 = (int64_t)at.batch * f.seq;
	int64_t ldq = (int64_t)f.heads * f.qk_dim, ldk = (int64_t)f.kv_heads * f.qk_dim;
	int64_t ldv = (int64_t)f.kv_heads * f.v_dim, ldo = (int64_t)f.heads * f.v_dim;
	const T *own_k = k + warp * 16 * M * tile::ldq, *own_v = v + warp * 16 * M * tile::ldv;
	int own_key = key0 + warp * 16 * M;
	const int32_t *least = f.first_key && f.causal ? f.step_least + at.batch * f.steps : NULL;
	int first = f.causal ? key0 / tile::rows : 0;
	float dk[M][DQ / 8][4], dv[M][DV / 8][4];

	clear(dk);
	clear(dv);

	/* The first step from `step` on of which a query sees a key of this block. */
	auto seen = [&](int step) {
		while (least && step < f.steps && least[step] >= key0 + tile::keys)
			step++;
		return step;
	};
	auto load = [&](int head, int step, int stage) {
		int row = step * tile::rows;
		T *q = (T *)(stages + stage * tile::stage), *d = q + tile::rows * tile::ldq;
		float *lse = (float *)(d + tile::rows * tile::ldv);
		int64_t at_head = (int64_t)at.batch * f.heads + head;

		tile_load<T, tile::rows, DQ, tile::threads>(
			q, (const T *)f.q + (token0 + row) * ldq + head * f.qk_dim, ldq,
			f.seq - row, f.qk_dim);
		tile_load<T, tile::rows, DV, tile::threads>(
			d, (const T *)f.dout + (token0 + row) * ldo + head * f.v_dim, ldo,
			f.seq - row, f.v_dim);
		if ((int)threadIdx.x < tile::rows / 2) {
			bool low = (int)threadIdx.x < tile::rows / 4;
			int i = (int)threadIdx.x % (tile::rows / 4) * 4;

			copy_async(lse + (low ? 0 : tile::rows) + i,
				   (low ? f.lse_log2 : f.dot) + at_head * f.seq_padded + row + i,
				   true);
		}
	};

	tile_load<T, tile::keys, DQ, tile::threads>(
		k, (const T *)f.k + (token0 + key0) * ldk + at.head * f.qk_dim, ldk, f.seq - key0,
		f.qk_dim);
	tile_load<T, tile::keys, DV, tile::threads>(
		v, (const T *)f.v + (token0 + key0) * ldv + at.head * f.v_dim, ldv, f.seq - key0,
		f.v_dim);
	first = seen(first);

	int head = at.head * group, last_head = head + group, step = first, stage = 0;

	if (first == f.steps)
		head = last_head;
	else
		load(head, step, 0);
	copy_commit();

	while (head < last_head) {
		const T *q = (const T *)(stages + stage * tile::stage);
		const T *d = q + tile::rows * tile::ldq;
		const float *lse = (const float *)(d + tile::rows * tile::ldv);
		const float *dot = lse + tile::rows;
		float s[M][N][4], dp[M][N][4];
		int row = step * tile::rows, now = head;
		bool border =
			f.causal && (row < key0 + tile::keys - 1 ||
				     (least && f.step_greatest[at.batch * f.steps + step] > key0));

		copy_wait<0>();
		sync_block();
		stage ^= 1;
		step = seen(step + 1);
		if (step == f.steps) {
			step = first;
			head++;
		}
		if (head < last_head)
			load(head, step, stage);
		copy_commit();

		clear(s);
		product<T, M, N, DQ>(s, own_k, tile::ldq, q, tile::ldq, lane);
		if (border)
			mask_columns<M, N>(s, f, at.batch, own_key, row, lane);
		clear(dp);
		product<T, M, N, DV>(dp, own_v, tile::ldv, d, tile::ldv, lane);

		int kept[M][N];

		if constexpr (DROP)
			drop_columns<M, N>(kept, f, (int64_t)at.batch * f.heads + now, own_key, row,
					   lane);
#pragma unroll
		for (int n = 0; n < N; n++) {
			float2 l = *(const float2 *)(lse + n * 8 + lane % 4 * 2);
			float2 o = *(const float2 *)(dot + n * 8 + lane % 4 * 2);

#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int i = 0; i < 4; i++) {
					float keep = 1;
					float p = exp2_fast(fmaf(s[m][n][i], f.scale_log2,
								 -(i % 2 ? l.y : l.x)));

					if constexpr (DROP)
						keep = kept[m][n] >> i & 1 ? f.kept_scale : 0;
					s[m][n][i] = p * keep;
					dp[m][n][i] =
						p * (dp[m][n][i] * keep - (i % 2 ? o.y : o.x));
				}
		}
		product_of<T, M, N, DV / 8>(dv, s, d, tile::ldv, lane);
		product_of<T, M, N, DQ / 8>(dk, dp, q, tile::ldq, lane);
	}
	copy_wait<0>();
	sync_block();

#pragma unroll
	for (int m = 0; m < M; m++) {
		int key = own_key + m * 16;

		rows_store<T, DQ / 8>((T *)f.dk + (token0 + key) * ldk + at.head * f.qk_dim, ldk,
				      f.seq - key, f.qk_dim, k + (warp * M + m) * 16 * tile::ldq,
				      tile::ldq, dk[m], f.scale, f.scale, lane);
		rows_store<T, DV / 8>((T *)f.dv + (token0 + key) * ldv + at.head * f.v_dim, ldv,
				      f.seq - key, f.v_dim, v + (warp * M + m) * 16 * tile::ldv,
				      tile::ldv, dv[m], 1, 1, lane);
	}
}

#endif
