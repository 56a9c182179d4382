/* Private to trainer/rl/reward: its kinds, and texts that rules compare. */
#ifndef MFT_TRAINER_RL_REWARD_I_H
#define MFT_TRAINER_RL_REWARD_I_H

#include "trainer/rl/reward/reward.h"

/* answer_rules.c */
extern const struct mft_reward_kind mft_reward_match, mft_reward_gsm8k, mft_reward_boxed;

/* Bytes of a text that somebody else has. */
struct mft_text {
	const char *at;
	size_t len;
};

/* Rules, each of which finds the answer in a text; at NULL: there is none. */
struct mft_text mft_answer_all(struct mft_text of);
struct mft_text mft_answer_gsm8k(struct mft_text of);
struct mft_text mft_answer_boxed(struct mft_text of);

#endif
