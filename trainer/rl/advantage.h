/*
 * What rewards are worth in a loss: advantages of responses, and what each token counts. Pure
 * functions, in double precision. docs/RL.md tells which other program has which of them.
 */
#ifndef MFT_TRAINER_RL_ADVANTAGE_H
#define MFT_TRAINER_RL_ADVANTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

/*
 * Advantages of groups of rewards x, [prompts][group]. With the mean m and the standard deviation s
 * of a group, by norm (--rl-advantage-norm):
 *
 *   population  (x - m) / (s + 1e-4), s of n: Megatron-LM, megatron/rl/rl_utils.py:
 *               calculate_grpo_advantages
 *   std         (x - m) / (s + 1e-6), s of n - 1; of a group of one: x / (1 + 1e-6). verl,
 *               trainer/ppo/core_algos.py: compute_grpo_outcome_advantage; SkyRL; slime
 *   none        x - m: Dr.GRPO, train_zero_math.py
 *   loo         (x - m) / (s + 1e-6), both of the others in the group, s of n - 1; where s is 0,
 *               x - m: NeMo-RL, algorithms/utils.py: calculate_baseline_and_std_per_prompt
 *   rloo        (x - m) n / (n - 1): verl and SkyRL, compute_rloo_outcome_advantage
 *   batch       (x - m) / (s + 1e-4), s of n - 1, of all groups: TRL, trainer/grpo_trainer.py:
 *               scale_rewards "batch"
 *
 * A reward that is NaN is none (a response that has failed): it counts in no mean, and its
 * advantage is 0. A group of one has 0 where nothing else is stated. -EINVAL: norm is no such word.
 */
int mft_rl_advantages(const char *norm, const double *reward, uint32_t prompts, uint32_t group,
		      double *ret, struct mfs_error *err);

/* False: all rewards of a group are the same, so that its advantages are 0. NaN is none. */
bool mft_rl_has_signal(const double *reward, uint32_t group);

/* What is added to the reward of a response of so many tokens: 0, and beyond most - buffer less and
 * less, down to -factor at most. DAPO; verl, workers/reward_manager/dapo.py. buffer 0: 0. */
double mft_rl_overlong_penalty(uint32_t tokens, uint32_t most, uint32_t buffer, double factor);

/* Responses of a step. A token's loss is multiplied by its response's weight, so that the step's
 * loss is the sum over all tokens, whatever microbatches and processes have them. */
struct mft_rl_weighed {
	const uint32_t *tokens; /* [responses]: how many count of each */
	const uint32_t *list;	/* [count]: numbers of the responses of the step */
	uint32_t count;
	uint32_t group; /* responses [p * group, p * group + group) answer prompt p */
	uint32_t most;	/* tokens that a response can have */
};

/*
 * Sets ret[i] for each response i of the list; others' stay. With N tokens in B responses that have
 * some, to P prompts, by aggregation (--rl-loss-aggregation), whose words are verl's and SkyRL's:
 *
 *   token-mean                1 / N
 *   seq-mean-token-mean       1 / (B tokens[i])
 *   seq-mean-token-sum        1 / B
 *   seq-mean-token-sum-norm   1 / (B most): Dr.GRPO
 *   prompt-mean               1 / (P times the prompt's tokens)
 *
 * -EINVAL: aggregation is no such word.
 */
int mft_rl_weigh(const char *aggregation, const struct mft_rl_weighed *of, double *ret,
		 struct mfs_error *err);

/* Importance weight of a whole response (--rl-importance-sampling-level sequence), a factor of its
 * advantage: e^(sum of old - rollout), held in [least, most] or, with masks, 0 outside of it. TRL,
 * vllm_importance_sampling_mode sequence_truncate and sequence_mask; verl, rollout_is sequence. */
double mft_rl_response_weight(const float *old, const float *rollout, uint32_t count, double least,
			      double most, bool masks);

#endif
