/* Products of matrices, and the gradients of biases. */
#include <string.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

struct shape {
	int64_t m, n, k;
};

static double element(const struct tensor *t, bool trans, int64_t ld, int64_t row, int64_t col)
{
	return t->x[trans ? col * ld + row : row * ld + col];
}

/* Inputs are of unit size: the sum of k products is about sqrt(k). A tensor core adds up fp32. */
static double tolerance(int64_t k)
{
	return 2e-6 * (1 + (double)k / 500);
}

static int64_t row_of(int64_t size, int64_t pad, int64_t to)
{
	return (size + to - 1) / to * to + pad;
}

static void product(struct check *c, struct shape s, enum mfk_dtype ab, enum mfk_dtype out,
		    bool trans_a, bool trans_b, float alpha, float beta, bool biased)
{
	/* Leading dimensions are wider than the matrix, and multiples of 8 or not. */
	const int64_t pad = 8 * check_below(c, 3), to = check_below(c, 2) ? 8 : 1;
	struct mfk_gemm g = {.m = s.m,
			     .n = s.n,
			     .k = s.k,
			     .trans_a = trans_a,
			     .trans_b = trans_b,
			     .dtype_a = ab,
			     .dtype_b = ab,
			     .dtype_c = out,
			     .dtype_bias = ab,
			     .alpha = alpha,
			     .beta = beta,
			     .alike = !trans_a && check_below(c, 2)};
	struct tensor *a, *b, *bias, *y;
	double *want;

	check_shape(c, "%lld x %lld x %lld, %s to %s%s%s, alpha %g, beta %g%s, pad %lld to %lld",
		    (long long)s.m, (long long)s.n, (long long)s.k, check_type_name(ab),
		    check_type_name(out), trans_a ? ", a^T" : "", trans_b ? ", b^T" : "", alpha,
		    beta, biased ? ", bias" : "", (long long)pad, (long long)to);
	g.lda = row_of(trans_a ? s.m : s.k, pad, to);
	g.ldb = row_of(trans_b ? s.k : s.n, pad, to);
	g.ldc = row_of(s.n, pad, to);
	a = check_input(c, ab, (trans_a ? s.k : s.m) * g.lda, 0, 1);
	b = check_input(c, ab, (trans_b ? s.n : s.k) * g.ldb, 0, 1);
	bias = check_input(c, ab, s.n, 0, 1);
	y = beta != 0 ? check_input(c, out, s.m * g.ldc, 0, 1) : check_output(c, out, s.m * g.ldc);
	want = check_doubles(c, s.m * g.ldc);
	for (int64_t i = 0; i < s.m * g.ldc; i++)
		want[i] = y->x[i]; /* what is between the rows stays */
	for (int64_t i = 0; i < s.m; i++)
		for (int64_t j = 0; j < s.n; j++) {
			double sum = 0;

			for (int64_t k = 0; k < s.k; k++)
				sum += element(a, trans_a, g.lda, i, k) *
				       element(b, trans_b, g.ldb, k, j);
			want[i * g.ldc + j] = alpha * sum + (biased ? bias->x[j] : 0) +
					      (beta != 0 ? beta * y->x[i * g.ldc + j] : 0);
		}
	g.a = a->p;
	g.b = b->p;
	g.c = y->p;
	g.bias = biased ? bias->p : NULL;
	c->ops->gemm(c->ctx, &g);
	check_near(c, "c", y, want, tolerance(s.k), 1);
}

/* Rows that are alike have the same bits, each alone and wherever it is among others. */
static void alike(struct check *c, struct shape s, enum mfk_dtype type)
{
	const int64_t most = 29;
	struct tensor *a = check_input(c, type, most * s.k, 0, 1);
	struct tensor *b = check_input(c, type, s.n * s.k, 0, 1);
	struct tensor *all = check_output(c, type, most * s.n);
	struct mfk_gemm g = {.m = most,
			     .n = s.n,
			     .k = s.k,
			     .trans_b = true,
			     .dtype_a = type,
			     .dtype_b = type,
			     .dtype_c = type,
			     .a = a->p,
			     .b = b->p,
			     .c = all->p,
			     .lda = s.k,
			     .ldb = s.k,
			     .ldc = s.n,
			     .alpha = 1,
			     .alike = true};

	check_shape(c, "rows alike, %lld x %lld, %s", (long long)s.n, (long long)s.k,
		    check_type_name(type));
	c->ops->gemm(c->ctx, &g);
	check_fetch(c, all);
	for (g.m = 1; g.m < most; g.m += 9) {
		const int64_t first = most - g.m;
		struct tensor *some = check_output(c, type, g.m * s.n);

		g.a = (char *)a->p + (size_t)(first * s.k) * mfk_dtype_size(type);
		g.c = some->p;
		c->ops->gemm(c->ctx, &g);
		check_equal(c, "c", some, all->x + first * s.n);
	}
}

