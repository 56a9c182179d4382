/*
 * The loss of one token of a policy, and its derivatives, in fp32: one function for each kind of
 * loss and of KL. Both backends compile this, so that they have the same formulas. What the fields
 * mean is in kernels.h: struct mfk_policy.
 *
 * Sources: verl, trainer/ppo/core_algos.py: compute_policy_loss_vanilla, compute_policy_loss_gspo,
 * compute_policy_loss_cispo, kl_penalty; Megatron-LM, megatron/rl/rl_utils.py: calculate_grpo_loss.
 */
#ifndef MFK_POLICY_ROW_H
#define MFK_POLICY_ROW_H

#include <math.h>

#include "kernels/kernels.h"

#ifdef __CUDACC__
#define MFK_POLICY static __host__ __device__ __forceinline__
#else
#define MFK_POLICY static inline
#endif

/* A term of the loss, and its derivative by the log-prob. */
struct mfk_policy_value {
	float value, slope;
};

MFK_POLICY float mfk_policy_held(float x, float least, float most)
{
	return x < least ? least : x > most ? most : x;
}

/* Held where fp32 has room: a ratio that is infinite times an advantage of 0 would be NaN. */
MFK_POLICY float mfk_policy_exp(float x)
{
	return expf(mfk_policy_held(x, -80, 80));
}

/* ---- kinds of loss ---- */

MFK_POLICY struct mfk_policy_value mfk_policy_clip(const struct mfk_policy_rule *p, float ratio,
						   float advantage)
{
	const float open = -advantage * ratio;
	const float clipped = -advantage * mfk_policy_held(ratio, p->least, p->most);
	const float dual = -advantage * p->dual;
	struct mfk_policy_value v = {open, open};

	if (clipped > open)
		v.value = clipped, v.slope = 0;
	if (advantage < 0 && v.value > dual)
		v.value = dual, v.slope = 0;
	return v;
}

MFK_POLICY struct mfk_policy_value mfk_policy_cispo(const struct mfk_policy_rule *p, float ratio,
						    float advantage, float log_prob)
{
	const float slope = -advantage * mfk_policy_held(ratio, p->least, p->most);
	const struct mfk_policy_value v = {slope * log_prob, slope};

	return v;
}

MFK_POLICY struct mfk_policy_value mfk_policy_plain(float advantage, float log_prob)
{
	const struct mfk_policy_value v = {-advantage * log_prob, -advantage};

	return v;
}

MFK_POLICY struct mfk_policy_value mfk_policy_value_of(const struct mfk_policy_rule *p, float ratio,
						       float advantage, float log_prob)
{
	switch (p->kind) {
	case MFK_POLICY_CISPO:
		return mfk_policy_cispo(p, ratio, advantage, log_prob);
	case MFK_POLICY_PLAIN:
		return mfk_policy_plain(advantage, log_prob);
	default:
		return mfk_policy_clip(p, ratio, advantage);
	}
}

/* ---- KL ---- */

MFK_POLICY struct mfk_policy_value mfk_policy_kl(enum mfk_kl_kind kind, float d)
{
	const float less = kind == MFK_KL_K3 ? expm1f(-d) : 0; /* e^-d - 1 */
	struct mfk_policy_value v = {less + d, -less};

	if (kind == MFK_KL_K1)
		v.value = d, v.slope = 1;
	if (kind == MFK_KL_K2)
		v.value = d * d / 2, v.slope = d;
	return v;
}

/* ---- a row ---- */

MFK_POLICY float mfk_policy_weight(const struct mfk_policy_rule *p, float difference)
{
	const float w = mfk_policy_exp(difference),
		    held = mfk_policy_held(w, p->weight_least, p->weight_most);

	if (!p->corrects)
		return 1;
	return p->weight_masks && held != w ? 0 : held;
}

/* The sum and the count of the response that a row belongs to; NULL: of none. */
MFK_POLICY float *mfk_policy_sum(const struct mfk_policy *a, int64_t row)
{
	const int64_t number = a->number[row];

	return number < 0 ? NULL : a->sums + 2 * ((a->first + row) / a->length * a->limit + number);
}

MFK_POLICY float mfk_policy_delta(const struct mfk_policy *a, int64_t row)
{
	const float own = a->old ? a->log_prob[row] - a->old[row] : 0;
	const float *sum = a->rule.sequence_ratio && a->old ? mfk_policy_sum(a, row) : NULL;

	return sum ? sum[0] / fmaxf(sum[1], 1) : own;
}

struct mfk_policy_result {
	float term[MFK_POLICY_TERMS], dlog_prob, dentropy;
};

/* Of a row that counts. */
MFK_POLICY struct mfk_policy_result mfk_policy_result_of(const struct mfk_policy *a, int64_t row)
{
	const struct mfk_policy_rule *p = &a->rule;
	const float log_prob = a->log_prob[row], old = a->old ? a->old[row] : log_prob;
	const float ratio = mfk_policy_exp(mfk_policy_delta(a, row));
	const struct mfk_policy_value v =
		mfk_policy_value_of(p, ratio, a->advantage[row], log_prob);
	const float weight = mfk_policy_weight(p, old - a->rollout[row]);
	struct mfk_policy_value kl = {0, 0};
	struct mfk_policy_result r;

	if (a->reference)
		kl = mfk_policy_kl(p->kl, log_prob - a->reference[row]);
	r.term[MFK_POLICY_LOSS] =
		weight * v.value + p->kl_weight * kl.value - p->entropy_weight * a->entropy[row];
	r.term[MFK_POLICY_KL] = kl.value;
	r.term[MFK_POLICY_RATIO] = ratio;
	r.term[MFK_POLICY_ENTROPY] = a->entropy[row];
	r.term[MFK_POLICY_ABOVE] = ratio > p->most;
	r.term[MFK_POLICY_BELOW] = ratio < p->least;
	r.term[MFK_POLICY_DRIFT] = fabsf(a->rollout[row] - old);
	r.term[MFK_POLICY_WEIGHT] = weight;
	r.dlog_prob = a->scale[row] * (weight * v.slope + p->kl_weight * kl.slope);
	r.dentropy = -a->scale[row] * p->entropy_weight;
	return r;
}

MFK_POLICY void mfk_policy_row(const struct mfk_policy *a, int64_t row)
{
	struct mfk_policy_result r;

	if (a->mask[row] != 0) {
		r = mfk_policy_result_of(a, row);
	} else {
		for (int i = 0; i < MFK_POLICY_TERMS; i++)
			r.term[i] = 0;
		r.dlog_prob = r.dentropy = 0;
	}
	for (int i = 0; i < MFK_POLICY_TERMS; i++)
		if (a->terms[i])
			a->terms[i][row] = r.term[i];
	if (a->dlog_prob)
		a->dlog_prob[row] = r.dlog_prob;
	if (a->dentropy)
		a->dentropy[row] = r.dentropy;
}

#endif
