/*
 * --rl-verify-model-weights-swap: each engine says what log-probs its weights give to a response,
 * and they are compared with those of the weights here. What is wrong on the way of weights to an
 * engine shows there, whatever it is.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/loop/rl_i.h"

/* The mean difference of log-probs, at most, of the same weights by other programs' kernels. */
#define CLOSE_FP32   0.02
#define CLOSE_NARROW 0.1

/* The first response that trains with its prompt. *ret_prompt: tokens of the prompt. */
static int sequence_of(const struct mft_trainer *t, uint32_t i, uint32_t **ret,
		       uint32_t *ret_prompt, struct mfs_error *err)
{
	const struct mft_rollout *r = &t->rl->rollout;
	const struct mft_prompt *p = mft_prompts_draw(t->rl->prompts, r->drawn[i / r->group]);

	*ret = calloc(p->count + r->count[i], sizeof(**ret));
	if (!*ret)
		return mfs_fail_nomem(err);
	memcpy(*ret, p->ids, p->count * sizeof(**ret));
	memcpy(*ret + p->count, r->tokens + (size_t)i * r->room, r->count[i] * sizeof(**ret));
	*ret_prompt = p->count;
	return 0;
}

static double difference(const float *a, const float *b, uint32_t count)
{
	double sum = 0;

	for (uint32_t t = 0; t < count; t++)
		sum += fabs((double)a[t] - b[t]);
	return sum / count;
}

static int verify_engine(struct mft_trainer *t, size_t engine, uint32_t i, const uint32_t *tokens,
			 uint32_t prompt, struct mfs_error *err)
{
	const struct mft_rollout *r = &t->rl->rollout;
	const double most = t->config->params_dtype == MFS_F32 ? CLOSE_FP32 : CLOSE_NARROW;
	const uint32_t count = prompt + r->count[i];
	float *log_probs = calloc(count, sizeof(*log_probs));
	double found;
	int rc;

	if (!log_probs)
		return mfs_fail_nomem(err);
	rc = mft_engines_score(t->rl->told, engine, tokens, count, log_probs, err);
	found = difference(log_probs + prompt - 1, r->old + (size_t)i * r->room, r->count[i]);
	free(log_probs);
	if (rc || found <= most)
		return rc;
	return mfs_fail(err, -EPROTO,
			"%s has other weights than the policy: log-probs of a response differ by "
			"%g in the mean, expected at most %g",
			t->config->rl_inference_url.list[engine], found, most);
}

int mft_rl_verify(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_rl *rl = t->rl;
	uint32_t *tokens = NULL, prompt = 0, i = 0;
	int rc;

	while (i < mft_rollout_size(&rl->rollout) && !rl->trains[i])
		i++;
	if (!rl->told || i == mft_rollout_size(&rl->rollout))
		return 0;
	rc = sequence_of(t, i, &tokens, &prompt, err);
	for (size_t e = 0; e < mft_engines_count(rl->told) && !rc; e++)
		if (!mft_engines_is_out(rl->told, e))
			rc = verify_engine(t, e, i, tokens, prompt, err);
	free(tokens);
	return rc;
}