void check_gemm(struct check *c)
{
	static const struct shape of_alike[] = {{0, 64, 64}, {0, 130, 33}, {0, 520, 1100}};
	static const struct shape shapes[] = {{1, 1, 1},     {3, 17, 5},   {17, 129, 33},
					      {129, 64, 65}, {64, 64, 64}, {5, 8, 0}};

	if (!c->ops->gemm)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++)
			for (int trans = 0; trans < 4; trans++) {
				enum mfk_dtype type = check_types[t];

				product(c, shapes[i], type, type, trans & 1, trans & 2, 1, 0,
					trans == 2);
				product(c, shapes[i], type, MFK_F32, trans & 1, trans & 2, 1, 1,
					false);
				product(c, shapes[i], type, type, trans & 1, trans & 2, -0.5, 0.25,
					false);
			}
	/* More than one tile and one block of k. */
	for (size_t i = 0; i < MFS_ARRAY_SIZE(of_alike) && !strcmp(c->backend->name, "cpu"); i++)
		alike(c, of_alike[i], i % 2 ? MFK_BF16 : MFK_F32);
	product(c, (struct shape){300, 530, 70}, MFK_F32, MFK_F32, false, true, 1, 0, true);
	product(c, (struct shape){260, 33, 1100}, MFK_BF16, MFK_BF16, false, true, 1, 0, true);
	product(c, (struct shape){33, 520, 2100}, MFK_BF16, MFK_F32, true, false, 1, 1, false);
}

/* ---- groups ---- */

#define GROUPS_MOST 250

struct groups {
	int64_t groups, n, k;
	int64_t offsets[GROUPS_MOST + 1];
	int64_t gap; /* elements between the weights of two groups */
};

/* Rows of a group that end within a tile, none at all, and of more than one tile. */
static const struct groups few = {5, 24, 40, {0, 5, 5, 38, 39, 168}, 0};
static const struct groups more = {5, 136, 72, {0, 0, 129, 385, 386, 700}, 0};

/* More tiles than a GPU has multiprocessors, and more blocks of k than it has room for. */
static struct groups many_groups(void)
{
	struct groups s = {.groups = GROUPS_MOST, .n = 8, .k = 400};

	for (int64_t i = 0; i < s.groups; i++)
		s.offsets[i + 1] = s.offsets[i] + (i % 7 == 3 ? 0 : 1 + i % 3);
	return s;
}

static const int64_t *offsets_of(struct check *c, const struct groups *s)
{
	int32_t words[2 * (GROUPS_MOST + 1)];

	memcpy(words, s->offsets, sizeof(s->offsets));
	return (const int64_t *)check_ints(c, words, 2 * (GROUPS_MOST + 1));
}

static void want_groups(const struct groups *s, bool weights, bool trans_b, const double *a,
			const double *b, double *want)
{
	for (int64_t group = 0; group < s->groups; group++)
		for (int64_t t = s->offsets[group]; t < s->offsets[group + 1]; t++)
			for (int64_t i = 0; i < s->k; i++)
				for (int64_t j = 0; j < s->n; j++) {
					const int64_t part = group * (s->n * s->k + s->gap);

					if (weights)
						want[part + i * s->n + j] +=
							a[t * s->k + i] * b[t * s->n + j];
					else
						want[t * s->n + j] +=
							a[t * s->k + i] *
							b[part +
							  (trans_b ? j * s->k + i : i * s->n + j)];
				}
}

static void grouped(struct check *c, const struct groups *s, enum mfk_dtype type,
		    enum mfk_dtype out, bool weights, bool trans_b, float beta)
{
	const int64_t tokens = s->offsets[s->groups], stride = s->n * s->k + s->gap;
	const int64_t all = s->groups * stride;
	struct mfk_gemm_grouped g = {.groups = s->groups, .stride = stride};
	struct tensor *a, *b, *y;
	double *want;

