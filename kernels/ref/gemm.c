/*
 * Products of matrices, by OpenBLAS. The result is cut into tiles, which threads take. Tiles depend
 * on the shape alone, and each is one thread's, so the bits do not depend on the number of threads.
 * Operands of other types than fp32 are converted a block of k at a time.
 */
#include "kernels/eight_bits.h"
#include "kernels/ref/ref_i.h"

#include <cblas.h>
#include <string.h>

#define TILE_M	256
#define TILE_N	512
#define BLOCK_K 1024 /* of what is converted */

/*
 * OpenBLAS adds up a row's products in an order that may depend on how many rows there are, and
 * where the row is among them: kernels of Haswell and Zen compute 12 rows at once, and the rest in
 * other ways. Of 8 rows all are added up alike, with the kernels of Prescott, Sandybridge, Haswell,
 * Zen and SkylakeX. So rows that are to be alike are computed 8 at a time; the last ones in the
 * company of zeros.
 */
#define ALIKE_ROWS 8

struct product {
	struct mfk_gemm g;
	int64_t tile_m, tile_n, tiles_n;
	int64_t first; /* number of the first tile */
};

struct products {
	struct product *list;
	int64_t count;
};

void mfk_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
	       const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
	       int64_t ldc)
{
	cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
		    trans_b ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, alpha,
		    a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

/* About equal pieces of at most `most`, multiples of what kernels compute at once. */
static int64_t tile_side(int64_t n, int64_t most)
{
	int64_t pieces = (n + most - 1) / most;
	int64_t side = (n + pieces - 1) / (pieces ? pieces : 1);

	return (side + 15) / 16 * 16;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A block of an operand as fp32: rows of memory from element `at`. */
struct operand {
	const float *p;
	int64_t ld;
};

static struct operand block_of(enum mfk_dtype type, const void *base, int64_t at, int64_t ld,
			       int64_t rows, int64_t cols, float *buf)
{
	if (mfk_is_exact(type))
		return (struct operand){mfk_at(type, base, at), ld};
	for (int64_t i = 0; i < rows; i++)
		mfk_to_f32(type, mfk_at(type, base, at + i * ld), cols, buf + i * cols);
	return (struct operand){buf, cols};
}

MFK_SIMD static void add_row(float *x, const float *row, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] += row[i];
}

static void add_bias(const struct mfk_gemm *g, int64_t n0, int64_t rows, int64_t cols, float *c,
		     int64_t ldc, float *buf)
{
	const float *bias = mfk_load(g->dtype_bias, g->bias, n0, cols, buf);

	for (int64_t i = 0; i < rows; i++)
		add_row(c + i * ldc, bias, cols);
}

/* Where rows that are to be alike are computed: all of a tile's, [tile_m, n] of scratch. Rows of c
 * that there are, with beta, and zeros. */
static void begin_alike(const struct product *p, int64_t at, int64_t m, int64_t n, float *c)
{
	const struct mfk_gemm *g = &p->g;

	memset(c, 0, (size_t)(p->tile_m * n) * sizeof(*c));
	for (int64_t i = 0; i < m && g->beta != 0; i++)
		mfk_to_f32(g->dtype_c, mfk_at(g->dtype_c, g->c, at + i * g->ldc), n, c + i * n);
}

/* As many rows of a as a tile has, m of which there are. */
static struct operand alike_rows(const struct product *p, int64_t at, int64_t m, int64_t k,
				 float *buf)
{
	const struct mfk_gemm *g = &p->g;

	for (int64_t i = 0; i < m; i++)
		mfk_to_f32(g->dtype_a, mfk_at(g->dtype_a, g->a, at + i * g->lda), k, buf + i * k);
	memset(buf + m * k, 0, (size_t)((p->tile_m - m) * k) * sizeof(*buf));
	return (struct operand){buf, k};
}

static void multiply_alike(const struct product *p, int64_t tile, float *scratch)
{
	const struct mfk_gemm *g = &p->g;
	int64_t m0 = tile / p->tiles_n * p->tile_m, n0 = tile % p->tiles_n * p->tile_n;
	int64_t m = smaller(p->tile_m, g->m - m0), n = smaller(p->tile_n, g->n - n0);
	float *a_buf = scratch, *b_buf = a_buf + p->tile_m * BLOCK_K;
	float *c = b_buf + p->tile_n * BLOCK_K;

	begin_alike(p, m0 * g->ldc + n0, m, n, c);
	for (int64_t k0 = 0; k0 < g->k || !k0; k0 += BLOCK_K) {
		int64_t k = smaller(BLOCK_K, g->k - k0);
		struct operand a = alike_rows(p, m0 * g->lda + k0, m, k, a_buf);
		struct operand b =
			g->trans_b
				? block_of(g->dtype_b, g->b, n0 * g->ldb + k0, g->ldb, n, k, b_buf)
				: block_of(g->dtype_b, g->b, k0 * g->ldb + n0, g->ldb, k, n, b_buf);

		mfk_sgemm(false, g->trans_b, p->tile_m, n, k, g->alpha, a.p, a.ld, b.p, b.ld,
			  k0 ? 1 : g->beta, c, n);
		if (!g->k)
			break;
	}
	if (g->bias)
		add_bias(g, n0, m, n, c, n, a_buf);
	for (int64_t i = 0; i < m; i++)
		mfk_from_f32(g->dtype_c, c + i * n, n,
			     mfk_at(g->dtype_c, g->c, (m0 + i) * g->ldc + n0));
}

static void multiply_tile(const struct product *p, int64_t tile, float *scratch)
{
	const struct mfk_gemm *g = &p->g;
	int64_t m0 = tile / p->tiles_n * p->tile_m, n0 = tile % p->tiles_n * p->tile_n;
	int64_t m = smaller(p->tile_m, g->m - m0), n = smaller(p->tile_n, g->n - n0);
	int64_t block_k = mfk_is_exact(g->dtype_a) ? g->k : BLOCK_K;
	float *a_buf = scratch, *b_buf = a_buf + p->tile_m * BLOCK_K;
	float *c = b_buf + p->tile_n * BLOCK_K;
	int64_t ldc = n, at = m0 * g->ldc + n0;

	if (mfk_is_exact(g->dtype_c)) {
		c = mfk_at(g->dtype_c, g->c, at);
		ldc = g->ldc;
	} else if (g->beta != 0) {
		block_of(g->dtype_c, g->c, at, g->ldc, m, n, c);
	}
	for (int64_t k0 = 0; k0 < g->k || !k0; k0 += block_k) {
		int64_t k = smaller(block_k, g->k - k0);
		struct operand a =
			g->trans_a
				? block_of(g->dtype_a, g->a, k0 * g->lda + m0, g->lda, k, m, a_buf)
				: block_of(g->dtype_a, g->a, m0 * g->lda + k0, g->lda, m, k, a_buf);
		struct operand b =
			g->trans_b
				? block_of(g->dtype_b, g->b, n0 * g->ldb + k0, g->ldb, n, k, b_buf)
				: block_of(g->dtype_b, g->b, k0 * g->ldb + n0, g->ldb, k, n, b_buf);

		mfk_sgemm(g->trans_a, g->trans_b, m, n, k, g->alpha, a.p, a.ld, b.p, b.ld,
			  k0 ? 1 : g->beta, c, ldc);
		if (!g->k)
			break;
	}
	if (g->bias)
		add_bias(g, n0, m, n, c, ldc, a_buf);
	for (int64_t i = 0; i < m; i++)
		mfk_end(g->dtype_c, g->c, at + i * g->ldc, n, c + i * ldc);
}

static void multiply_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct products *all = arg;
	int64_t low = 0, high = all->count;

	(void)end; /* a part is one tile */
	while (high - low > 1) {
		int64_t middle = (low + high) / 2;

		if (all->list[middle].first <= begin)
			low = middle;
		else
			high = middle;
	}
	if (all->list[low].g.alike)
		multiply_alike(&all->list[low], begin - all->list[low].first, scratch);
	else
		multiply_tile(&all->list[low], begin - all->list[low].first, scratch);
}

