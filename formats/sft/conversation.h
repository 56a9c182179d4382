/*
 * A row of training data as tokens of which some count: conversations by a chat template, or ids
 * that somebody else has made.
 *
 * Sources: megatron/core/tokenizers/text/libraries/sft_tokenizer.py: tokenize_conversation;
 * megatron/training/datasets/sft_dataset.py: _split_conversations; varlen_dataset.py.
 */
#ifndef MFS_FORMATS_SFT_CONVERSATION_H
#define MFS_FORMATS_SFT_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "formats/base/error.h"

/* How many tokens there are, and for each its id and whether its loss counts as a label.
 * Zero-filled at first; free() both at the end. */
struct mfs_turns {
	uint32_t *ids;
	uint8_t *counts;
	size_t count, room;
};

struct mfs_talk;

/*
 * tokenizer: the directory of an HF tokenizer, with its chat template; NULL: rows have input_ids.
 * format: --sft-tokenizer-prompt-format. answers_only: with `default`, what assistants say counts
 * alone, by the template's generation blocks, or by rendering a conversation's beginnings. now: of
 * templates that ask for the day. -EINVAL, -ENOTSUP: as tokenizers and templates; or the format is
 * not known.
 */
int mfs_talk_open(const char *tokenizer, const char *format, bool answers_only, time_t now,
		  struct mfs_talk **ret, struct mfs_error *err);
void mfs_talk_free(struct mfs_talk *t); /* NULL: nothing */

/* Called for each conversation of a row, which has one or, from each system message on, several. */
struct mfs_talk_hooks {
	void *arg;
	int (*conversation)(void *arg, const struct mfs_turns *turns, struct mfs_error *err);
};

/*
 * A row is an object: {"messages": [{"role", "content"}, ...]}, with tools and
 * chat_template_kwargs if it likes; the same as {"conversations": [{"from", "value"}, ...]}, or as
 * prompt and completion; or {"input_ids": [...]} with "labels" (-100: it does not count) or
 * "loss_mask" (1: it counts); or, as a packed sample, input_ids of several documents with
 * "seq_start_id" and a "loss_mask" of labels (row_packs.c), each of which is passed on. A member
 * that is null is not there, since rows of tables have every column. -EINVAL: it is none of these,
 * or has other values than these; -ENOTSUP: a message that is no text; -ENODATA: there is no
 * tokenizer, or the template writes a special token of which its files say nothing.
 */
int mfs_talk_row(struct mfs_talk *t, json_t *row, const struct mfs_talk_hooks *hooks,
		 struct mfs_error *err);
/* Appends the ids of a row's messages, and of what asks for an answer after them
 * (add_generation_prompt). -EINVAL: it has none; otherwise as mfs_talk_row(). */
struct mfs_token_ids;
int mfs_talk_prompt(struct mfs_talk *t, json_t *row, struct mfs_token_ids *ids,
		    struct mfs_error *err);
/* A row is a packed sample, or claims to be one. */
bool mfs_row_is_packed(const json_t *row);

/* What templates have as now: SOURCE_DATE_EPOCH of the environment, with which a text can be made
 * again, or the time. In seconds since 1970. -EINVAL: the former is no time. */
int mfs_talk_now(int64_t *ret, struct mfs_error *err);

#endif
