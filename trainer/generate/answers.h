/* Answers to prompts, printed: as text, or as JSON lines. */
#ifndef MFT_TRAINER_GENERATE_ANSWERS_H
#define MFT_TRAINER_GENERATE_ANSWERS_H

#include <stdbool.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/tokenizer.h"
#include "trainer/generate/prompt_list.h"
#include "trainer/generate/response.h"

/* The text of a response, without special tokens and the token that has ended it. */
int mft_answer_text(const struct mfs_tokenizer *tokenizer, const struct mft_response *r,
		    struct mfs_buf *ret, struct mfs_error *err);

/* Appends a line {prompt, text, token_ids, log_probs, finish_reason} of prompt i: prompt is there
 * if it was a text, text if there is a tokenizer (else NULL), log_probs if they are wanted. */
int mft_answer_line(const struct mft_prompt_list *prompts, size_t i,
		    const struct mfs_tokenizer *tokenizer, const struct mft_response *r,
		    bool log_probs, struct mfs_buf *ret, struct mfs_error *err);

#endif
