/* The choices that experts have no room for are megatron-core's: tests/fixtures/router.txt, which
 * tests/interop/router_cases.py has written. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/ref/cpu.h"

#define MOST 256 /* numbers of each kind in a case */

struct routed {
	char score[16];
	long long top_k, experts, tokens;
	double factor;
	float logits[MOST];
	double want[MOST]; /* [tokens, experts]: probabilities; 0: not taken */
};

static bool read_case(FILE *f, struct routed *r)
{
	if (fscanf(f, "%15s %lld %lld %lld %lf", r->score, &r->top_k, &r->experts, &r->tokens,
		   &r->factor) != 5)
		return false;
	ck_assert_int_le(r->tokens * r->experts, MOST);
	for (int64_t i = 0; i < r->tokens * r->experts; i++)
		ck_assert_int_eq(fscanf(f, "%f", &r->logits[i]), 1);
	for (int64_t i = 0; i < r->tokens * r->experts; i++)
		ck_assert_int_eq(fscanf(f, "%lf", &r->want[i]), 1);
	return true;
}

/* Returns how many choices were dropped. */
static int check(struct mfk_ctx *ctx, const struct routed *r)
{
	int32_t expert[MOST], taken[MOST];
	float prob[MOST];
	double found[MOST] = {0};
	int dropped = 0;
	const struct mfk_route route = {.score = !strcmp(r->score, "softmax") ? MFK_SCORE_SOFTMAX
									      : MFK_SCORE_SIGMOID,
					.tokens = r->tokens,
					.experts = r->experts,
					.top_k = r->top_k,
					.scale = 1,
					.logits = r->logits,
					.expert = expert,
					.prob = prob};
	const struct mfk_drop drop = {.sequences = 1,
				      .length = r->tokens,
				      .groups = 1,
				      .experts = r->experts,
				      .top_k = r->top_k,
				      .capacity = (int64_t)ceil((double)(r->tokens * r->top_k) /
								(double)r->experts * r->factor),
				      .by_prob = true,
				      .expert = expert,
				      .prob = prob,
				      .taken = taken};

	mfk_cpu.ops->route(ctx, &route);
	mfk_cpu.ops->drop(ctx, &drop);
	for (int64_t i = 0; i < r->tokens * r->top_k; i++) {
		ck_assert(taken[i] == expert[i] || taken[i] == -1);
		dropped += taken[i] < 0;
		if (taken[i] >= 0)
			found[i / r->top_k * r->experts + taken[i]] = prob[i];
	}
	for (int64_t i = 0; i < r->tokens * r->experts; i++)
		ck_assert_msg(fabs(found[i] - r->want[i]) <= 1e-6,
			      "%s, token %lld, expert %lld: expected %g, found %g", r->score,
			      (long long)(i / r->experts), (long long)(i % r->experts), r->want[i],
			      found[i]);
	return dropped;
}

START_TEST(dropped_choices)
{
	FILE *f = fopen(unit_fixture("router.txt"), "r");
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct routed r;
	char why[MFK_WHY];
	int cases = 0, with = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(mfk_cpu.device->open(0, 1, &device, why), 0);
	ck_assert_int_eq(mfk_cpu.device->ctx_new(device, false, &ctx, why), 0);
	for (; read_case(f, &r); cases++)
		with += check(ctx, &r) > 0;
	ck_assert_int_eq(cases, 5);
	ck_assert_int_ge(with, 3);
	mfk_cpu.device->ctx_free(ctx);
	mfk_cpu.device->close(device);
	fclose(f);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("router");

	unit_case(s, "router", dropped_choices);
	return s;
}
