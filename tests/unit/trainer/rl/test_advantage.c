/* Advantages and weights, against numbers that other programs computed with their own code. */
#include "trainer/rl/advantage.h"

#include <errno.h>
#include <math.h>

#include "formats/base/array.h"
#include "tests/unit/unit.h"

#define VECTOR_MOST 2e-7 /* they have seven digits */

static struct mfs_error err;

static const double rewards[] = {1, 0, 0, 1, 0, 0, 0, 1};

static const struct norm_case {
	const char *norm;
	double want[8];
} norm_cases[] = {
	{"population",
	 {0.9998, -0.9998, -0.9998, 0.9998, -0.577217, -0.577217, -0.577217, 1.7316509}},
	{"std",
	 {0.8660239, -0.8660239, -0.8660239, 0.8660239, -0.499999, -0.499999, -0.499999, 1.499997}},
	{"none", {0.5, -0.5, -0.5, 0.5, -0.25, -0.25, -0.25, 0.75}},
	{"loo",
	 {1.1546985, -1.1546986, -1.1546986, 1.1546985, -0.5773493, -0.5773493, -0.5773493, 1}},
	{"rloo",
	 {0.6666667, -0.6666667, -0.6666667, 0.6666667, -0.3333333, -0.3333333, -0.3333333, 1}},
	/* 0.5175492: numpy.std(rewards, ddof=1) */
	{"batch",
	 {0.9659052, -0.9659052, -0.9659052, 0.9659052, -0.4829526, -0.4829526, -0.4829526,
	  1.4488577}},
};

static void check_advantages(const char *norm, const double *reward, uint32_t prompts,
			     uint32_t group, const double *want, double most)
{
	double found[8];

	unit_ok(mft_rl_advantages(norm, reward, prompts, group, found, &err), &err);
	for (uint32_t i = 0; i < prompts * group; i++)
		ck_assert_msg(fabs(found[i] - want[i]) <= most, "%s, response %u: %.9g", norm, i,
			      found[i]);
}

START_TEST(advantages_are_the_peers)
{
	check_advantages(norm_cases[_i].norm, rewards, 2, 4, norm_cases[_i].want, VECTOR_MOST);
}
END_TEST

START_TEST(equal_rewards_have_no_advantage)
{
	static const double equal[] = {0.1, 0.1, 0.1, 0.1}, zero[4];

	check_advantages(norm_cases[_i].norm, equal, 1, 4, zero, 0);
	ck_assert(!mft_rl_has_signal(equal, 4));
	ck_assert(mft_rl_has_signal(rewards, 4));
}
END_TEST

START_TEST(a_response_that_has_failed_counts_nowhere)
{
	const double with[] = {1, NAN, 0, 0, 1, NAN}, none[] = {NAN, NAN};
	const double without[] = {1, 0, 0, 1};
	double found[6], want[4];

	unit_ok(mft_rl_advantages(norm_cases[_i].norm, with, 1, 6, found, &err), &err);
	unit_ok(mft_rl_advantages(norm_cases[_i].norm, without, 1, 4, want, &err), &err);
	for (int i = 0, k = 0; i < 6; i++)
		ck_assert_double_eq(found[i], isnan(with[i]) ? 0 : want[k++]);
	unit_ok(mft_rl_advantages(norm_cases[_i].norm, none, 1, 2, found, &err), &err);
	ck_assert_double_eq(found[0], 0);
	ck_assert(!mft_rl_has_signal(none, 2));
}
END_TEST

START_TEST(a_group_of_one)
{
	static const double one[] = {3}, two[] = {0, 1};
	double found[2];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(norm_cases); i++) {
		unit_ok(mft_rl_advantages(norm_cases[i].norm, one, 1, 1, found, &err), &err);
		ck_assert_double_eq_tol(found[0], i == 1 ? 3 : 0, 1e-5);
	}
	unit_ok(mft_rl_advantages("loo", two, 1, 2, found, &err), &err);
	ck_assert_double_eq(found[0], -1);
	ck_assert_double_eq(found[1], 1);
}
END_TEST

