/* Private to trainer/loop/rl*.c. */
#ifndef MFT_TRAINER_LOOP_RL_I_H
#define MFT_TRAINER_LOOP_RL_I_H

#include <sys/types.h>

#include "formats/base/buf.h"
#include "trainer/generate/generate.h"
#include "trainer/loop/rl.h"
#include "trainer/rl/bins.h"
#include "trainer/rl/engine/ahead.h"
#include "trainer/rl/engine/engine.h"
#include "trainer/rl/feed.h"
#include "trainer/rl/prompts.h"
#include "trainer/rl/reward/reward.h"
#include "trainer/rl/rollout.h"

/* What the log says of a rollout. */
struct mft_rl_numbers {
	double reward, reward_std; /* of all responses */
	double length;		   /* tokens of a response */
	double truncated; /* share of responses that --inference-max-seq-length has ended */
	double same;	  /* share of groups whose rewards are all equal */
	double generate_s, reward_s, log_probs_s;
	/* with engines: seconds to save the weights, to fetch them, and that engines paused */
	double save_s, ahead_s, paused_s;
	uint64_t sync_bytes;
};

struct mft_rl {
	struct mft_prompts *prompts;
	struct mft_rewards *rewards;
	struct mfs_tokenizer *tokenizer; /* NULL: rewards get no text */
	struct mft_sampler *sampler;	 /* NULL: engines answer */
	/* Processes that share a training sequence have prompts of their own. */
	struct mft_train_config sampler_config;
	struct mft_parallel sampler_parallel;
	/* of the first process: engines, and whom it tells of weights meanwhile */
	struct mft_engines *engines, *told;
	struct mft_ahead *ahead;
	uint64_t asked_end; /* rollouts before it have been asked for */
	struct mft_saver *sync_saver;
	struct mft_train_config sync_config; /* the saver's */
	bool saved;
	uint64_t saved_version;
	pid_t delta; /* mcorefs delta, which is at work; 0: it is not */
	bool no_more_deltas;
	struct mft_sampling sampling;
	uint32_t *stops; /* the sampling's */
	struct mft_rollout rollout;
	bool has_rollout;
	bool dropped;  /* a signal has come before it was whole */
	bool *trains;  /* [responses]: a response's tokens count */
	uint64_t done; /* steps of the rollout */
	struct mft_feed *feed;
	struct mft_bins bins;	 /* of the step */
	double *weight;		 /* [responses] */
	uint32_t *list, *places; /* [responses]: scratch */
	struct mft_rl_numbers numbers;
	FILE *samples;		     /* --rl-log-samples; NULL: none */
	struct mfs_buf sample_lines; /* of the rollout, which may be dropped yet */
};

/* rl.c: tokens that the model has, without padding */
uint64_t mft_rl_vocab(const struct mft_trainer *t);
/* rl_rollout.c: the rollout that begins at the run's iteration, or it is dropped. */
int mft_rl_make_rollout(struct mft_trainer *t, struct mfs_error *err);
bool mft_rl_stops(void); /* a signal has come here that ends the run */
/* rl_sync.c: the weights as they are, for the engines */
int mft_rl_open_sync(struct mft_trainer *t, struct mfs_error *err);
int mft_rl_save_weights(struct mft_trainer *t, struct mfs_error *err);
int mft_rl_sync(struct mft_trainer *t, struct mfs_error *err);
/* rl_delta.c: of the first process. Begins to write what changed since the version `before`; waits
 * for that. */
void mft_rl_begin_delta(struct mft_trainer *t, uint64_t before);
void mft_rl_await_delta(struct mft_rl *rl);
/* rl_rewards.c: rewards; and what people look at: a line for each response that was rewarded. */
int mft_rl_reward(struct mft_trainer *t, struct mfs_error *err);
int mft_rl_write_samples(struct mft_trainer *t, struct mfs_error *err);
/* rl_passes.c: fills rows of log-probs (rollout.h) of the weights as they are, of all responses
 * that train. */
int mft_rl_log_probs(struct mft_trainer *t, float *rows, struct mfs_error *err);
/* rl_reference.c: of the reference, to the rollout's rows. */
int mft_rl_reference(struct mft_trainer *t, struct mfs_error *err);
/* Puts responses list[0..count) into bins, and makes them what the feed feeds. */
int mft_rl_pack(struct mft_trainer *t, uint32_t count, struct mfs_error *err);
/* rl_verify.c: whether engines have the weights that the rollout's old log-probs are of */
int mft_rl_verify(struct mft_trainer *t, struct mfs_error *err);
/* rl_log.c */
void mft_rl_log(struct mft_trainer *t);

#endif
