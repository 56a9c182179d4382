/*
 * Losses of policies: vectors that verl, SkyRL, slime, TRL and Megatron-LM computed with their own
 * code, and a model that is trained with them, whose log-probs and gradients are those of its
 * logits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/train_model.h"
#include "trainer/model/net_i.h"

#define VECTOR_MOST 3e-7 /* seven digits */

/* ---- the peers' vectors ---- */

#define RESPONSES 8
#define TOKENS	  5
#define ROWS	  (RESPONSES * TOKENS)

static const int lengths[RESPONSES] = {5, 3, 4, 2, 5, 5, 1, 4};

/* Advantages of rewards 1 0 0 1 | 0 0 0 1, by who computed them. */
static const float of_verl[] = {0.8660239f, -0.8660239f, -0.8660239f, 0.8660239f,
				-0.499999f, -0.499999f,	 -0.499999f,  1.499997f};
static const float of_trl[] = {0.8658754f, -0.8658754f, -0.8658754f, 0.8658754f,
			       -0.4999f,   -0.4999f,	-0.4999f,    1.4997001f};
static const float of_megatron[] = {0.9998f,	-0.9998f,   -0.9998f,	0.9998f,
				    -0.577217f, -0.577217f, -0.577217f, 1.7316509f};

enum aggregation { TOKEN_MEAN, MEAN_OF_MEANS, MEAN_OF_SUMS, MEAN_OF_NORMS, PROMPT_MEAN };

struct vectors {
	float log_prob[ROWS], entropy[ROWS], old[ROWS], reference[ROWS], rollout[ROWS];
	float advantage[ROWS], mask[ROWS], sums[2 * RESPONSES], loss[ROWS], kl[ROWS];
	float dlog_prob[ROWS];
	int32_t number[ROWS];
};

static float weight_of(enum aggregation how, int i)
{
	int all = 0, of_prompt = 0;

	for (int k = 0; k < RESPONSES; k++) {
		all += lengths[k];
		of_prompt += k / 4 == i / 4 ? lengths[k] : 0;
	}
	switch (how) {
	case MEAN_OF_MEANS:
		return 1.0f / (float)(RESPONSES * lengths[i]);
	case MEAN_OF_SUMS:
		return 1.0f / RESPONSES;
	case MEAN_OF_NORMS:
		return 1.0f / (RESPONSES * TOKENS);
	case PROMPT_MEAN:
		return 1.0f / (float)(2 * of_prompt);
	default:
		return 1.0f / (float)all;
	}
}

static void vectors_fill(struct vectors *v, const float *advantages, enum aggregation how)
{
	for (int row = 0; row < ROWS; row++) {
		const int i = row / TOKENS, t = row % TOKENS;
		const double old = -((3 * i + 5 * t) % 17) / 10.0 - 0.1;

		v->old[row] = (float)old;
		v->log_prob[row] = (float)(old + ((7 * i + 4 * t) % 11 - 5) / 10.0);
		if (i == 4 && t == 2) /* dual clip */
			v->log_prob[row] = (float)(old + 1.3);
		v->reference[row] = (float)(old + ((5 * i + 3 * t) % 7 - 3) / 10.0);
		v->rollout[row] = (float)(old + ((2 * i + t) % 5 - 2) / 20.0);
		v->advantage[row] = advantages[i];
		v->mask[row] = t < lengths[i] ? weight_of(how, i) : 0;
		v->number[row] = t < lengths[i] ? 0 : -1;
	}
}

static struct mfk_policy policy_of(struct vectors *v, const struct mfk_policy_rule *rule)
{
	struct mfk_policy a = {
		.rule = *rule,
		.rows = ROWS,
		.log_prob = v->log_prob,
		.entropy = v->entropy,
		.old = v->old,
		.reference = v->reference,
		.rollout = v->rollout,
		.advantage = v->advantage,
		.mask = v->mask,
		.scale = v->mask,
		.terms = {[MFK_POLICY_LOSS] = v->loss, [MFK_POLICY_KL] = v->kl},
		.dlog_prob = v->dlog_prob,
		.number = v->number,
		.length = TOKENS,
		.limit = 1,
		.sums = v->sums,
	};

	a.rule.least = 0.8f;
	a.rule.most = 1.28f;
	if (a.rule.dual == 0)
		a.rule.dual = INFINITY;
	return a;
}

