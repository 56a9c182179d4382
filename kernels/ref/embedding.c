/* Rows of a table, looked up and, backward, added to. */
#include <string.h>

#include "kernels/ref/ref_i.h"

MFK_SIMD static void add(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

static bool all_below(struct mfk_ctx *c, const int32_t *ids, int64_t count, int64_t end,
		      const char *what)
{
	for (int64_t i = 0; i < count; i++) {
		if (ids[i] >= 0 && ids[i] < end)
			continue;
		mfk_fail(c, "embedding: %s %d of token %lld is outside of [0, %lld)", what, ids[i],
			 (long long)i, (long long)end);
		return false;
	}
	return true;
}

static bool valid(struct mfk_ctx *c, const struct mfk_embedding *a, bool positions)
{
	return all_below(c, a->ids, a->tokens, a->all ? a->all : a->vocab, "id") &&
	       (!positions || all_below(c, a->positions, a->tokens, a->positions_max, "position"));
}

/* The token's row of wte; NULL: it has none here. */
static const float *word(const struct mfk_embedding *a, int64_t t, float *scratch)
{
	const int64_t row = a->ids[t] - a->first;

	return row >= 0 && row < a->vocab
		       ? mfk_load(a->dtype, a->wte, row * a->cols, a->cols, scratch)
		       : NULL;
}

static void embedding_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_embedding *a = arg;
	int64_t n = a->cols;

	for (int64_t t = begin; t < end; t++) {
		const float *w = word(a, t, scratch);

		if (!w)
			w = memset(scratch, 0, (size_t)n * sizeof(*scratch));

		if (a->wpe) {
			float *y = mfk_begin(a->dtype, a->y, t * n, scratch);

			add(y, w, mfk_load(a->dtype, a->wpe, a->positions[t] * n, n, scratch + n),
			    n);
			mfk_end(a->dtype, a->y, t * n, n, y);
		} else {
			mfk_from_f32(a->dtype, w, n, mfk_at(a->dtype, a->y, t * n));
		}
	}
}

void mfk_ref_embedding(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	if (valid(c, a, a->wpe != NULL))
		mfk_parallel(c, a->tokens, mfk_row_grain(a->cols), 2 * (size_t)a->cols,
			     embedding_part, a);
}

/* ---- backward ---- */

struct table {
	const struct mfk_embedding *a;
	const int32_t *order, *rows; /* of tokens */
	int64_t first, count;	     /* rows that are here */
	void *grad;
};

/* The rows that begin in [begin, end) of the order, each to its end. */
static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct table *t = arg;
	const struct mfk_embedding *a = t->a;
	int64_t n = a->cols, i = begin;
	float *sum = scratch, *buf = scratch + n;

	while (i < end && i && t->rows[t->order[i]] == t->rows[t->order[i - 1]])
		i++;
	while (i < end) {
		const int64_t row = t->rows[t->order[i]], at = row - t->first;

		if (at < 0 || at >= t->count) {
			i++;
			continue;
		}
		mfk_to_f32(a->grad, mfk_at(a->grad, t->grad, at * n), n, sum);
		for (; i < a->tokens && t->rows[t->order[i]] == row; i++)
			add(sum, sum, mfk_load(a->dtype, a->dy, t->order[i] * n, n, buf), n);
		mfk_from_f32(a->grad, sum, n, mfk_at(a->grad, t->grad, at * n));
	}
}

static void table_backward(struct mfk_ctx *c, const struct table *t)
{
	mfk_parallel(c, t->a->tokens, mfk_row_grain(t->a->cols), 2 * (size_t)t->a->cols,
		     backward_part, t);
}

void mfk_ref_embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	if (!valid(c, a, a->dwpe != NULL))
		return;
	table_backward(c, &(struct table){a, a->order, a->ids, a->first, a->vocab, a->dwte});
	if (a->dwpe)
		table_backward(c, &(struct table){a, a->position_order, a->positions, 0,
						  a->positions_max, a->dwpe});
}
