/*
 * Reinforcement learning (--perform-rl-step): the policy answers prompts, the answers are rewarded,
 * and steps are trained on them.
 *
 *   rollout    --grpo-prompts-per-step prompts, --grpo-group-size responses to each
 *   advantages of rewards, within groups
 *   log-probs  of the weights as they are (old), where several steps follow, and of the reference
 *   steps      --grpo-iterations times over all of it, --global-batch-size responses each
 *
 * Saves, and the run's end, wait for the end of a rollout: a run that is resumed makes the next
 * rollout of the same weights, prompts and seeds.
 *
 * Source: megatron/rl/rl_utils.py; megatron/training/training.py.
 */
#ifndef MFT_TRAINER_LOOP_RL_H
#define MFT_TRAINER_LOOP_RL_H

#include "trainer/loop/trainer_i.h"

/* Opens prompts, rewards and what answers. After the weights have come. */
int mft_rl_open(struct mft_trainer *t, struct mfs_error *err);
void mft_rl_close(struct mft_trainer *t);

/* Bytes beyond those of training: of the device for the sampler, its activations and its cache; of
 * the host for the reference. */
struct mft_rl_needs {
	uint64_t sampler, reference;
};
/* After a plan of the trainer; without a device. */
int mft_rl_plan(const struct mft_trainer *t, struct mft_rl_needs *ret, struct mfs_error *err);

/* Makes what the next step is trained on; ret: its microbatches. Before a rollout's first step it
 * makes the rollout, which is dropped where a signal ends the run: there is nothing to train on
 * then. */
int mft_rl_begin_step(struct mft_trainer *t, struct mft_microbatches *ret, struct mfs_error *err);
/* Steps of a rollout. */
uint64_t mft_rl_steps(const struct mft_train_config *c);
/* True: a rollout has steps that are still to be done. */
bool mft_rl_is_within(const struct mft_trainer *t);
bool mft_rl_is_dropped(const struct mft_trainer *t);
/* True: the state is that between two steps of one rollout, which is not saved. */
bool mft_rl_is_between(const struct mft_trainer *t);

#endif
