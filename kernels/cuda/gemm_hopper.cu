/*
 * Products of groups on sm_90: one launch for all groups, that reads on the device how many rows
 * each has. So the host need not know, and groups of few rows do not leave the GPU idle.
 *
 * A block stays on its multiprocessor and takes one tile of c after the other: tile t, then t +
 * blocks, and so on. One warp copies tiles of a and b into a ring of stages. Two warpgroups take
 * turns: while one multiplies its tile, the other stores its own. A tile is summed by one
 * warpgroup in the order of k, so the same inputs give the same bits.
 *
 *   forward   c[rows, n] = a[rows, k] b_g[n, k]^T
 *   inputs    c[rows, n] = a[rows, k] b_g[k, n]
 *   weights   c_g[m, n] (+)= a[rows, m]^T b[rows, n], in fp32
 *
 * A tile of rows may reach into the next group's: those are computed and not stored. Where rows are
 * what is summed over, those of the next group are zeroed in shared memory.
 */
#include "kernels/cuda/gemm_hopper.h"

#include <errno.h>

#include "kernels/cuda/bands.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/hopper_map.h"

#define TILE	    128 /* rows and columns of c */
#define BLOCK_K	    64
#define STAGES	    4
#define GROUP_LANES 128 /* threads of a warpgroup */
#define TURNS	    2	/* warpgroups */
#define THREADS	    (TURNS * GROUP_LANES + 32)
#define GROUPS_MOST 1024
#define HALF_BYTES  (64 * BLOCK_K * 2) /* 64 rows or columns of a tile */
#define SWIZZLED    1024	       /* bytes that a swizzle repeats after */

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
	unsigned char a[2 * HALF_BYTES], b[2 * HALF_BYTES];
};

/* Half of a tile of weights on its way out, a warpgroup's: 32 columns of 64 rows, four times. */
struct half_tile {
	unsigned char part[4][64 * 128];
};

struct shared {
	struct stage stages[STAGES];
	struct half_tile out[TURNS];
	uint64_t full[STAGES], empty[STAGES];
	uint64_t turn[TURNS]; /* the warpgroup has begun its last step of a tile */
	int offsets[GROUPS_MOST + 1];
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
	int group, first; /* number of the group's first tile */
};

static __device__ __forceinline__ int parts(int size, int part)
{
	return (size + part - 1) / part;
}

/* Tile t, which is none before the one of the last call. False: there are no more. */
template <enum form F>
static __device__ bool find_tile(const struct arguments &a, const int *offsets, int t,
				 struct walk *w, struct tile *ret)
{
	const int across = parts(a.n, TILE);

	for (; w->group < a.groups; w->group++) {
		const int begin = offsets[w->group], end = offsets[w->group + 1];
		const int down = parts(F == WEIGHTS ? a.m : end - begin, TILE);
		const int at = t - w->first;

		if (at < down * across) {
			int row, col;

			mfk_band_tile(at, down, across, &row, &col);
			*ret = {w->group,
				row * TILE + (F == WEIGHTS ? 0 : begin),
				col * TILE,
				begin,
				end,
				parts(F == WEIGHTS ? end - begin : a.k, BLOCK_K)};
			return true;
		}
		w->first += down * across;
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
	const int k = step * BLOCK_K;

	barrier_expect(bar, sizeof(*to));
	if (F == WEIGHTS)
		for (int h = 0; h < 2; h++)
			copy_box(to->a + h * HALF_BYTES, ma, bar, t.row + h * 64, t.begin + k, 0);
	else
		copy_box(to->a, ma, bar, k, t.row, 0);
	if (F == FORWARD)
		copy_box(to->b, mb, bar, k, t.col, t.group);
	else
		for (int h = 0; h < 2; h++)
			copy_box(to->b + h * HALF_BYTES, mb, bar, t.col + h * 64,
				 F == WEIGHTS ? t.begin + k : k, F == WEIGHTS ? 0 : t.group);
}

template <enum form F>
static __device__ __forceinline__ void copy_tiles(const struct arguments &a, struct shared *s,
						  const CUtensorMap *ma, const CUtensorMap *mb)
{
	struct walk w = {};
	struct tile t;
	unsigned n = 0; /* steps so far */

	for (int i = blockIdx.x; find_tile<F>(a, s->offsets, i, &w, &t); i += gridDim.x)
		for (int step = 0; step < t.steps; step++, n++) {
			barrier_wait(&s->empty[n % STAGES], n / STAGES % 2 ^ 1);
			copy_step<F>(s, n % STAGES, ma, mb, t, step);
		}
}

/* ---- a warpgroup that multiplies ---- */

static __device__ __forceinline__ void wait_for_warpgroup()
{
	asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / GROUP_LANES), "n"(GROUP_LANES)
		     : "memory");
}