static double sum(const float *x, const float *weight)
{
	double all = 0;

	for (int row = 0; row < ROWS; row++)
		all += (double)x[row] * weight[row];
	return all;
}

static void run_policy(const struct mfk_policy *a)
{
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	char why[MFK_WHY] = "";

	ck_assert_msg(!mfk_cpu.device->open(0, 1, &device, why), "%s", why);
	ck_assert_msg(!mfk_cpu.device->ctx_new(device, false, &ctx, why), "%s", why);
	if (a->rule.sequence_ratio)
		mfk_cpu.ops->policy_sums(ctx, a);
	mfk_cpu.ops->policy(ctx, a);
	ck_assert_msg(!mfk_cpu.device->sync(ctx, why), "%s", why);
	mfk_cpu.device->ctx_free(ctx);
	mfk_cpu.device->close(device);
}

static void check_numbers(const char *what, const float *found, const double *want, int count)
{
	for (int i = 0; i < count; i++)
		ck_assert_msg(fabs(found[i] - want[i]) <= VECTOR_MOST, "%s, number %d: %.9g", what,
			      i, (double)found[i]);
}

#define CLIP .kind = MFK_POLICY_CLIP

static const struct vector_case {
	const char *name;
	struct mfk_policy_rule rule;
	const float *advantages;
	enum aggregation how;
	double loss;
	double slopes[2][TOKENS]; /* of the first responses; 0 0: not known */
} vector_cases[] = {
	{"verl vanilla, token-mean",
	 {CLIP, .dual = 3},
	 of_verl,
	 TOKEN_MEAN,
	 0.0461219,
	 {{-0.0181128, -0.0270211, 0, -0.0200177, -0.0298629}, {0.0364746, 0, 0.0270211, 0, 0}}},
	{"verl, seq-mean-token-mean", {CLIP, .dual = 3}, of_verl, MEAN_OF_MEANS, 0.063697, {{0}}},
	{"verl, seq-mean-token-sum", {CLIP, .dual = 3}, of_verl, MEAN_OF_SUMS, 0.1671917, {{0}}},
	{"verl, -norm", {CLIP, .dual = 3}, of_verl, MEAN_OF_NORMS, 0.0334383, {{0}}},
	{"verl, truncated importance weights",
	 {CLIP, .dual = 3, .corrects = true, .weight_most = 1.05f},
	 of_verl,
	 TOKEN_MEAN,
	 0.0413777,
	 {{0}}},
	{"verl gspo",
	 {CLIP, .sequence_ratio = true},
	 of_verl,
	 MEAN_OF_MEANS,
	 0.0165926,
	 {{-0.0188221, -0.0188221, -0.0188221, -0.0188221, -0.0188221}, {0}}},
	{"verl cispo", {.kind = MFK_POLICY_CISPO}, of_verl, TOKEN_MEAN, 0.0217783, {{0}}},
	{"SkyRL regular", {CLIP}, of_verl, TOKEN_MEAN, 0.0576615, {{0}}},
	{"SkyRL regular, prompt_mean", {CLIP}, of_verl, PROMPT_MEAN, 0.0559679, {{0}}},
	{"slime", {CLIP}, of_verl, MEAN_OF_MEANS, 0.0720632, {{0}}},
	{"TRL grpo", {CLIP}, of_trl, MEAN_OF_MEANS, 0.0720488, {{0}}},
	{"TRL dapo", {CLIP}, of_trl, TOKEN_MEAN, 0.0576501, {{0}}},
	{"TRL dr_grpo", {CLIP}, of_trl, MEAN_OF_NORMS, 0.0417964, {{0}}},
	{"TRL, sequence level",
	 {CLIP, .sequence_ratio = true},
	 of_trl,
	 MEAN_OF_MEANS,
	 0.0165884,
	 {{0}}},
};

START_TEST(losses_and_gradients_are_the_peers)
{
	const struct vector_case *k = &vector_cases[_i];
	struct vectors v = {0};
	struct mfk_policy a = policy_of(&v, &k->rule);

	vectors_fill(&v, k->advantages, k->how);
	run_policy(&a);
	ck_assert_msg(fabs(sum(v.loss, v.mask) - k->loss) <= VECTOR_MOST, "%s: %.9g", k->name,
		      sum(v.loss, v.mask));
	for (int i = 0; i < 2 && k->slopes[i][0] != 0; i++)
		check_numbers(k->name, v.dlog_prob + (ptrdiff_t)i * TOKENS, k->slopes[i],
			      lengths[i]);
}
END_TEST

