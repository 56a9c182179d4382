/*
 * Rewards: what responses are worth. A run has one or several kinds, whose rewards are added.
 *
 * Rules compare a response with its row's label here. Others ask a program or a server, in JSON
 * that slime's remote reward has (slime/rollout/rm_hub/__init__.py), for a whole rollout at a time.
 */
#ifndef MFT_TRAINER_RL_REWARD_H
#define MFT_TRAINER_RL_REWARD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/generate/response.h"

struct mft_reward_row {
	/* UTF-8, with lengths; NULL: there is no tokenizer. The response's is without the token
	 * that ended it. */
	const char *prompt, *response;
	size_t prompt_len, response_len;
	const uint32_t *prompt_ids, *response_ids;
	uint32_t prompt_count, response_count;
	enum mft_finish finish;
	json_t *label; /* NULL: none */
	json_t *row;   /* all of it */
};

/* How a kind rewards; its settings are its own. */
struct mft_reward_config {
	const char *const *kinds; /* by name */
	size_t count;
	const char *url;     /* of kind url */
	const char *command; /* of kind command: a line for a shell */
	const char *key;     /* of both: the member of an answer; NULL: reward or score */
	double seconds;	     /* of both: that an answer may take */
	const char *pattern; /* of kind regex: PCRE2's */
	/* of kind length: tokens that a response may have, of how many last ones each costs, and
	 * what all of them cost */
	uint32_t length, overlong_buffer;
	double overlong_factor;
};

/* One kind. */
struct mft_reward_kind {
	const char *name;
	bool wants_label; /* of each row: a text, a number, or token ids */
	/* NULL: it keeps nothing */
	int (*open)(const struct mft_reward_config *c, void **ret, struct mfs_error *err);
	void (*close)(void *self);
	/* Adds to ret [count]. -EINVAL: a row has not what the kind looks at, which the message
	 * names; -EPROTO: an answer is wrong; -ETIMEDOUT, -EIO: there was none. */
	int (*score)(void *self, const struct mft_reward_row *rows, size_t count, double *ret,
		     struct mfs_error *err);
};

struct mft_rewards;

/* -EINVAL: a kind is not known, with those that are; or it lacks a setting. */
int mft_rewards_open(const struct mft_reward_config *config, struct mft_rewards **ret,
		     struct mfs_error *err);
void mft_rewards_close(struct mft_rewards *r); /* NULL: nothing */
/* ret [count]. -ERANGE: a reward is not finite. */
int mft_rewards_score(struct mft_rewards *r, const struct mft_reward_row *rows, size_t count,
		      double *ret, struct mfs_error *err);

#endif