/* Rows from `rows` on of both matrices of a stage become zero. All of the warpgroup call it. */
static __device__ void zero_rows(struct stage *s, int rows)
{
	const int row_bytes = 128, each = (BLOCK_K - rows) * row_bytes / 16;

	for (int i = threadIdx.x % GROUP_LANES; i < 4 * each; i += GROUP_LANES) {
		unsigned char *half = s->a + i / each * HALF_BYTES; /* b follows a */

		reinterpret_cast<uint4 *>(half + rows * row_bytes)[i % each] = uint4{};
	}
	fence_async();
	wait_for_warpgroup();
}

/* sum[h]: rows h * 64 to h * 64 + 63 of the tile. */
template <typename T, enum form F>
static __device__ __forceinline__ void multiply_step(float (&sum)[2][64], const struct stage *s)
{
	typedef Product<T, F == WEIGHTS, F != FORWARD> product;

	products_begin();
#pragma unroll
	for (int k = 0; k < BLOCK_K; k += 16) {
		/* 16 columns of rows of 64, or 16 rows. */
		const int a_at = F == WEIGHTS ? k * 128 : k * 2;
		const int b_at = F == FORWARD ? k * 2 : k * 128;
		const uint64_t b = matrix_at(s->b + b_at, HALF_BYTES);

#pragma unroll
		for (int h = 0; h < 2; h++)
			product::add(sum[h], matrix_at(s->a + h * HALF_BYTES + a_at, HALF_BYTES),
				     b);
	}
	products_commit();
}

/*
 * n: the tile's first step, of all steps of the block. tile: how many the warpgroup had before.
 *
 * Who waits for a stage must not be a whole round of the ring ahead: phases are known by their
 * parity alone. So a warpgroup begins when the other one needs no more stages.
 */
