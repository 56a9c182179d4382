/* Prompts that a person gives: as words of the command line, in a file, or on standard input. */
#ifndef MFT_TRAINER_GENERATE_PROMPT_LIST_H
#define MFT_TRAINER_GENERATE_PROMPT_LIST_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/tokenizer/tokenizer.h"
#include "trainer/config/config.h"
#include "trainer/generate/response.h"

struct mft_prompt_list {
	struct mft_request *list; /* [count] */
	char **texts;		  /* [count]; NULL: the prompt is messages or ids */
	size_t count, room;
};

/* tokenizer, dir: NULL: prompts are ids alone. dir has the chat template. Each line of the file is
 * an object with prompt or text, messages or input_ids; of standard input it may be a text, too.
 * Seeds are of --seed and the prompt's number. -ENODATA: there is no prompt, or no tokenizer for
 * one; -EINVAL, with the line: it is none. Release *ret in any case. */
int mft_prompt_list_read(const struct mft_train_config *config,
			 const struct mfs_tokenizer *tokenizer, const char *dir,
			 struct mft_prompt_list *ret, struct mfs_error *err);
void mft_prompt_list_release(struct mft_prompt_list *p);

#endif
