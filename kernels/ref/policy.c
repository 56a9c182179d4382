/* Losses of policies, of rows of log-probs. */
#include <string.h>

#include "kernels/policy_row.h"
#include "kernels/ref/ref_i.h"

static void rows(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_policy *a = arg;

	(void)scratch;
	for (int64_t row = begin; row < end; row++)
		mfk_policy_row(a, row);
}

void mfk_ref_policy(struct mfk_ctx *c, const struct mfk_policy *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(64), 0, rows, a);
}

/* ---- sums of responses ---- */

/* Rows of one response that follow each other. */
struct run {
	float *sum; /* NULL: there is none */
	double delta;
	int64_t count;
};

static void end_run(struct run *r)
{
	if (r->sum) {
		r->sum[0] += (float)r->delta;
		r->sum[1] += (float)r->count;
	}
	*r = (struct run){0};
}

static void samples(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_policy *a = arg;
	struct run run = {0};

	(void)scratch;
	memset(a->sums + 2 * begin * a->limit, 0,
	       (size_t)(2 * (end - begin) * a->limit) * sizeof(float));
	for (int64_t row = begin * a->length; row < end * a->length; row++) {
		float *sum = a->mask[row] != 0 ? mfk_policy_sum(a, row) : NULL;

		if (!sum)
			continue;
		if (sum != run.sum)
			end_run(&run);
		run.sum = sum;
		run.delta += (double)a->log_prob[row] - a->old[row];
		run.count++;
	}
	end_run(&run);
}

void mfk_ref_policy_sums(struct mfk_ctx *c, const struct mfk_policy *a)
{
	mfk_parallel(c, a->rows / a->length, 1, 0, samples, a);
}
