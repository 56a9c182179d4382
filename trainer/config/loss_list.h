/*
 * The losses of runs, and the flags that they have: the one list of both. What is computed of each
 * is a file in trainer/model/loss (loss.h).
 */
#ifndef MFT_TRAINER_CONFIG_LOSS_LIST_H
#define MFT_TRAINER_CONFIG_LOSS_LIST_H

/*
 * LOSS(NAME): mft_loss_NAME. A run has the first one that takes it. A row each for its flags
 * follows:
 *
 * FLAG(KIND, TYPE, DEST, INITIAL, HELP, ...): a flag of ours (flags_ours.c) that fills a field DEST
 * of struct mft_train_config, which has this type. KIND as in flags_i.h; DEST in capitals is its
 * name in C, too (dests.h). More members of the row may follow, as CHOICES().
 *
 * What a policy is trained with: the loss's own, and what its batches are made by (trainer/rl).
 */
#define MFT_LOSSES(LOSS, FLAG)                                                                     \
	LOSS(policy)                                                                               \
	FLAG(TEXT, const char *, rl_loss, "'clip'",                                                \
	     "with --perform-rl-step: clip, PPO's and GRPO's; gspo, clip of a response's mean "    \
	     "ratio; cispo, where the clipped ratio has no gradient; plain, without a ratio",      \
	     CHOICES("clip|gspo|cispo|plain"))                                                     \
	FLAG(REAL, double, rl_dual_clip, "0",                                                      \
	     "with --rl-loss clip or gspo: ratios above this have no gradient where the "          \
	     "advantage is negative; 0: there is no such limit")                                   \
	FLAG(TEXT, const char *, rl_kl_type, "'k3'",                                               \
	     "the estimate of the KL to the reference, which --grpo-kl-beta weighs",               \
	     CHOICES("k1|k2|k3"))                                                                  \
	FLAG(TEXT, const char *, rl_importance_sampling_level, "'token'",                          \
	     "with --rl-inference-logprobs-is-correction: a weight for each token, or for each "   \
	     "response, which is that of the sum of its log-probs",                                \
	     CHOICES("token|sequence"))                                                            \
	FLAG(TEXT, const char *, rl_importance_sampling_mode, "'truncate'",                        \
	     "weights beyond their limits are held at these, or what has them does not count",     \
	     CHOICES("truncate|mask"))                                                             \
	FLAG(REAL, double, rl_importance_sampling_lower, "0",                                      \
	     "the lower limit of weights; --rl-importance-sampling-truncation-coef is the upper "  \
	     "one")                                                                                \
	FLAG(TEXT, const char *, rl_loss_aggregation, "'token-mean'",                              \
	     "what a step's loss is: a mean of all tokens; of responses, of their tokens' means, " \
	     "sums or sums divided by the most tokens of a response; of prompts' token means",     \
	     CHOICES("token-mean|seq-mean-token-mean|seq-mean-token-sum|seq-mean-token-sum-norm|"  \
		     "prompt-mean"))                                                               \
	FLAG(TEXT, const char *, rl_advantage_norm, "'population'",                                \
	     "what a response's reward less its group's mean is divided by: the standard "         \
	     "deviation of the group, population (Megatron's) or std (of n - 1), or of the "       \
	     "batch; none: by nothing; loo, rloo: the mean is that of the group's others",         \
	     CHOICES("population|std|none|loo|rloo|batch"))                                        \
	LOSS(cross_entropy)

/* Of a list of two kinds of rows, the other ones. */
#define MFT_LOSSES_NOT(...)

#endif
