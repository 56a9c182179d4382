/*
 * policy_losses: losses of policies, for tests/interop/test_grpo_losses.py. Numbers from standard
 * input, each as text:
 *
 *   kind kl sequence corrects masks least most dual kl_weight entropy_weight
 *   weight_least weight_most norm aggregation prompts group room
 *   responses: reward tokens
 *   rows [responses][room]: log_prob entropy old reference rollout
 *
 * kind and kl are numbers of kernels.h. What comes back: the loss, then advantages, then the
 * derivatives by log-probs of all rows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/ref/cpu.h"
#include "trainer/rl/advantage.h"

struct input {
	struct mfk_policy_rule rule;
	char norm[32], aggregation[32];
	uint32_t prompts, group, room;
	uint32_t *tokens, *list;
	double *reward, *advantage, *weight;
	float *log_prob, *entropy, *old, *reference, *rollout;
	float *of_row[3]; /* advantage, mask, loss */
	float *dlog_prob, *sums;
	int32_t *number;
};

static int fail(const char *why)
{
	fprintf(stderr, "policy_losses: %s\n", why);
	return 1;
}

static uint32_t responses(const struct input *in)
{
	return in->prompts * in->group;
}

static int read_rule(struct input *in)
{
	struct mfk_policy_rule *r = &in->rule;
	int kind, kl, sequence, corrects, masks;

	if (scanf("%d %d %d %d %d %f %f %f %f %f %f %f %31s %31s %u %u %u", &kind, &kl, &sequence,
		  &corrects, &masks, &r->least, &r->most, &r->dual, &r->kl_weight,
		  &r->entropy_weight, &r->weight_least, &r->weight_most, in->norm, in->aggregation,
		  &in->prompts, &in->group, &in->room) != 17)
		return 1;
	r->kind = (enum mfk_policy_kind)kind;
	r->kl = (enum mfk_kl_kind)kl;
	r->sequence_ratio = sequence;
	r->corrects = corrects;
	r->weight_masks = masks;
	return 0;
}

static float *floats(size_t count)
{
	float *x = calloc(count, sizeof(*x));

	if (!x)
		exit(fail("no memory"));
	return x;
}

static void make_room(struct input *in)
{
	const size_t n = responses(in), rows = n * in->room;

	in->tokens = calloc(n, sizeof(*in->tokens));
	in->list = calloc(n, sizeof(*in->list));
	in->reward = calloc(n, sizeof(*in->reward));
	in->advantage = calloc(n, sizeof(*in->advantage));
	in->weight = calloc(n, sizeof(*in->weight));
	in->number = calloc(rows, sizeof(*in->number));
	if (!in->tokens || !in->list || !in->reward || !in->advantage || !in->weight || !in->number)
		exit(fail("no memory"));
	in->log_prob = floats(rows);
	in->entropy = floats(rows);
	in->old = floats(rows);
	in->reference = floats(rows);
	in->rollout = floats(rows);
	in->dlog_prob = floats(rows);
	in->sums = floats(2 * n);
	for (int i = 0; i < 3; i++)
		in->of_row[i] = floats(rows);
}

static int read_rows(struct input *in)
{
	const size_t rows = (size_t)responses(in) * in->room;

	for (uint32_t i = 0; i < responses(in); i++) {
		in->list[i] = i;
		if (scanf("%lf %u", &in->reward[i], &in->tokens[i]) != 2)
			return 1;
	}
	for (size_t row = 0; row < rows; row++)
		if (scanf("%f %f %f %f %f", &in->log_prob[row], &in->entropy[row], &in->old[row],
			  &in->reference[row], &in->rollout[row]) != 5)
			return 1;
	return 0;
}

static int weigh(struct input *in, struct mfs_error *err)
{
	const struct mft_rl_weighed of = {.tokens = in->tokens,
					  .list = in->list,
					  .count = responses(in),
					  .group = in->group,
					  .most = in->room};
	int rc =
		mft_rl_advantages(in->norm, in->reward, in->prompts, in->group, in->advantage, err);

	if (!rc)
		rc = mft_rl_weigh(in->aggregation, &of, in->weight, err);
	for (size_t row = 0; !rc && row < (size_t)responses(in) * in->room; row++) {
		const size_t i = row / in->room;
		const bool counts = row % in->room < in->tokens[i];

		in->of_row[0][row] = (float)in->advantage[i];
		in->of_row[1][row] = counts ? (float)in->weight[i] : 0;
		in->number[row] = counts ? 0 : -1;
	}
	return rc;
}

static int compute(struct input *in, char *why)
{
	const struct mfk_policy a = {.rule = in->rule,
				     .rows = (int64_t)responses(in) * in->room,
				     .log_prob = in->log_prob,
				     .entropy = in->entropy,
				     .old = in->old,
				     .reference = in->reference,
				     .rollout = in->rollout,
				     .advantage = in->of_row[0],
				     .mask = in->of_row[1],
				     .scale = in->of_row[1],
				     .terms = {[MFK_POLICY_LOSS] = in->of_row[2]},
				     .dlog_prob = in->dlog_prob,
				     .number = in->number,
				     .length = in->room,
				     .limit = 1,
				     .sums = in->sums};
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	int rc = mfk_cpu.device->open(0, 1, &device, why);

	if (rc)
		return rc;
	rc = mfk_cpu.device->ctx_new(device, false, &ctx, why);
	if (rc)
		return rc;
	if (a.rule.sequence_ratio)
		mfk_cpu.ops->policy_sums(ctx, &a);
	mfk_cpu.ops->policy(ctx, &a);
	return mfk_cpu.device->sync(ctx, why);
}

static void print(const struct input *in)
{
	const size_t rows = (size_t)responses(in) * in->room;
	double loss = 0;

	for (size_t row = 0; row < rows; row++)
		loss += (double)in->of_row[1][row] * in->of_row[2][row];
	printf("%.17g\n", loss);
	for (uint32_t i = 0; i < responses(in); i++)
		printf("%.17g\n", in->advantage[i]);
	for (size_t row = 0; row < rows; row++)
		printf("%.9g\n", in->dlog_prob[row]);
}

int main(void)
{
	struct input in = {0};
	struct mfs_error err;
	char why[MFK_WHY] = "";

	if (read_rule(&in))
		return fail("expected a rule");
	make_room(&in);
	if (read_rows(&in))
		return fail("expected rows");
	if (weigh(&in, &err))
		return fail(err.msg);
	if (compute(&in, why))
		return fail(why);
	print(&in);
	return 0;
}
