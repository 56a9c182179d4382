/* Private to trainer/rl/reward: its kinds, texts that rules compare, and JSON of those that ask. */
#ifndef MFT_TRAINER_RL_REWARD_I_H
#define MFT_TRAINER_RL_REWARD_I_H

#include "formats/base/buf.h"
#include "trainer/rl/reward/reward.h"

/* answer_rules.c; reward_NAME.c */
extern const struct mft_reward_kind mft_reward_match, mft_reward_gsm8k, mft_reward_boxed,
	mft_reward_regex, mft_reward_length, mft_reward_url, mft_reward_command;

/* Bytes of a text that somebody else has. */
struct mft_text {
	const char *at;
	size_t len;
};

struct mft_text mft_text_trim(struct mft_text t);

/* Rules, each of which finds the answer in a text; at NULL: there is none. */
struct mft_text mft_answer_all(struct mft_text of);
struct mft_text mft_answer_gsm8k(struct mft_text of);
struct mft_text mft_answer_boxed(struct mft_text of);

#define MFT_REWARD_NUMBER 64 /* bytes of one as a text */

/* A row's label: a text, or a number as it is written, in text where that is needed. -EINVAL: it is
 * neither. */
int mft_reward_label(const struct mft_reward_row *row, char text[MFT_REWARD_NUMBER],
		     struct mft_text *ret, struct mfs_error *err);
/* A row's response. -EINVAL: there is no tokenizer. */
int mft_reward_response(const struct mft_reward_row *row, struct mft_text *ret,
			struct mfs_error *err);

/* ---- reward_json.c ---- */

/* Appends a row as an object of JSON, without a newline: prompt and response where there are texts,
 * label, metadata (all of the prompt's row), prompt_ids, response_ids and finish_reason. */
void mft_reward_add_row(struct mfs_buf *to, const struct mft_reward_row *row);
/* Adds an answer to *ret: a number, or an object's member key; key NULL: its reward or its score.
 * -EPROTO: it is none of these. answer NULL: it was no JSON. */
int mft_reward_add_answer(const json_t *answer, const char *key, double *ret,
			  struct mfs_error *err);

#endif
