/* Rows of a table, looked up and, backward, added to. */
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
	return all_below(c, a->ids, a->tokens, a->vocab, "id") &&
	       (!positions || all_below(c, a->positions, a->tokens, a->positions_max, "position"));
}

static void embedding_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_embedding *a = arg;
	int64_t n = a->cols;

	for (int64_t t = begin; t < end; t++) {
		const float *w = mfk_load(a->dtype, a->wte, a->ids[t] * n, n, scratch);

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
		int64_t row = t->rows[t->order[i]];

		mfk_to_f32(a->grad, mfk_at(a->grad, t->grad, row * n), n, sum);
		for (; i < a->tokens && t->rows[t->order[i]] == row; i++)
			add(sum, sum, mfk_load(a->dtype, a->dy, t->order[i] * n, n, buf), n);
		mfk_from_f32(a->grad, sum, n, mfk_at(a->grad, t->grad, row * n));
	}
}

static void table_backward(struct mfk_ctx *c, const struct mfk_embedding *a, const int32_t *order,
			   const int32_t *rows, void *grad)
{
	struct table t = {a, order, rows, grad};

	mfk_parallel(c, a->tokens, mfk_row_grain(a->cols), 2 * (size_t)a->cols, backward_part, &t);
}

void mfk_ref_embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	if (!valid(c, a, a->dwpe != NULL))
		return;
	table_backward(c, a, a->order, a->ids, a->dwte);
	if (a->dwpe)
		table_backward(c, a, a->position_order, a->positions, a->dwpe);
}