	check_shape(c, "%s to %s, %lld x %lld, %s, beta %g", check_type_name(type),
		    check_type_name(out), (long long)s->n, (long long)s->k,
		    weights   ? "weight gradients"
		    : trans_b ? "forward"
			      : "backward",
		    beta);
	g.base = (struct mfk_gemm){.m = weights ? s->k : tokens,
				   .n = s->n,
				   .k = weights ? tokens : s->k,
				   .trans_a = weights,
				   .trans_b = trans_b,
				   .dtype_a = type,
				   .dtype_b = type,
				   .dtype_c = out,
				   .alpha = 1,
				   .beta = beta,
				   .lda = s->k,
				   .ldb = trans_b ? s->k : s->n,
				   .ldc = s->n};
	a = check_input(c, type, tokens * s->k, 0, 1);
	b = check_input(c, type, weights ? tokens * s->n : all, 0, 1);
	y = beta != 0 ? check_input(c, out, weights ? all : tokens * s->n, 0, 1)
		      : check_output(c, out, weights ? all : tokens * s->n);
	want = check_doubles(c, y->count);
	for (int64_t i = 0; i < y->count; i++)
		want[i] = beta != 0 ? beta * y->x[i] : 0;
	want_groups(s, weights, trans_b, a->x, b->x, want);
	g.base.a = a->p;
	g.base.b = b->p;
	g.base.c = y->p;
	g.offsets = offsets_of(c, s);
	if (c->ops->gemm_grouped_wants_host(c->device, &g))
		g.host_offsets = s->offsets;
	c->ops->gemm_grouped(c->ctx, &g);
	check_near(c, "c", y, want, tolerance(s->k), 1);
}

static void grouped_type(struct check *c, const struct groups *s, enum mfk_dtype type)
{
	grouped(c, s, type, type, false, true, 0);
	grouped(c, s, type, type, false, false, 0);
	grouped(c, s, type, MFK_F32, true, false, 1);
	if (!s->gap) /* what is between is not written */
		grouped(c, s, type, MFK_F32, true, false, 0);
}

/* As parameters lie: the next one begins at a multiple of 128 elements. */
static struct groups apart(const struct groups *s)
{
	struct groups a = *s;

	a.gap = (128 - s->n * s->k % 128) % 128 + 128;
	return a;
}

/* An expert that is alone. */
static const struct groups single = {.n = 24, .k = 40, .groups = 1, .offsets = {0, 70}};

void check_gemm_grouped(struct check *c)
{
	const struct groups many = many_groups(), gaps = apart(&more);

	if (!c->ops->gemm_grouped)
		return;
	for (int t = 0; t < 3; t++) {
		grouped_type(c, &few, check_types[t]);
		grouped_type(c, &more, check_types[t]);
		grouped_type(c, &gaps, check_types[t]);
		grouped_type(c, &single, check_types[t]);
	}
	grouped_type(c, &many, MFK_BF16);
}

/* More rows and columns than a band of tiles has (kernels/cuda/gemm/bands.h): of tokens, and of
 * weights. */
static const struct groups tall = {.n = 2184, .k = 40, .groups = 2, .offsets = {0, 2150, 2300}};
static const struct groups tall_weights = {
	.n = 2184, .k = 2152, .groups = 2, .offsets = {0, 25, 40}};

void check_gemm_tall(struct check *c)
{
	if (!c->ops->gemm_grouped)
		return;
	grouped(c, &tall, MFK_BF16, MFK_BF16, false, true, 0);
	grouped(c, &tall, MFK_BF16, MFK_BF16, false, false, 0);
	grouped(c, &tall_weights, MFK_BF16, MFK_F32, true, false, 1);
	grouped(c, &tall_weights, MFK_BF16, MFK_F32, true, false, 0);
}

/* ---- biases ---- */

static void bias(struct check *c, enum mfk_dtype type, enum mfk_dtype grad, int64_t rows,
		 int64_t cols)
{
	struct tensor *dy = check_input(c, type, rows * cols, 0, 1);
	struct tensor *db = check_input(c, grad, cols, 0, 1);
	double *want = check_doubles(c, cols);

	check_shape(c, "%lld x %lld, %s to %s", (long long)rows, (long long)cols,
		    check_type_name(type), check_type_name(grad));
	for (int64_t j = 0; j < cols; j++) {
		want[j] = db->x[j];
		for (int64_t i = 0; i < rows; i++)
			want[j] += dy->x[i * cols + j];
	}
	c->ops->bias_backward(c->ctx, type, grad, db->p, dy->p, rows, cols);
	check_near(c, "db", db, want, 5e-6, 1);
}

