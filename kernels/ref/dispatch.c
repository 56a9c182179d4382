/* Rows of tokens to experts and back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref_i.h"

/* ---- what experts have room for ---- */

/* The choice of an expert that token j of a group has made; -1: it has not. */
static int64_t choice_of(const struct mfk_drop *a, int64_t group, int64_t j, int32_t expert)
{
	const int64_t position = group * (a->length / a->groups) + j / a->sequences;
	const int64_t first = (j % a->sequences * a->length + position) * a->top_k;

	for (int64_t k = 0; k < a->top_k; k++)
		if (a->expert[first + k] == expert)
			return first + k;
	return -1;
}

static int descending(const void *x, const void *y)
{
	const float a = *(const float *)x, b = *(const float *)y;

	return (a < b) - (a > b);
}

/* What is compared: all are equal where the first ones are taken. */
static float key_of(const struct mfk_drop *a, int64_t choice)
{
	return a->by_prob ? a->prob[choice] : 0;
}

/* Those with a greater key than *least are taken, and so many that have it, which is returned.
 * keys: room for all tokens of a group. */
static int64_t find_least(const struct mfk_drop *a, int64_t group, int32_t expert, float *keys,
			  float *least)
{
	const int64_t tokens = a->sequences * a->length / a->groups;
	int64_t count = 0, left;

	for (int64_t j = 0; j < tokens; j++) {
		const int64_t choice = choice_of(a, group, j, expert);

		if (choice >= 0)
			keys[count++] = key_of(a, choice);
	}
	*least = -INFINITY;
	if (count <= a->capacity)
		return 0;
	*least = INFINITY;
	if (!a->capacity)
		return 0;
	qsort(keys, (size_t)count, sizeof(*keys), descending);
	*least = keys[a->capacity - 1];
	for (left = a->capacity; left && keys[a->capacity - left] > *least; left--)
		;
	return left;
}

static void drop_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_drop *a = arg;
	const int64_t tokens = a->sequences * a->length / a->groups;

	for (int64_t i = begin; i < end; i++) {
		const int64_t group = i / a->experts;
		const int32_t expert = (int32_t)(i % a->experts);
		float least;
		int64_t left = find_least(a, group, expert, scratch, &least);

		for (int64_t j = 0; j < tokens; j++) {
			const int64_t choice = choice_of(a, group, j, expert);
			bool takes;

			if (choice < 0)
				continue;
			takes = key_of(a, choice) > least ||
				(key_of(a, choice) == least && left-- > 0);
			a->taken[choice] = takes ? expert : -1;
		}
	}
}

void mfk_ref_drop(struct mfk_ctx *c, const struct mfk_drop *a)
{
	const int64_t tokens = a->sequences * a->length / a->groups;

	mfk_parallel(c, a->groups * a->experts, mfk_row_grain(tokens * a->top_k), (size_t)tokens,
		     drop_part, a);
}

/* ---- order ---- */

/* A counting sort, of a few numbers for each token: one thread's work. */
void mfk_ref_dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a)
{
	const int64_t choices = a->tokens * a->top_k;
	int64_t *offsets = a->offsets, first = 0;

	(void)c;
	memset(offsets, 0, (size_t)(a->experts + 1) * sizeof(*offsets));
	for (int64_t i = 0; i < choices; i++)
		if (a->expert[i] >= 0)
			offsets[a->expert[i]]++;
	for (int64_t e = 0; e < a->experts; e++) {
		const int64_t count = offsets[e];

		if (a->totals)
			a->totals[e] += (int32_t)count;
		offsets[e] = first;
		first += count;
	}
	for (int64_t i = 0; i < choices; i++) {
		int64_t r;

		a->row[i] = -1;
		if (a->expert[i] < 0)
			continue;
		r = offsets[a->expert[i]]++;
		a->row[i] = (int32_t)r;
		a->from[r] = (int32_t)i;
		a->row_prob[r] = a->prob[i];
	}
	for (int64_t r = first; r < choices; r++) {
		a->from[r] = -1;
		a->row_prob[r] = 0;
	}
	/* Each is now where the next one begins. */
	memmove(offsets + 1, offsets, (size_t)a->experts * sizeof(*offsets));
	offsets[0] = 0;
}

/* ---- rows ---- */

static void gather_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_rows *a = arg;
	const size_t bytes = (size_t)a->cols * mfk_dtype_size(a->dtype);

	(void)scratch;
	for (int64_t r = begin; r < end; r++)
		if (a->map[r] >= 0)
			memcpy(mfk_at(a->dtype, a->y, r * a->cols),
			       mfk_at(a->dtype, a->x, a->map[r] / a->each * a->cols), bytes);
}

void mfk_ref_gather(struct mfk_ctx *c, const struct mfk_rows *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 0, gather_part, a);
}

MFK_SIMD static void add(float *sum, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		sum[i] += x[i];
}

static void combine_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_rows *a = arg;
	const int64_t n = a->cols;
	float *sum = scratch, *buf = scratch + n;

	for (int64_t r = begin; r < end; r++) {
		memset(sum, 0, (size_t)n * sizeof(float));
		if (a->residual)
			mfk_to_f32(a->dtype, mfk_at(a->dtype, a->residual, r * n), n, sum);
		for (int64_t k = 0; k < a->each; k++) {
			const int64_t from = a->map[r * a->each + k];

			if (from >= 0)
				add(sum, mfk_load(a->dtype, a->x, from * n, n, buf), n);
		}
		mfk_from_f32(a->dtype, sum, n, mfk_at(a->dtype, a->y, r * n));
	}
}

void mfk_ref_combine(struct mfk_ctx *c, const struct mfk_rows *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols * (a->each + 1)), 2 * (size_t)a->cols,
		     combine_part, a);
}
