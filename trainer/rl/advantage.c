#include "trainer/rl/advantage.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/str.h"

#define EPS_OF_MEGATRON 1e-4 /* and TRL's */
#define EPS_OF_VERL	1e-6

/* ---- sums ---- */

struct sums {
	double count, sum, squares; /* of distances to the first */
	double first;
};

static void add(struct sums *s, double x)
{
	if (s->count == 0)
		s->first = x;
	s->count++;
	s->sum += x - s->first;
	s->squares += (x - s->first) * (x - s->first);
}

static struct sums sums_of(const double *x, uint32_t n)
{
	struct sums s = {0};

	for (uint32_t i = 0; i < n; i++)
		if (!isnan(x[i]))
			add(&s, x[i]);
	return s;
}

static double mean_of(const struct sums *s)
{
	return s->first + s->sum / s->count;
}

/* lost: degrees of freedom. Of equal numbers it is 0. */
static double deviation_of(const struct sums *s, double lost)
{
	const double variance = s->squares - s->sum * s->sum / s->count;

	return s->count > lost && variance > 0 ? sqrt(variance / (s->count - lost)) : 0;
}

/* ---- groups ---- */

/* Advantages of a group in which some reward is not NaN. s: of its rewards. */
typedef void norm_function(const double *x, uint32_t n, const struct sums *s, double *a);

static void divide(const double *x, uint32_t n, const struct sums *s, double by, double *a)
{
	for (uint32_t i = 0; i < n; i++)
		a[i] = (x[i] - mean_of(s)) / by;
}

static void population(const double *x, uint32_t n, const struct sums *s, double *a)
{
	divide(x, n, s, deviation_of(s, 0) + EPS_OF_MEGATRON, a);
}

static void of_one_less(const double *x, uint32_t n, const struct sums *s, double *a)
{
	divide(x, n, s, deviation_of(s, 1) + EPS_OF_VERL, a);
	for (uint32_t i = 0; s->count == 1 && i < n; i++)
		a[i] = x[i] / (1 + EPS_OF_VERL);
}

static void none(const double *x, uint32_t n, const struct sums *s, double *a)
{
	divide(x, n, s, 1, a);
}

static void leave_one_out(const double *x, uint32_t n, const struct sums *s, double *a)
{
	(void)s;
	for (uint32_t i = 0; i < n; i++) {
		struct sums others = {0};
		double deviation;

		for (uint32_t k = 0; k < n; k++)
			if (k != i && !isnan(x[k]))
				add(&others, x[k]);
		deviation = deviation_of(&others, 1);
		a[i] = others.count == 0 ? 0 : x[i] - mean_of(&others);
		if (deviation > 0)
			a[i] /= deviation + EPS_OF_VERL;
	}
}

static void rloo(const double *x, uint32_t n, const struct sums *s, double *a)
{
	const double by = s->count > 1 ? s->count / (s->count - 1) : 0;

	for (uint32_t i = 0; i < n; i++)
		a[i] = by * (x[i] - mean_of(s));
}

static const struct norm_kind {
	const char *word;
	norm_function *of_group;
	bool of_batch; /* then all are divided by the deviation of all rewards */
} norms[] = {
	{"population", population, false}, {"std", of_one_less, false}, {"none", none, false},
	{"loo", leave_one_out, false},	   {"rloo", rloo, false},	{"batch", none, true},
};

static void divide_by_all(const double *reward, uint32_t count, double *a)
{
	const struct sums s = sums_of(reward, count);
	const double by = deviation_of(&s, 1) + EPS_OF_MEGATRON;

	for (uint32_t i = 0; i < count; i++)
		a[i] /= by;
}

int mft_rl_advantages(const char *norm, const double *reward, uint32_t prompts, uint32_t group,
		      double *ret, struct mfs_error *err)
{
	size_t k = 0;

	while (k < MFS_ARRAY_SIZE(norms) && !mfs_str_is(norm, norms[k].word))
		k++;
	if (k == MFS_ARRAY_SIZE(norms))
		return mfs_fail(err, -EINVAL, "--rl-advantage-norm: expected a kind, found %s",
				norm);
	for (uint32_t p = 0; p < prompts; p++) {
		const size_t first = (size_t)p * group;
		const struct sums s = sums_of(reward + first, group);

		if (s.count > 0)
			norms[k].of_group(reward + first, group, &s, ret + first);
	}
	if (norms[k].of_batch)
		divide_by_all(reward, prompts * group, ret);
	for (size_t i = 0; i < (size_t)prompts * group; i++)
		if (isnan(reward[i]))
			ret[i] = 0;
	return 0;
}

