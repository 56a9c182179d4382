/* One element at a time: sums, multiples, casts, constants. */
#include "kernels/ref/ref_i.h"

struct elements {
	enum mfk_dtype type, from_type;
	void *y;
	const void *a, *b;
	float value;
};

MFK_SIMD static void add(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

MFK_SIMD static void multiply(float *y, const float *x, float by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * by;
}

static void add_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct elements *e = arg;
	int64_t n = end - begin;
	const float *a = mfk_load(e->type, e->a, begin, n, scratch);
	const float *b = mfk_load(e->type, e->b, begin, n, scratch + MFK_GRAIN);
	float *y = mfk_begin(e->type, e->y, begin, scratch);

	add(y, a, b, n);
	mfk_end(e->type, e->y, begin, n, y);
}

static void scale_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct elements *e = arg;
	int64_t n = end - begin;
	const float *x = mfk_load(e->type, e->y, begin, n, scratch);
	float *y = mfk_begin(e->type, e->y, begin, scratch);

	multiply(y, x, e->value, n);
	mfk_end(e->type, e->y, begin, n, y);
}

static void cast_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct elements *e = arg;
	int64_t n = end - begin;
	const float *x = mfk_load(e->from_type, e->a, begin, n, scratch);

	mfk_from_f32(e->type, x, n, mfk_at(e->type, e->y, begin));
}

static void fill_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct elements *e = arg;
	int64_t n = end - begin;
	float *y = mfk_begin(e->type, e->y, begin, scratch);

	for (int64_t i = 0; i < n; i++)
		y[i] = e->value;
	mfk_end(e->type, e->y, begin, n, y);
}

void mfk_ref_add(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		 int64_t count)
{
	struct elements e = {.type = dtype, .y = y, .a = a, .b = b};

	mfk_parallel(c, count, MFK_GRAIN, 2 * MFK_GRAIN, add_part, &e);
}

void mfk_ref_scale(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count)
{
	struct elements e = {.type = dtype, .y = x, .value = by};

	mfk_parallel(c, count, MFK_GRAIN, MFK_GRAIN, scale_part, &e);
}

void mfk_ref_cast(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		  const void *from, int64_t count)
{
	struct elements e = {.type = to_type, .from_type = from_type, .y = to, .a = from};

	mfk_parallel(c, count, MFK_GRAIN, MFK_GRAIN, cast_part, &e);
}

void mfk_ref_fill(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value)
{
	struct elements e = {.type = dtype, .y = x, .value = value};

	mfk_parallel(c, count, MFK_GRAIN, MFK_GRAIN, fill_part, &e);
}
