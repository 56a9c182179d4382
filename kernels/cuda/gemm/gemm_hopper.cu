/*
 * Products of groups on sm_90: one launch for all groups, that reads on the device how many rows
 * each has. So the host need not know, and groups of few rows do not leave the GPU idle.
 *
 * A block stays on its multiprocessor and takes one tile of c after the other. One warp copies
 * parts of a and b into a ring of stages; each of two warpgroups multiplies half of the tile's
 * rows. An element is summed by one thread in the order of k, so the same inputs give the same
 * bits. A cluster of two blocks has two tiles side by side: each copies half of their rows of a,
 * to both.
 *
 *   forward   c[rows, n] = a[rows, k] b_g[n, k]^T
 *   inputs    c[rows, n] = a[rows, k] b_g[k, n]
 *   weights   c_g[m, n] (+)= a[rows, m]^T b[rows, n], in fp32
 *
 * A tile of rows may reach into the next group's: those are computed and not stored. Where rows are
 * what is summed over, those of the next group are zeroed in shared memory.
 *
 * Why 128 x 256: products of a step of 64 take 1024 cycles, in which shared memory moves 128 KB.
 * They read 80 of it, and copies write 48. Two tiles of 128 x 128 take as long, and need 96 and 64.
 */
#include "kernels/cuda/gemm/gemm_hopper.h"

#include <errno.h>

#include "kernels/cuda/gemm/bands.h"
#include "kernels/cuda/base/cuda_dtypes.cuh"
#include "kernels/cuda/base/sm90.cuh"
#include "kernels/cuda/base/hopper_map.h"

#define TILE_ROWS   128 /* of c */
#define TILE_COLS   256
#define BLOCK_K	    64
#define STAGES	    4
#define CLUSTER	    2	/* blocks, side by side */
#define GROUP_LANES 128 /* threads of a warpgroup */
#define WARPGROUPS  2	/* that multiply: 64 rows of a tile each */
#define MULTIPLIERS (WARPGROUPS * GROUP_LANES)
#define THREADS	    (MULTIPLIERS + 32)
#define HALF_BYTES  (64 * BLOCK_K * 2) /* 64 rows or columns of a tile */
#define SWIZZLED    1024	       /* bytes that a swizzle repeats after */
#define PIECES	    2		       /* of weights on their way out, a warpgroup's */
#define PIECE_COLS  32

enum form { FORWARD, INPUTS, WEIGHTS };

struct arguments {
	const int64_t *offsets;
	int groups, m, n, k; /* m: of weights; k: of the others */
	void *c;
	int64_t ldc;
	bool adds;
};

/* Aligned to SWIZZLED. */
struct stage {
	unsigned char a[TILE_ROWS / 64 * HALF_BYTES], b[TILE_COLS / 64 * HALF_BYTES];
};