bool mft_rl_has_signal(const double *reward, uint32_t group)
{
	const struct sums s = sums_of(reward, group);

	for (uint32_t i = 0; i < group; i++)
		if (!isnan(reward[i]) && reward[i] != s.first)
			return true;
	return false;
}

double mft_rl_overlong_penalty(uint32_t tokens, uint32_t most, uint32_t buffer, double factor)
{
	const double beyond = (double)tokens - ((double)most - buffer);

	return buffer == 0 || beyond <= 0 ? 0 : -fmin(beyond / buffer, 1) * factor;
}

/* ---- weights of tokens ---- */

struct totals {
	double tokens, responses, prompts;
	double *of_prompt; /* [prompts]: tokens */
};

static int add_up(const struct mft_rl_weighed *of, struct totals *ret)
{
	uint32_t prompts = 0;

	for (uint32_t i = 0; i < of->count; i++)
		if (of->list[i] / of->group >= prompts)
			prompts = of->list[i] / of->group + 1;
	*ret = (struct totals){.of_prompt = calloc(prompts + 1, sizeof(*ret->of_prompt))};
	if (!ret->of_prompt)
		return -ENOMEM;
	for (uint32_t i = 0; i < of->count; i++) {
		const uint32_t tokens = of->tokens[of->list[i]];

		ret->tokens += tokens;
		ret->responses += tokens > 0;
		ret->of_prompt[of->list[i] / of->group] += tokens;
	}
	for (uint32_t p = 0; p < prompts; p++)
		ret->prompts += ret->of_prompt[p] > 0;
	return 0;
}

static double token_mean(const struct mft_rl_weighed *of, const struct totals *all, uint32_t i)
{
	(void)of;
	(void)i;
	return 1 / all->tokens;
}

static double mean_of_means(const struct mft_rl_weighed *of, const struct totals *all, uint32_t i)
{
	return 1 / (all->responses * of->tokens[i]);
}

static double mean_of_sums(const struct mft_rl_weighed *of, const struct totals *all, uint32_t i)
{
	(void)of;
	(void)i;
	return 1 / all->responses;
}

static double mean_of_norms(const struct mft_rl_weighed *of, const struct totals *all, uint32_t i)
{
	(void)i;
	return 1 / (all->responses * of->most);
}

static double prompt_mean(const struct mft_rl_weighed *of, const struct totals *all, uint32_t i)
{
	return 1 / (all->prompts * all->of_prompt[i / of->group]);
}

static const struct weight_kind {
	const char *word;
	double (*of_response)(const struct mft_rl_weighed *of, const struct totals *all,
			      uint32_t i);
} weights[] = {
	{"token-mean", token_mean},	      {"seq-mean-token-mean", mean_of_means},
	{"seq-mean-token-sum", mean_of_sums}, {"seq-mean-token-sum-norm", mean_of_norms},
	{"prompt-mean", prompt_mean},
};

int mft_rl_weigh(const char *aggregation, const struct mft_rl_weighed *of, double *ret,
		 struct mfs_error *err)
{
	struct totals all;
	size_t k = 0;

	while (k < MFS_ARRAY_SIZE(weights) && !mfs_str_is(aggregation, weights[k].word))
		k++;
	if (k == MFS_ARRAY_SIZE(weights))
		return mfs_fail(err, -EINVAL, "--rl-loss-aggregation: expected a kind, found %s",
				aggregation);
	if (add_up(of, &all))
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < of->count; i++) {
		const uint32_t response = of->list[i];

		ret[response] =
			of->tokens[response] > 0 ? weights[k].of_response(of, &all, response) : 0;
	}
	free(all.of_prompt);
	return 0;
}

/* ---- weights of responses ---- */

double mft_rl_response_weight(const float *old, const float *rollout, uint32_t count, double least,
			      double most, bool masks)
{
	double sum = 0, w;

	for (uint32_t i = 0; i < count; i++)
		sum += (double)old[i] - rollout[i];
	w = exp(sum);
	if (w >= least && w <= most)
		return w;
	return masks ? 0 : fmin(fmax(w, least), most);
}