void check_bias_backward(struct check *c)
{
	if (!c->ops->bias_backward)
		return;
	for (int t = 0; t < 3; t++) {
		bias(c, check_types[t], MFK_F32, 1, 1);
		bias(c, check_types[t], check_types[t], 17, 129);
		bias(c, check_types[t], MFK_F32, 1003, 65);
		bias(c, check_types[t], MFK_F32, 130, 1030);
	}
}

/* ---- biases of experts ---- */

/* What is expected of rows, of scales' gradients and of biases' gradients. */
static void want_group_bias(const struct groups *s, struct tensor *const in[3], bool scaled,
			    double *y, double *dscale, double *dbias)
{
	const int64_t stride = s->n + s->gap;

	for (int64_t group = 0; group < s->groups; group++)
		for (int64_t row = s->offsets[group]; row < s->offsets[group + 1]; row++)
			for (int64_t j = 0; j < s->n; j++) {
				const int64_t at = row * s->n + j, of = group * stride + j;
				const double scale = scaled ? in[2]->x[row] : 1;

				y[at] += scale * in[0]->x[of];
				dbias[of] += scale * in[1]->x[at];
				dscale[row] += in[0]->x[of] * in[1]->x[at];
			}
}

/* Rows after the last group's, and what lies between biases, stay as they are. */
static void group_bias(struct check *c, const struct groups *s, enum mfk_dtype type,
		       enum mfk_dtype grad, bool scaled)
{
	const int64_t rows = s->offsets[s->groups] + 3, biases = s->groups * (s->n + s->gap);
	struct tensor *bias = check_input(c, type, biases, 0, 1);
	struct tensor *dy = check_input(c, type, rows * s->n, 0, 1);
	struct tensor *scale = check_input(c, MFK_F32, rows, 0.5, 0.2);
	struct tensor *out[] = {check_input(c, type, rows * s->n, 0, 1),
				check_input(c, MFK_F32, rows, 0, 1),
				check_input(c, grad, biases, 0, 1)};
	const struct mfk_group_bias a = {.dtype = type,
					 .grad = grad,
					 .rows = rows,
					 .cols = s->n,
					 .groups = s->groups,
					 .offsets = offsets_of(c, s),
					 .stride = s->n + s->gap,
					 .scale = scaled ? scale->p : NULL,
					 .bias = bias->p,
					 .y = out[0]->p,
					 .dy = dy->p,
					 .dscale = scaled ? out[1]->p : NULL,
					 .dbias = out[2]->p};
	double *want[3];

	check_shape(c, "%lld groups of %lld rows x %lld, %lld apart, %s to %s%s",
		    (long long)s->groups, (long long)rows, (long long)s->n, (long long)a.stride,
		    check_type_name(type), check_type_name(grad), scaled ? ", scaled" : "");
	for (int i = 0; i < 3; i++) {
		want[i] = check_doubles(c, out[i]->count);
		memcpy(want[i], out[i]->x, (size_t)out[i]->count * sizeof(double));
	}
	want_group_bias(s, (struct tensor *[]){bias, dy, scale}, scaled, want[0], want[1], want[2]);
	if (!scaled)
		memcpy(want[1], out[1]->x, (size_t)rows * sizeof(double));
	c->ops->group_bias(c->ctx, &a);
	check_near(c, "y", out[0], want[0], 1e-6, 1);
	c->ops->group_bias_backward(c->ctx, &a);
	check_near(c, "dscale", out[1], want[1], tolerance(s->n), 1);
	check_near(c, "dbias", out[2], want[2], 5e-6, 1);
}

void check_group_bias(struct check *c)
{
	const struct groups many = many_groups(), gaps = apart(&more);
	const struct groups odd = {3, 33, 1, {0, 1, 70, 70}, 2}, wide = {2, 2056, 1, {0, 9, 80}, 8};

	if (!c->ops->group_bias)
		return;
	for (int t = 0; t < 3; t++)
		for (int scaled = 0; scaled < 2; scaled++) {
			group_bias(c, &single, check_types[t], MFK_F32, scaled);
			group_bias(c, &more, check_types[t], check_types[t], scaled);
			group_bias(c, &gaps, check_types[t], MFK_F32, scaled);
			group_bias(c, &odd, check_types[t], MFK_F32, scaled);
			group_bias(c, &wide, check_types[t], MFK_F32, scaled);
		}
	group_bias(c, &many, MFK_BF16, MFK_F32, true);
}