struct shared {
	struct stage stages[STAGES];
	unsigned char out[WARPGROUPS][PIECES][64 * PIECE_COLS * 4];
	uint64_t full[STAGES], empty[STAGES];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- tiles ---- */

struct tile {
	int group, row, col; /* row: of c; of a token, but for weights */
	int begin, end;	     /* the group's rows */
	int steps;	     /* of BLOCK_K */
};

/* Where a walk through the tiles is. */
struct walk {
	int at;		  /* the cluster's next number */
	int group, first; /* number of the group's first tiles */
};

static __device__ __forceinline__ int parts(int size, int part)
{
	return (size + part - 1) / part;
}

static __device__ __forceinline__ int rank_in_cluster()
{
	return blockIdx.x % CLUSTER;
}

static __device__ __forceinline__ struct walk first_tile()
{
	return {static_cast<int>(blockIdx.x / CLUSTER), 0, 0};
}

/* The block's next tile; those of a cluster differ in col alone. False: there are no more. */
template <enum form F>
static __device__ bool next_tile(const struct arguments &a, struct walk *w, struct tile *ret)
{
	const int across = parts(a.n, CLUSTER * TILE_COLS);

	for (; w->group < a.groups; w->group++) {
		const int begin = static_cast<int>(a.offsets[w->group]);
		const int end = static_cast<int>(a.offsets[w->group + 1]);
		const int down = parts(F == WEIGHTS ? a.m : end - begin, TILE_ROWS);
		int row, col;

		if (w->at - w->first >= down * across) {
			w->first += down * across;
			continue;
		}
		mfk_band_tile(w->at - w->first, down, across, &row, &col);
		*ret = {w->group,
			row * TILE_ROWS + (F == WEIGHTS ? 0 : begin),
			(col * CLUSTER + rank_in_cluster()) * TILE_COLS,
			begin,
			end,
			parts(F == WEIGHTS ? end - begin : a.k, BLOCK_K)};
		w->at += gridDim.x / CLUSTER;
		return true;
	}
	return false;
}

/* ---- the warp that copies ---- */

template <enum form F>
static __device__ __forceinline__ void copy_step(struct shared *s, int stage, const CUtensorMap *ma,
						 const CUtensorMap *mb, const struct tile &t,
						 int step)
{
	struct stage *to = &s->stages[stage];
	uint64_t *bar = &s->full[stage];
	const int k = step * BLOCK_K, half = rank_in_cluster();
	const int own = t.row + half * 64;

	barrier_expect(bar, sizeof(*to));
	copy_box_to((1 << CLUSTER) - 1, to->a + half * HALF_BYTES, ma, bar, F == WEIGHTS ? own : k,
		    F == WEIGHTS ? t.begin + k : own, 0);
	if (F == FORWARD)
		copy_box(to->b, mb, bar, k, t.col, t.group);
	else
		for (int i = 0; i < TILE_COLS / 64; i++)
			copy_box(to->b + i * HALF_BYTES, mb, bar, t.col + i * 64,
				 F == WEIGHTS ? t.begin + k : k, F == WEIGHTS ? 0 : t.group);
}

template <enum form F>
static __device__ __forceinline__ void copy_tiles(const struct arguments &a, struct shared *s,
						  const CUtensorMap *ma, const CUtensorMap *mb)
{
	struct walk w = first_tile();
	struct tile t;
	unsigned n = 0; /* steps so far */

	while (next_tile<F>(a, &w, &t))
		for (int step = 0; step < t.steps; step++, n++) {
			barrier_wait(&s->empty[n % STAGES], n / STAGES % 2 ^ 1);
			copy_step<F>(s, n % STAGES, ma, mb, t, step);
		}
}

/* ---- a warpgroup that multiplies ---- */

static __device__ __forceinline__ int own_warpgroup()
{
	return threadIdx.x / GROUP_LANES;
}

static __device__ __forceinline__ void wait_for_warpgroup()
{
	asm volatile("bar.sync %0, %1;" ::"r"(1 + own_warpgroup()), "n"(GROUP_LANES) : "memory");
}

/*
 * Rows from `rows` on of what the warpgroup reads of a stage become zero: its half of a, and b. The
 * other warpgroup writes the same zeros to b, so neither waits for the other.
 */
static __device__ void zero_rows(struct stage *s, int rows)
{
	const int row_bytes = 128, each = (BLOCK_K - rows) * row_bytes / 16;

	for (int i = threadIdx.x % GROUP_LANES; i < (1 + TILE_COLS / 64) * each; i += GROUP_LANES) {
		const int half = i / each;
		unsigned char *p =
			half ? s->b + (half - 1) * HALF_BYTES : s->a + own_warpgroup() * HALF_BYTES;

		reinterpret_cast<uint4 *>(p + rows * row_bytes)[i % each] = uint4{};
	}
	fence_async();
	wait_for_warpgroup();
}

template <typename T, enum form F>
static __device__ __forceinline__ void multiply_step(float (&sum)[128], const struct stage *s)
{
	typedef Product<T, F == WEIGHTS, F != FORWARD> product;
	const unsigned char *half = s->a + own_warpgroup() * HALF_BYTES;

	products_begin();
#pragma unroll
	for (int k = 0; k < BLOCK_K; k += 16) {
		/* 16 columns of rows of 64, or 16 rows. */
		const int a_at = F == WEIGHTS ? k * 128 : k * 2;
		const int b_at = F == FORWARD ? k * 2 : k * 128;

		product::add(sum, matrix_at(half + a_at, HALF_BYTES),
			     matrix_at(s->b + b_at, HALF_BYTES));
	}
	products_commit();
}

/* Of both blocks, since both copy into it. */
static __device__ __forceinline__ void stage_is_empty(struct shared *s, unsigned stage)
{
	const unsigned lane = threadIdx.x % 32;

	if (lane < CLUSTER)
		barrier_arrive_at(&s->empty[stage], lane);
}

/* n: the tile's first step, of all steps of the block. */
template <typename T, enum form F>
static __device__ __forceinline__ void multiply_tile(float (&sum)[128], struct shared *s,
						     const struct tile &t, unsigned n)
{
#pragma unroll
	for (int i = 0; i < 128; i++)
		sum[i] = 0;
	for (int step = 0; step < t.steps; step++, n++) {
		struct stage *stage = &s->stages[n % STAGES];
		const int rows = t.end - t.begin - step * BLOCK_K;

		barrier_wait(&s->full[n % STAGES], n / STAGES % 2);
		if (F == WEIGHTS && rows < BLOCK_K)
			zero_rows(stage, rows);
		multiply_step<T, F>(sum, stage);
		products_wait<1>();
		if (step)
			stage_is_empty(s, (n - 1) % STAGES);
	}
	products_wait<0>();
	products_done(sum);
	if (t.steps)
		stage_is_empty(s, (n - 1) % STAGES);
}

/* ---- storing ---- */

static __device__ __forceinline__ uint32_t pack(__nv_bfloat16, float x, float y)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(x, y);

