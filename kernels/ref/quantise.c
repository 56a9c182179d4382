/* Numbers become elements of 8 bits: the greatest of them, scales, and the matrix and its
 * transposed one. */
#include <math.h>
#include <string.h>

#include "kernels/eight_bits.h"
#include "kernels/ref/ref_i.h"

#define PART (4 * MFK_SCALED_STEP) /* rows that a thread takes */

/* A group's rows. */
struct group {
	const struct mfk_quantise *a;
	int64_t first, rows; /* of x and of q */
	int64_t column;	     /* the first one in qt */
	float scale;
	float *greatest; /* of each part */
};

static struct group group_of(const struct mfk_quantise *a, int64_t group)
{
	if (!a->groups)
		return (struct group){.a = a, .rows = a->rows};
	return (struct group){
		.a = a,
		.first = a->offsets[group],
		.rows = a->offsets[group + 1] - a->offsets[group],
		.column = mfk_group_column(a->offsets[group], group),
	};
}

static int64_t group_count(const struct mfk_quantise *a)
{
	return a->groups ? a->groups : 1;
}

/* ---- the greatest ---- */

/* A comparison with a NaN is false. */
static float greatest_of(const float *x, int64_t count, float most)
{
	for (int64_t i = 0; i < count; i++) {
		const float v = fabsf(x[i]);

		most = v > most ? v : most;
	}
	return most;
}

static void greatest_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct group *g = arg;
	const struct mfk_quantise *a = g->a;
	float most = 0;

	for (int64_t i = begin; i < end; i++)
		most = greatest_of(
			mfk_load(a->from, a->x, (g->first + i) * a->ld, a->cols, scratch), a->cols,
			most);
	g->greatest[begin / PART] = most;
}

/* In any order: the greatest is the same. */
static void raise_amax(struct mfk_ctx *c, struct group *g, struct mfk_scale *s)
{
	const int64_t parts = (g->rows + PART - 1) / PART;

	g->greatest = mfk_sums(c, (size_t)(parts + 1) * sizeof(float));
	if (!g->greatest)
		return;
	mfk_parallel(c, g->rows, PART, (size_t)g->a->cols, greatest_part, g);
	s->amax = greatest_of(g->greatest, parts, s->amax);
}

void mfk_ref_amax(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	for (int64_t i = 0; i < group_count(a); i++) {
		struct group g = group_of(a, i);

		a->scales[i].amax = 0;
		raise_amax(c, &g, &a->scales[i]);
	}
}

/* ---- elements ---- */

MFK_SIMD static void multiply(const float *x, float by, int64_t count, float *y)
{
#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		y[i] = x[i] * by;
}

/* Rows of codes, a step of them, become columns. Those that are not there are 0. */
static void transpose(const struct group *g, int64_t row, const uint8_t *codes)
{
	const struct mfk_quantise *a = g->a;
	uint8_t *to = (uint8_t *)a->qt + g->column + row;

	for (int64_t i = 0; i < a->cols; i++)
		for (int64_t k = 0; k < MFK_SCALED_STEP; k++)
			to[i * a->ld_qt + k] = codes[k * a->cols + i];
}

static void quantise_row(const struct group *g, int64_t row, float *buf, uint8_t *codes)
{
	const struct mfk_quantise *a = g->a;
	const int64_t at = g->first + row;

	multiply(mfk_load(a->from, a->x, at * a->ld, a->cols, buf), g->scale, a->cols, buf);
	mfk_from_f32(a->to, buf, a->cols, codes);
	if (a->q)
		memcpy((uint8_t *)a->q + at * a->cols, codes, (size_t)a->cols);
}

/* scratch: a row, and a step of rows of codes. */
static void quantise_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct group *g = arg;
	const int64_t cols = g->a->cols;
	uint8_t *codes = (uint8_t *)(scratch + cols);

	for (int64_t row = begin; row < end; row += MFK_SCALED_STEP) {
		memset(codes, 0, (size_t)(MFK_SCALED_STEP * cols));
		for (int64_t k = 0; k < MFK_SCALED_STEP && row + k < end; k++)
			quantise_row(g, row + k, scratch, codes + k * cols);
		if (g->a->qt)
			transpose(g, row, codes);
	}
}

static void make_scale(const struct mfk_quantise *a, struct mfk_scale *s)
{
	const struct mfk_scale made = mfk_scale_of(a->to, s->amax);

	s->scale = made.scale;
	s->inverse = made.inverse;
}

void mfk_ref_quantise(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	const size_t scratch = (size_t)a->cols * (1 + MFK_SCALED_STEP / sizeof(float));

	for (int64_t i = 0; i < group_count(a); i++) {
		struct group g = group_of(a, i);

		if (a->given)
			raise_amax(c, &g, &a->scales[i]);
		else
			make_scale(a, &a->scales[i]);
		g.scale = a->scales[i].scale;
		mfk_parallel(c, g.rows, PART, scratch, quantise_part, &g);
	}
}

/* ---- delayed scaling ---- */

static void update_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	(void)scratch;
	for (int64_t i = begin; i < end; i++)
		mfk_scale_update(arg, i);
}

void mfk_ref_update_scales(struct mfk_ctx *c, const struct mfk_update_scales *a)
{
	mfk_parallel(c, a->count, 256, 0, update_part, a);
}
