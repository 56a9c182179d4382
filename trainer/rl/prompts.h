/*
 * Prompts of a run of reinforcement learning: rows of a file of JSON lines or of a table, in an
 * order that the run's seed gives.
 *
 * A row is an object. Its prompt is a text, token ids, or messages for the tokenizer's chat
 * template; its label is what a reward is told of the right answer. Names of members may go into
 * objects by dots: reward_model.ground_truth (verl, SkyRL).
 */
#ifndef MFT_TRAINER_RL_PROMPTS_H
#define MFT_TRAINER_RL_PROMPTS_H

#include <jansson.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mft_prompts_config {
	const char *path;
	const char *prompt_key, *label_key; /* label_key NULL: rows have none */
	const char *tokenizer;		    /* a directory; NULL: prompts are token ids */
	uint64_t vocab;			    /* ids are less */
	uint32_t longest;		    /* tokens of a prompt, at most */
	uint32_t seed;
};

struct mft_prompt {
	uint32_t *ids;
	uint32_t count;
	uint64_t number;     /* of the row, from 1 on */
	json_t *row, *label; /* label NULL: none */
};

struct mft_prompts;

/* -EINVAL: a row is not as above, with the file and the line or row; -ENODATA: there are none, or a
 * prompt needs a tokenizer. */
int mft_prompts_open(const struct mft_prompts_config *config, struct mft_prompts **ret,
		     struct mfs_error *err);
void mft_prompts_free(struct mft_prompts *p); /* NULL: nothing */
uint64_t mft_prompts_count(const struct mft_prompts *p);

/* The prompt number n of the run, 0, 1, ...: each epoch has all rows, in an order of its own. One
 * thread. */
const struct mft_prompt *mft_prompts_draw(struct mft_prompts *p, uint64_t n);

#endif