START_TEST(kl_terms_are_the_peers)
{
	static const double want[] = {
		[MFK_KL_K1] = 0.0172414, [MFK_KL_K2] = 0.0884483, [MFK_KL_K3] = 0.0826226};
	struct vectors v = {0};
	struct mfk_policy a = policy_of(&v, &(struct mfk_policy_rule){.kl = (enum mfk_kl_kind)_i});

	vectors_fill(&v, of_verl, TOKEN_MEAN);
	run_policy(&a);
	ck_assert_msg(fabs(sum(v.kl, v.mask) - want[_i]) <= VECTOR_MOST, "%.9g", sum(v.kl, v.mask));
}
END_TEST

/* Weights of whole responses are factors of advantages. */
START_TEST(weights_of_responses_are_trls)
{
	static const float weights[] = {1, 0.8607079f, 1.0512711f, 1.0512711f, 1, 1, 1, 1.0512711f};
	struct vectors v = {0};
	struct mfk_policy a = policy_of(&v, &(struct mfk_policy_rule){CLIP});
	float advantages[RESPONSES];

	for (int i = 0; i < RESPONSES; i++)
		advantages[i] = weights[i] * of_trl[i];
	vectors_fill(&v, advantages, TOKEN_MEAN);
	run_policy(&a);
	ck_assert_msg(fabs(sum(v.loss, v.mask) - 0.0370604) <= VECTOR_MOST, "%.9g",
		      sum(v.loss, v.mask));
}
END_TEST

/* Megatron-LM's entropy term is that of the sampled token alone, -p log p, and has a gradient by
 * its log-prob: it is put in the place of ours. */
START_TEST(megatrons_loss_is_ours_with_its_entropy)
{
	static const double slopes[] = {-0.0218881, -0.0327071, 0.000031, -0.0220415, -0.031064};
	const struct mfk_policy_rule rule = {CLIP,
					     .kl = MFK_KL_K3,
					     .kl_weight = 0.001f,
					     .entropy_weight = 0.01f,
					     .corrects = true,
					     .weight_most = 1.05f};
	struct vectors v = {0};
	struct mfk_policy a = policy_of(&v, &rule);

	vectors_fill(&v, of_megatron, TOKEN_MEAN);
	for (int row = 0; row < ROWS; row++)
		v.entropy[row] = -expf(v.log_prob[row]) * v.log_prob[row];
	run_policy(&a);
	ck_assert_msg(fabs(sum(v.loss, v.mask) - 0.0600229) <= VECTOR_MOST, "%.9g",
		      sum(v.loss, v.mask));
	for (int t = 0; t < TOKENS; t++)
		v.dlog_prob[t] += 0.01f * v.mask[t] * expf(v.log_prob[t]) * (v.log_prob[t] + 1);
	check_numbers("slopes", v.dlog_prob, slopes, TOKENS);
}
END_TEST

/* ---- log-probs of logits ---- */

#define KNOWN 8

static const struct temperature_case {
	double temperature, log_prob[3], entropy[3], d[KNOWN];
} temperature_cases[] = {
	{1.0,
	 {-1.1897199, -2.5519454, -1.758093},
	 {1.7894409, 1.8785468, 1.8458058},
	 {-0.0297257, -0.0928547, 0.7139434, -0.0740128, -0.228706, -0.0589633, -0.1827306,
	  -0.0469502}},
	{0.7,
	 {-0.9714771, -2.8696351, -1.7524621},
	 {1.5847217, 1.7221175, 1.674976},
	 {-0.019701, -0.101302, 0.9209846, -0.073144, -0.3686569, -0.0527621, -0.2673934,
	  -0.0380253}},
};