	return *reinterpret_cast<uint32_t *>(&v);
}

static __device__ __forceinline__ uint32_t pack(__half, float x, float y)
{
	__half2 v = __floats2half2_rn(x, y);

	return *reinterpret_cast<uint32_t *>(&v);
}

/*
 * Of a warpgroup's 64 rows, lane l of warp w has rows 16 w + l / 4, and that + 8; of each eight
 * columns the two at l % 4 * 2. d: [column / 8][row / 8 % 2][2].
 */
static __device__ __forceinline__ int row_in_half()
{
	return threadIdx.x % GROUP_LANES / 32 * 16 + threadIdx.x % 32 / 4;
}

template <typename T>
static __device__ __forceinline__ void store_rows(const struct arguments &a, const struct tile &t,
						  const float (&d)[128])
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = t.row + own_warpgroup() * 64 + row_in_half() + r * 8;
		T *to = static_cast<T *>(a.c) + row * a.ldc;

#pragma unroll
		for (int j = 0; j < TILE_COLS / 8; j += 4) {
			const int col = t.col + (j + lane % 4) * 8;
			uint32_t w[4];

#pragma unroll
			for (int i = 0; i < 4; i++)
				w[i] = pack(T(), d[(j + i) * 4 + r * 2],
					    d[(j + i) * 4 + r * 2 + 1]);
			exchange(w);
			if (row < t.end && col < a.n)
				*reinterpret_cast<uint4 *>(to + col) =
					make_uint4(w[0], w[1], w[2], w[3]);
		}
	}
}

/* Columns from `first` on to a piece, swizzled as the copies do. */
static __device__ __forceinline__ void fill_piece(unsigned char *piece, const float (&d)[128],
						  int first)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int j = 0; j < PIECE_COLS / 8; j++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const int row = row_in_half() + r * 8;
			const int word = (j * 2 + lane % 4 / 2) ^ row % 8;
			const float *from = d + (first / 8 + j) * 4 + r * 2;

			*reinterpret_cast<float2 *>(piece + row * 128 + word * 16 + lane % 2 * 8) =
				make_float2(from[0], from[1]);
		}
}

/* By way of shared memory: copies add faster than threads, who would have to read first (experts of
 * 4096 x 28672 with 1024 rows: 0.99 and 1.13 ms). All of the warpgroup call it. */