/* Floats of scratch, for the largest of the products. */
static size_t scratch_of(const struct product *p)
{
	return (size_t)((p->tile_m + p->tile_n) * BLOCK_K + p->tile_m * p->tile_n);
}

/* Scales are of the whole product: its sums are multiplied by both at once. */
static float alpha_of(const struct mfk_gemm *g)
{
	return g->scaling ? g->alpha * (g->scale_a->inverse * g->scale_b->inverse) : g->alpha;
}

/* Adds a product to the list; returns the number of tiles of all. */
static int64_t push(struct mfk_ctx *c, struct products *all, const struct mfk_gemm *g,
		    int64_t tiles, size_t *scratch)
{
	const char *refusal = mfk_gemm_refusal(g);
	struct product *p = &all->list[all->count];
	size_t need;

	if (refusal)
		mfk_fail(c, "a product of [%lld, %lld] and [%lld, %lld]: %s", (long long)g->m,
			 (long long)g->k, (long long)g->k, (long long)g->n, refusal);
	if (refusal || g->m <= 0 || g->n <= 0)
		return tiles;
	*p = (struct product){.g = *g, .first = tiles};
	p->g.alpha = alpha_of(g);
	p->tile_m = g->alike ? ALIKE_ROWS : tile_side(g->m, TILE_M);
	p->tile_n = tile_side(g->n, TILE_N);
	p->tiles_n = (g->n + p->tile_n - 1) / p->tile_n;
	all->count++;
	need = scratch_of(p);
	if (need > *scratch)
		*scratch = need;
	return tiles + (g->m + p->tile_m - 1) / p->tile_m * p->tiles_n;
}