/* The columns are divided among `parts` processes; the last two columns of ten are padding. */
static void check_temperature(const struct temperature_case *k, int parts)
{
	static const int32_t labels[] = {2, 0, 7};
	const float slopes[] = {1, -0.5f, 0.25f}, minus[] = {-0.1f, -0.1f, -0.1f};
	const int cols = 10 / parts;
	float logits[2][3 * 10], stats[2 * 4 * 3], log_prob[3], entropy[3];
	struct mfk_log_probs a[2];
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	char why[MFK_WHY] = "";

	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 10; j++)
			logits[j / cols][i * cols + j % cols] =
				j < KNOWN ? (float)((3 * i + 5 * j) % 11 - 5) / 4 : 100;
	ck_assert_msg(!mfk_cpu.device->open(0, 1, &device, why), "%s", why);
	ck_assert_msg(!mfk_cpu.device->ctx_new(device, false, &ctx, why), "%s", why);
	for (int p = 0; p < parts; p++) {
		a[p] = (struct mfk_log_probs){.rows = 3,
					      .dtype = MFK_F32,
					      .vocab = cols,
					      .ld = cols,
					      .by = (float)(1 / k->temperature),
					      .logits = logits[p],
					      .labels = labels,
					      .first = (int64_t)p * cols,
					      .known = KNOWN,
					      .part = p,
					      .parts = parts,
					      .stats = stats,
					      .log_prob = log_prob,
					      .entropy = entropy,
					      .dlog_prob = slopes,
					      .dentropy = minus,
					      .dlogits = logits[p]};
		mfk_cpu.ops->log_probs_part(ctx, &a[p]);
	}
	mfk_cpu.ops->log_probs_join(ctx, &a[0]);
	for (int p = 0; p < parts; p++)
		mfk_cpu.ops->log_probs_backward(ctx, &a[p]);
	ck_assert_msg(!mfk_cpu.device->sync(ctx, why), "%s", why);
	check_numbers("log-probs", log_prob, k->log_prob, 3);
	check_numbers("entropies", entropy, k->entropy, 3);
	for (int j = 0; j < 10; j++) {
		const double want = j < KNOWN ? k->d[j] : 0;

		check_numbers("dlogits", &logits[j / cols][j % cols], &want, 1);
	}
	mfk_cpu.device->ctx_free(ctx);
	mfk_cpu.device->close(device);
}

START_TEST(log_probs_are_of_logits_over_temperature)
{
	check_temperature(&temperature_cases[_i], 1);
	check_temperature(&temperature_cases[_i], 2);
}
END_TEST

/* ---- a model ---- */

#define BATCH 2
#define SEQ   16
#define N     (BATCH * SEQ)

static struct mft_train_config model_config(const char *loss)
{
	struct mft_train_config c = {.micro_batch_size = BATCH,
				     .seq_length = SEQ,
				     .perform_rl_step = true,
				     .rl_loss = loss,
				     .rl_kl_type = "k3",
				     .rl_importance_sampling_level = "token",
				     .rl_importance_sampling_mode = "truncate",
				     .rl_inference_logprobs_is_correction = true,
				     .rl_importance_sampling_truncation_coef = 1.2,
				     .grpo_clamp_eps_lower = 0.2,
				     .grpo_clamp_eps_upper = 0.28,
				     .grpo_kl_beta = 0.1,
				     .grpo_entropy_term_weight = 0.05,
				     .rl_dual_clip = 3,
				     .rl_default_temperature = 0.8};

	c.model = train_plain_model();
	c.model.num_layers = 1;
	c.model.hidden_size = 32;
	c.model.ffn_hidden_size = 64;
	c.model.num_attention_heads = 4;
	c.model.num_query_groups = 2;
	c.model.kv_channels = 8;
	c.model.swiglu = true;
	c.model.vocab_size = 50;
	c.model.padded_vocab_size = 64;
	train_config_types(&c, MFS_F32);
	return c;
}

static struct mft_batch *batch_new(void)
{
	struct mft_batch *b = train_batch_new(BATCH, SEQ, 50, 5);

	train_batch_add_policy(b, BATCH, SEQ, 11);
	return b;
}

static struct mft_net_losses model_run(struct train_model *m, const struct mft_batch *b,
				       bool backward, bool old_is_own)
{
	const struct mft_microbatch_info info = {
		.batch = b, .grad_scale = 1, .backward = backward, .old_is_own = old_is_own};
	struct mft_net_losses losses;

	mft_net_clear_losses(m->net, m->ctx);
	unit_ok(mft_net_run(m->net, m->ctx, &info, &m->err), &m->err);
	unit_ok(mft_net_losses(m->net, m->ctx, &losses, &m->err), &m->err);
	return losses;
}

static void take_log_probs(struct train_model *m, float *ret)
{
	ck_assert_int_eq(mft_net_copy_log_probs(m->net, m->ctx, ret), 0);
	train_model_sync(m);
}