static __device__ __forceinline__ void store_weights(const struct arguments &a, struct shared *s,
						     const CUtensorMap *mc, const struct tile &t,
						     const float (&d)[128])
{
	const bool copies = threadIdx.x % GROUP_LANES == 0;

#pragma unroll
	for (int i = 0; i < TILE_COLS / PIECE_COLS; i++) {
		unsigned char *piece = s->out[own_warpgroup()][i % PIECES];
		const int col = t.col + i * PIECE_COLS, row = t.row + own_warpgroup() * 64;

		if (copies)
			stores_wait_read<PIECES - 1>();
		wait_for_warpgroup();
		fill_piece(piece, d, i * PIECE_COLS);
		fence_async();
		wait_for_warpgroup();
		if (!copies)
			continue;
		if (a.adds)
			add_box(mc, piece, col, row, t.group);
		else
			store_box(mc, piece, col, row, t.group);
		stores_commit();
	}
}

template <typename T, enum form F>
static __device__ __forceinline__ void multiply_tiles(const struct arguments &a, struct shared *s,
						      const CUtensorMap *mc)
{
	struct walk w = first_tile();
	struct tile t;
	unsigned n = 0;

	for (; next_tile<F>(a, &w, &t); n += t.steps) {
		float sum[128];

		multiply_tile<T, F>(sum, s, t, n);
		if (F != WEIGHTS)
			store_rows<T>(a, t, sum);
		else if (t.steps || !a.adds)
			store_weights(a, s, mc, t, sum);
	}
	if (F == WEIGHTS)
		stores_wait();
}

#endif

template <typename T, enum form F>
static __global__ void __launch_bounds__(THREADS, 1)
	grouped_kernel(const __grid_constant__ CUtensorMap ma,
		       const __grid_constant__ CUtensorMap mb,
		       const __grid_constant__ CUtensorMap mc, struct arguments a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ unsigned char memory[];
	struct shared *s = reinterpret_cast<struct shared *>(
		memory + (-shared_address(memory) & (SWIZZLED - 1)));

	if (threadIdx.x < STAGES) {
		barrier_init(&s->full[threadIdx.x], 1);
		barrier_init(&s->empty[threadIdx.x], CLUSTER * MULTIPLIERS / 32);
	}
	barriers_begin();
	cluster_wait();
	if (threadIdx.x < MULTIPLIERS)
		multiply_tiles<T, F>(a, s, &mc);
	else if (threadIdx.x == MULTIPLIERS)
		copy_tiles<F>(a, s, &ma, &mb);
	cluster_wait(); /* the other block arrives at this one's barriers */
#endif
}

/* ---- launching ---- */

#ifdef MFK_SM90A

static bool row_of_words(int64_t elements)
{
	return elements % 8 == 0;
}

bool mfk_cuda_gemm_hopper_can(const struct mfk_device *d, const struct mfk_gemm_grouped *a)
{
	const struct mfk_gemm *b = &a->base;
	const int64_t most = INT32_MAX / 2;
	const bool weights = b->trans_a;

	if (d->capability != 90 || mfk_dtype_size(b->dtype_a) != 2 || b->bias || b->alpha != 1)
		return false;
	if (weights ? b->trans_b || !mfk_is_exact(b->dtype_c) || (b->beta != 0 && b->beta != 1)
		    : b->dtype_c != b->dtype_a || b->beta != 0)
		return false;
	if (b->m < 1 || b->n < 1 || b->k < 1 || b->m > most || b->n > most || b->k > most)
		return false;
	return a->groups >= 1 && a->groups <= most &&
	       row_of_words(b->n | b->lda | b->ldb | b->ldc | a->stride);
}

bool mfk_cuda_gemm_hopper_aligned(const struct mfk_gemm_grouped *a)
{
	const uintptr_t all = reinterpret_cast<uintptr_t>(a->base.a) |
			      reinterpret_cast<uintptr_t>(a->base.b) |
			      reinterpret_cast<uintptr_t>(a->base.c);

	return all % 16 == 0;
}

/* What a form reads and writes; threads store c, but for weights. */
struct matrices {
	struct mfk_cuda_matrix a, b, c;
};