void mfk_ref_gemm(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	struct product one;
	struct products all = {&one, 0};
	size_t scratch = 0;
	int64_t tiles = push(c, &all, a, 0, &scratch);

	mfk_parallel(c, tiles, 1, scratch, multiply_part, &all);
}

/* The product of group g. */
static struct mfk_gemm group_of(const struct mfk_gemm_grouped *a, int64_t group)
{
	int64_t row = a->offsets[group], rows = a->offsets[group + 1] - row;
	struct mfk_gemm g = a->base;

	if (a->along_k) {
		g.k = mfk_scaled_round(rows);
		g.a = mfk_at(g.dtype_a, g.a, mfk_group_column(row, group));
		g.b = mfk_at(g.dtype_b, g.b, mfk_group_column(row, group));
		g.c = mfk_at(g.dtype_c, g.c, group * a->stride);
	} else if (g.trans_a) {
		g.k = rows;
		g.a = mfk_at(g.dtype_a, g.a, row * g.lda);
		g.b = mfk_at(g.dtype_b, g.b, row * g.ldb);
		g.c = mfk_at(g.dtype_c, g.c, group * a->stride);
	} else {
		g.m = rows;
		g.a = mfk_at(g.dtype_a, g.a, row * g.lda);
		g.b = mfk_at(g.dtype_b, g.b, group * a->stride);
		g.c = mfk_at(g.dtype_c, g.c, row * g.ldc);
	}
	if (g.scaling) {
		g.scale_a += group;
		g.scale_b += group;
	}
	return g;
}

/* The device's memory is the host's. */
bool mfk_ref_gemm_grouped_wants_host(struct mfk_device *d, const struct mfk_gemm_grouped *a)
{
	(void)d, (void)a;
	return false;
}

void mfk_ref_gemm_grouped(struct mfk_ctx *c, const struct mfk_gemm_grouped *a)
{
	struct products all = {mfk_sums(c, (size_t)a->groups * sizeof(struct product)), 0};
	size_t scratch = 0;
	int64_t tiles = 0;

	for (int64_t i = 0; i < a->groups && all.list; i++) {
		struct mfk_gemm g = group_of(a, i);

		tiles = push(c, &all, &g, tiles, &scratch);
	}
	mfk_parallel(c, tiles, 1, scratch, multiply_part, &all);
}