START_TEST(log_probs_are_those_of_the_known_columns)
{
	const struct mft_train_config config = model_config("clip");
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_new();
	float found[N], trained[N], *logits;

	train_model_random(m, 7, 0.3f);
	model_run(m, b, false, false);
	take_log_probs(m, found);
	model_run(m, b, true, false);
	take_log_probs(m, trained);
	ck_assert_mem_eq(found, trained, sizeof(found));
	logits = malloc((size_t)(N * 64) * sizeof(*logits));
	unit_ok(mft_net_logits(m->net, m->ctx, b, logits, &m->err), &m->err);
	for (int64_t t = 0; t < N; t++) {
		double all = 0;

		for (int64_t i = 0; i < 50; i++)
			all += exp(logits[t * 64 + i] / 0.8);
		ck_assert_double_eq_tol(found[t], logits[t * 64 + b->labels[t]] / 0.8 - log(all),
					2e-6);
	}
	free(logits);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* ret: the gradients of all parameters. */
static double gradients(struct train_model *m, const struct mft_batch *b, bool old_is_own,
			double *ret)
{
	double loss;

	train_clear_grads(m);
	loss = model_run(m, b, true, old_is_own).loss[0];
	for (uint64_t e = 0; e < m->params->elements; e++)
		ret[e] = ((float *)m->params->grads)[e];
	return loss;
}

static double dot(const double *x, const double *y, uint64_t count)
{
	double all = 0;

	for (uint64_t e = 0; e < count; e++)
		all += x[e] * y[e];
	return all;
}

/* The loss's difference along its gradient, against the gradient's length. Where weights of tokens
 * differ, gspo's gradient is none of a function: each token has that of its own weight. */
static void check_gradient(const char *loss)
{
	struct mft_train_config config = model_config(loss);
	struct train_model *m;
	struct mft_batch *b = batch_new();
	double *d, found, length;
	float *weights, *saved;
	uint64_t count;

	config.rl_inference_logprobs_is_correction = strcmp(loss, "gspo") != 0;
	m = train_model_new(&config);
	count = m->params->elements;
	weights = m->params->weights;
	d = calloc(count, sizeof(*d));
	saved = calloc(count, sizeof(*saved));
	train_model_random(m, 7, 0.3f);
	gradients(m, b, false, d);
	memcpy(saved, weights, count * sizeof(*saved));
	length = sqrt(dot(d, d, count));
	for (uint64_t e = 0; e < count; e++)
		weights[e] = (float)(saved[e] + 2e-4 * d[e] / length);
	found = model_run(m, b, false, false).loss[0];
	for (uint64_t e = 0; e < count; e++)
		weights[e] = (float)(saved[e] - 2e-4 * d[e] / length);
	found = (found - model_run(m, b, false, false).loss[0]) / 4e-4;
	ck_assert_msg(fabs(found - length) <= 4e-3 * length, "%s: %.6g, expected %.6g", loss, found,
		      length);
	free(d);
	free(saved);
	train_batch_free(b);
	train_model_free(m);
}

START_TEST(gradients_are_differences_of_the_loss)
{
	static const char *const losses[] = {"clip", "gspo", "plain"};

	check_gradient(losses[_i]);
}
END_TEST

/* So many rows of logits at a time: sums of weights' gradients have another order. */
START_TEST(chunks_of_rows_change_nothing)
{
	const struct mft_train_config config = model_config(_i ? "gspo" : "clip");
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_new();
	const uint64_t count = m->params->elements;
	double *whole = calloc(count, sizeof(*whole)), *parts = calloc(count, sizeof(*parts));
	double loss;

	train_model_random(m, 7, 0.3f);
	loss = gradients(m, b, false, whole);
	m->net->chain->head.chunk = 12; /* of 32 rows */
	ck_assert_double_eq_tol(gradients(m, b, false, parts), loss, 1e-6);
	for (uint64_t e = 0; e < count; e++)
		whole[e] -= parts[e];
	ck_assert_double_le(dot(whole, whole, count), 1e-10 * dot(parts, parts, count));
	free(whole);
	free(parts);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* One update of each rollout: the pass's own log-probs are the old ones. */
START_TEST(own_log_probs_stand_for_old_ones)
{
	const struct mft_train_config config = model_config(_i ? "gspo" : "clip");
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_new();
	const uint64_t count = m->params->elements;
	double *given = calloc(count, sizeof(*given)), *own = calloc(count, sizeof(*own)), loss;
	struct mft_net_losses losses;

	train_model_random(m, 7, 0.3f);
	model_run(m, b, false, true);
	take_log_probs(m, b->old);
	loss = gradients(m, b, false, given);
	memset(b->old, 0xff, N * sizeof(*b->old));
	ck_assert_double_eq_tol(gradients(m, b, true, own), loss, 1e-7);
	for (uint64_t e = 0; e < count; e++)
		ck_assert_double_eq_tol(own[e], given[e], 1e-7);
	losses = model_run(m, b, false, true);
	ck_assert_double_eq_tol(losses.loss[MFK_POLICY_RATIO], BATCH * 6 * (0.01 + 0.02), 1e-6);
	ck_assert_double_eq(losses.loss[MFK_POLICY_ABOVE], 0);
	free(given);
	free(own);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

START_TEST(other_runs_have_no_log_probs)
{
	struct mft_train_config config = model_config("clip");
	struct train_model *m;
	float none[N];

	config.perform_rl_step = false;
	m = train_model_new(&config);
	ck_assert_int_eq(mft_net_copy_log_probs(m->net, m->ctx, none), -ENOTSUP);
	ck_assert_uint_eq(mft_batch_bytes(N, 0, true) - mft_batch_bytes(N, 0, false),
			  MFT_BATCH_POLICY_COUNT * MFT_BATCH_ALIGN);
	train_model_free(m);
}
END_TEST

static const struct refused_case {
	const char *sentence;
	double temperature, lower, dual, least;
	const char *loss;
} refused_cases[] = {
	{"--rl-default-temperature: expected a positive number, found 0", 0, 0.2, 0, 0, "clip"},
	{"--grpo-clamp-eps-lower: expected 0 to 1, found 1.5", 1, 1.5, 0, 0, "clip"},
	{"--rl-dual-clip: expected 0 or a number above 1, found 0.5", 1, 0.2, 0.5, 0, "clip"},
	{"--rl-importance-sampling-lower: expected 0 or more", 1, 0.2, 0, 1.5, "clip"},
	{"--rl-loss: expected a kind of loss, found ppo", 1, 0.2, 0, 0, "ppo"},
};

START_TEST(arguments_without_a_meaning_are_refused)
{
	const struct refused_case *k = &refused_cases[_i];
	struct train_model m = {.config = model_config(k->loss)};

	m.config.rl_default_temperature = k->temperature;
	m.config.grpo_clamp_eps_lower = k->lower;
	m.config.rl_dual_clip = k->dual;
	m.config.rl_importance_sampling_lower = k->least;
	mft_parallel_one(&m.parallel);
	unit_ok(mft_params_new(&m.config, NULL, &m.params, &m.err), &m.err);
	unit_fails(mft_net_new(&m.config, m.params, &m.memory, &mfk_cpu, NULL, &m.parallel, &m.net,
			       &m.err),
		   &m.err, -EINVAL, k->sentence);
	mft_memory_release(&m.memory, &mfk_cpu, NULL);
	mft_params_free(m.params);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("policy_loss");
	TCase *c = unit_case(s, "model", log_probs_are_those_of_the_known_columns);

	tcase_add_loop_test(c, losses_and_gradients_are_the_peers, 0, MFS_ARRAY_SIZE(vector_cases));
	tcase_add_loop_test(c, kl_terms_are_the_peers, 0, 3);
	tcase_add_test(c, weights_of_responses_are_trls);
	tcase_add_test(c, megatrons_loss_is_ours_with_its_entropy);
	tcase_add_loop_test(c, log_probs_are_of_logits_over_temperature, 0,
			    MFS_ARRAY_SIZE(temperature_cases));
	tcase_add_loop_test(c, gradients_are_differences_of_the_loss, 0, 3);
	tcase_add_loop_test(c, chunks_of_rows_change_nothing, 0, 2);
	tcase_add_loop_test(c, own_log_probs_stand_for_old_ones, 0, 2);
	tcase_add_test(c, other_runs_have_no_log_probs);
	tcase_add_loop_test(c, arguments_without_a_meaning_are_refused, 0,
			    MFS_ARRAY_SIZE(refused_cases));
	return s;
}