START_TEST(long_responses_lose_softly)
{
	ck_assert_double_eq(mft_rl_overlong_penalty(80, 100, 20, 1), 0);
	ck_assert_double_eq(mft_rl_overlong_penalty(90, 100, 20, 1), -0.5);
	ck_assert_double_eq(mft_rl_overlong_penalty(100, 100, 20, 0.5), -0.5);
	ck_assert_double_eq(mft_rl_overlong_penalty(100, 100, 0, 1), 0);
}
END_TEST

static const struct weight_case {
	const char *aggregation;
	double want[6];
} weight_cases[] = {
	{"token-mean", {1.0 / 14, 1.0 / 14, 0, 1.0 / 14, 1.0 / 14, -1}},
	{"seq-mean-token-mean", {1.0 / 16, 1.0 / 8, 0, 1.0 / 20, 1.0 / 12, -1}},
	{"seq-mean-token-sum", {0.25, 0.25, 0, 0.25, 0.25, -1}},
	{"seq-mean-token-sum-norm", {0.025, 0.025, 0, 0.025, 0.025, -1}},
	{"prompt-mean", {1.0 / 12, 1.0 / 12, 0, 1.0 / 16, 1.0 / 16, -1}},
};

/* Three to a prompt: prompt 0 has 6 tokens, prompt 1 has 8 and a response that is not of the step.
 * One has no token that counts. */
START_TEST(weights_are_those_of_the_step)
{
	static const uint32_t tokens[] = {4, 2, 0, 5, 3, 7}, list[] = {0, 1, 2, 3, 4};
	const struct mft_rl_weighed of = {
		.tokens = tokens, .list = list, .count = 5, .group = 3, .most = 10};
	double found[6] = {[5] = -1};
	const struct weight_case *k = &weight_cases[_i];

	unit_ok(mft_rl_weigh(k->aggregation, &of, found, &err), &err);
	for (int i = 0; i < 6; i++)
		ck_assert_msg(fabs(found[i] - k->want[i]) <= 1e-15, "%s, response %d: %.9g",
			      k->aggregation, i, found[i]);
}
END_TEST

START_TEST(words_are_known)
{
	const struct mft_rl_weighed nothing = {.group = 1};
	double found[1];

	unit_fails(mft_rl_advantages("mean", rewards, 1, 1, found, &err), &err, -EINVAL,
		   "--rl-advantage-norm: expected a kind, found mean");
	unit_fails(mft_rl_weigh("mean", &nothing, found, &err), &err, -EINVAL,
		   "--rl-loss-aggregation: expected a kind, found mean");
}
END_TEST

START_TEST(weights_of_responses_are_held_or_mask)
{
	const float old[] = {-1, -2, -0.5f}, rollout[] = {-1.1f, -1.95f, -0.4f};
	const double w = exp(-0.05);

	ck_assert_double_eq_tol(mft_rl_response_weight(old, rollout, 3, 0, INFINITY, false), w,
				1e-7);
	ck_assert_double_eq(mft_rl_response_weight(old, rollout, 3, 0, 0.9, false), 0.9);
	ck_assert_double_eq(mft_rl_response_weight(old, rollout, 3, 0.97, 2, false), 0.97);
	ck_assert_double_eq(mft_rl_response_weight(old, rollout, 3, 0, 0.9, true), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("advantage");
	TCase *c = unit_case(s, "advantages", a_group_of_one);

	tcase_add_loop_test(c, advantages_are_the_peers, 0, MFS_ARRAY_SIZE(norm_cases));
	tcase_add_loop_test(c, equal_rewards_have_no_advantage, 0, MFS_ARRAY_SIZE(norm_cases));
	tcase_add_loop_test(c, a_response_that_has_failed_counts_nowhere, 0,
			    MFS_ARRAY_SIZE(norm_cases));
	tcase_add_test(c, long_responses_lose_softly);
	tcase_add_loop_test(c, weights_are_those_of_the_step, 0, MFS_ARRAY_SIZE(weight_cases));
	tcase_add_test(c, words_are_known);
	tcase_add_test(c, weights_of_responses_are_held_or_mask);
	return s;
}