template <typename T, enum form F>
static __device__ __forceinline__ void multiply_tile(float (&sum)[2][64], struct shared *s,
						     const struct tile &t, unsigned n,
						     unsigned tile)
{
	const int own = threadIdx.x / GROUP_LANES;
	const bool says = threadIdx.x % 32 == 0;

	barrier_wait(&s->turn[own ^ 1], (tile + own + 1) % 2);
#pragma unroll
	for (int i = 0; i < 64; i++)
		sum[0][i] = sum[1][i] = 0;
	for (int step = 0; step < t.steps; step++, n++) {
		struct stage *stage = &s->stages[n % STAGES];
		const int rows = t.end - t.begin - step * BLOCK_K;

		barrier_wait(&s->full[n % STAGES], n / STAGES % 2);
		if (F == WEIGHTS && rows < BLOCK_K)
			zero_rows(stage, rows);
		multiply_step<T, F>(sum, stage);
		products_wait<1>();
		if (step && says)
			barrier_arrive(&s->empty[(n - 1) % STAGES]);
	}
	if (says)
		barrier_arrive(&s->turn[own]);
	products_wait<0>();
	products_done(sum[0]);
	products_done(sum[1]);
	if (t.steps && says)
		barrier_arrive(&s->empty[(n - 1) % STAGES]);
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
 * Of 64 rows of a tile, lane l of warp w has rows 16 w + l / 4, and that + 8; of each eight columns
 * the two at l % 4 * 2. d: [column / 8][row / 8 % 2][2].
 */
template <typename T>
static __device__ __forceinline__ void store_rows(const struct arguments &a, const struct tile &t,
						  const float (&d)[64], int half)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP_LANES / 32;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = t.row + half * 64 + warp * 16 + lane / 4 + r * 8;
		T *to = static_cast<T *>(a.c) + row * a.ldc;

#pragma unroll
		for (int j = 0; j < TILE / 8; j += 4) {
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

/* By way of shared memory, swizzled as the copies do: those add faster than threads, who would have
 * to read first. All of the warpgroup call it. */
static __device__ __forceinline__ void store_weights(const struct arguments &a, struct half_tile *s,
						     const CUtensorMap *mc, const struct tile &t,
						     const float (&d)[64], int half)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP_LANES / 32;
	const bool copies = threadIdx.x % GROUP_LANES == 0;

	if (copies)
		stores_wait_read();
	wait_for_warpgroup();
#pragma unroll
	for (int j = 0; j < TILE / 8; j++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const int row = warp * 16 + lane / 4 + r * 8;
			const int word = (j % 4 * 2 + lane % 4 / 2) ^ row % 8;
			unsigned char *to = s->part[j / 4] + row * 128 + word * 16 + lane % 2 * 8;

			*reinterpret_cast<float2 *>(to) =
				make_float2(d[j * 4 + r * 2], d[j * 4 + r * 2 + 1]);
		}
	fence_async();
	wait_for_warpgroup();
	if (!copies)
		return;
	for (int i = 0; i < 4; i++)
		if (a.adds)
			add_box(mc, s->part[i], t.col + i * 32, t.row + half * 64, t.group);
		else
			store_box(mc, s->part[i], t.col + i * 32, t.row + half * 64, t.group);
	stores_commit();
}

template <typename T, enum form F>
static __device__ __forceinline__ void multiply_tiles(const struct arguments &a, struct shared *s,
						      const CUtensorMap *mc)
{
	const unsigned own = threadIdx.x / GROUP_LANES;
	struct walk w = {};
	struct tile t;
	unsigned n = 0, tile = 0;

	for (int i = blockIdx.x; find_tile<F>(a, s->offsets, i, &w, &t);
	     i += gridDim.x, n += t.steps, tile++) {
		float sum[2][64];

		if (tile % TURNS != own)
			continue;
		multiply_tile<T, F>(sum, s, t, n, tile / TURNS);
#pragma unroll
		for (int h = 0; h < 2; h++)
			if (F != WEIGHTS)
				store_rows<T>(a, t, sum[h], h);
			else if (t.steps || !a.adds)
				store_weights(a, &s->out[own], mc, t, sum[h], h);
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

	for (int i = threadIdx.x; i <= a.groups; i += THREADS)
		s->offsets[i] = static_cast<int>(a.offsets[i]);
	if (threadIdx.x < STAGES) {
		barrier_init(&s->full[threadIdx.x], 1);
		barrier_init(&s->empty[threadIdx.x], GROUP_LANES / 32);
	}
	if (threadIdx.x < TURNS)
		barrier_init(&s->turn[threadIdx.x], GROUP_LANES / 32);
	fence_async();
	__syncthreads();
	if (threadIdx.x < TURNS * GROUP_LANES)
		multiply_tiles<T, F>(a, s, &mc);
	else if (threadIdx.x == TURNS * GROUP_LANES)
		copy_tiles<F>(a, s, &ma, &mb);
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

	if (d->capability != 90 || b->dtype_ab == MFK_F32 || b->bias || b->alpha != 1)
		return false;
	if (weights ? b->trans_b || b->dtype_c != MFK_F32 || (b->beta != 0 && b->beta != 1)
		    : b->dtype_c != b->dtype_ab || b->beta != 0)
		return false;
	if (b->m < 1 || b->n < 1 || b->k < 1 || b->m > most || b->n > most || b->k > most)
		return false;
	return a->groups >= 1 && a->groups <= GROUPS_MOST &&
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
	const enum mfk_dtype t = p->dtype_ab;
	const struct mfk_cuda_matrix rows = {t, p->a, p->k, p->m, 1, p->lda, p->lda, TILE};
	const struct mfk_cuda_matrix out = {p->dtype_c, p->c, p->n, p->m, 1, p->ldc, p->ldc, 64};

	if (p->trans_a)
		return {{t, p->a, p->m, p->k, 1, p->lda, p->lda, BLOCK_K},
			{t, p->b, p->n, p->k, 1, p->ldb, p->ldb, BLOCK_K},
			{p->dtype_c, p->c, p->n, p->m, g->groups, p->ldc, g->stride, 64}};
	if (p->trans_b)
		return {rows, {t, p->b, p->k, p->n, g->groups, p->ldb, g->stride, TILE}, out};
	return {rows, {t, p->b, p->n, p->k, g->groups, p->ldb, g->stride, BLOCK_K}, out};
}

template <typename T, enum form F>
static void launch(struct mfk_ctx *c, const struct matrices *m, const struct arguments *args)
{
	const int bytes = sizeof(struct shared) + SWIZZLED;
	CUtensorMap ma, mb, mc;

	if (!mfk_cuda_map(c, &m->a, &ma) || !mfk_cuda_map(c, &m->b, &mb) ||
	    !mfk_cuda_map(c, &m->c, &mc) ||
	    !mfk_cuda_check(c,
			    cudaFuncSetAttribute(grouped_kernel<T, F>,
						 cudaFuncAttributeMaxDynamicSharedMemorySize,
						 bytes),
			    "gemm_grouped"))
		return;
	grouped_kernel<T, F>
		<<<c->device->multiprocessors, THREADS, bytes, c->stream>>>(ma, mb, mc, *args);
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

	if (a->base.dtype_ab == MFK_BF16)
		launch_form<__nv_bfloat16>(c, a, &args);
	else
		launch_form<__half>(c, a, &args);
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