static struct matrices matrices_of(const struct mfk_gemm_grouped *g)
{
	const struct mfk_gemm *p = &g->base;
	const enum mfk_dtype t = p->dtype_a;
	const struct mfk_cuda_matrix rows = {t, p->a, p->k, p->m, 1, p->lda, p->lda, 64};
	const struct mfk_cuda_matrix out = {p->dtype_c, p->c, p->n, p->m, 1, p->ldc, p->ldc, 64};

	if (p->trans_a)
		return {{t, p->a, p->m, p->k, 1, p->lda, p->lda, BLOCK_K},
			{t, p->b, p->n, p->k, 1, p->ldb, p->ldb, BLOCK_K},
			{p->dtype_c, p->c, p->n, p->m, g->groups, p->ldc, g->stride, 64}};
	if (p->trans_b)
		return {rows, {t, p->b, p->k, p->n, g->groups, p->ldb, g->stride, TILE_COLS}, out};
	return {rows, {t, p->b, p->n, p->k, g->groups, p->ldb, g->stride, BLOCK_K}, out};
}

template <typename T, enum form F>
static void launch(struct mfk_ctx *c, const struct matrices *m, const struct arguments *args)
{
	const int bytes = sizeof(struct shared) + SWIZZLED;
	cudaLaunchAttribute cluster = {};
	cudaLaunchConfig_t how = {};
	CUtensorMap ma, mb, mc;

	if (!mfk_cuda_map(c, &m->a, &ma) || !mfk_cuda_map(c, &m->b, &mb) ||
	    !mfk_cuda_map(c, &m->c, &mc) ||
	    !mfk_cuda_check(c,
			    cudaFuncSetAttribute(grouped_kernel<T, F>,
						 cudaFuncAttributeMaxDynamicSharedMemorySize,
						 bytes),
			    "gemm_grouped"))
		return;
	cluster.id = cudaLaunchAttributeClusterDimension;
	cluster.val.clusterDim = {CLUSTER, 1, 1};
	how.gridDim = c->device->multiprocessors / CLUSTER * CLUSTER;
	how.blockDim = THREADS;
	how.dynamicSmemBytes = bytes;
	how.stream = c->stream;
	how.attrs = &cluster;
	how.numAttrs = 1;
	if (mfk_cuda_check(c, cudaLaunchKernelEx(&how, grouped_kernel<T, F>, ma, mb, mc, *args),
			   "gemm_grouped"))
		mfk_cuda_end(c, "gemm_grouped");
}

template <typename T>
static void launch_form(struct mfk_ctx *c, const struct mfk_gemm_grouped *g,
			const struct arguments *args)
{
	const struct matrices m = matrices_of(g);

	if (g->base.trans_a)
		launch<T, WEIGHTS>(c, &m, args);
	else if (g->base.trans_b)
		launch<T, FORWARD>(c, &m, args);
	else
		launch<T, INPUTS>(c, &m, args);
}

void mfk_cuda_gemm_hopper(struct mfk_ctx *c, const struct mfk_gemm_grouped *a)
{
	const struct arguments args = {a->offsets,
				       static_cast<int>(a->groups),
				       static_cast<int>(a->base.m),
				       static_cast<int>(a->base.n),
				       static_cast<int>(a->base.k),
				       a->base.c,
				       a->base.ldc,
				       a->base.beta != 0};

	with_type_of<2>(a->base.dtype_a,
			[&](auto tag) { launch_form<typename decltype(tag)::type>(c, a, &args); });
}

#else

bool mfk_cuda_gemm_hopper_can(const struct mfk_device *d, const struct mfk_gemm_grouped *a)
{
	(void)d, (void)a;
	return false;
}

bool mfk_cuda_gemm_hopper_aligned(const struct mfk_gemm_grouped *a)
{
	(void)a;
	return false;
}

void mfk_cuda_gemm_hopper(struct mfk_ctx *c, const struct mfk_gemm_grouped *a)
{
	(void)a;
	mfk_cuda_fail(c, -ENOSYS, "gemm_grouped: this program was built without sm_90a");
}

#endif
