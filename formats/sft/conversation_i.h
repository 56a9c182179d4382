/* Private to formats/sft: how a row becomes tokens. */
#ifndef MFS_FORMATS_SFT_CONVERSATION_I_H
#define MFS_FORMATS_SFT_CONVERSATION_I_H

#include "formats/base/array.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/template/template.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/sft/conversation.h"

/* A value of --sft-tokenizer-prompt-format. */
struct mfs_talk_format {
	const char *name, *template; /* NULL: the tokenizer's */
	size_t prefix;		     /* tokens of an assistant's turn that do not count */
};

struct mfs_talk {
	const struct mfs_talk_format *format;
	bool answers_only;
	struct mfs_tokenizer *tokenizer; /* NULL: rows have ids */
	struct mfs_encoder *encoder;
	struct mfs_template *template;
	json_t *special; /* bos_token and its like, as templates have them */
	/* those of which the files say nothing; NULL ends them */
	const char *unknown[MFS_ARRAY_SIZE(mfs_hf_token_names)];
	time_t now;
	struct mfs_turns turns;	   /* of the conversation at hand */
	struct mfs_token_ids part; /* of a part of it */
};

/* ---- text and tokens; talk_text.c ---- */

/* Makes count the number of tokens; those that are new have no values yet. */
int mfs_turns_resize(struct mfs_turns *to, size_t count, struct mfs_error *err);
/* Renders messages of a row, which has tools and chat_template_kwargs. prompt: what asks for an
 * answer follows. The caller releases *ret. */
int mfs_talk_render(struct mfs_talk *t, json_t *row, json_t *messages, bool prompt,
		    struct mfs_template_text *ret, struct mfs_error *err);
/* Sets t->part to the ids of a text. */
int mfs_talk_encode(struct mfs_talk *t, const char *text, size_t len, struct mfs_error *err);

/* ---- which tokens count; talk_mark.c ---- */

/* Marks t->turns, which are the ids of text, which messages were rendered as. -ENOTSUP: which
 * tokens are an assistant's cannot be told. */
int mfs_talk_mark(struct mfs_talk *t, json_t *row, json_t *messages,
		  const struct mfs_template_text *text, struct mfs_error *err);

/* ---- rows; conversation.c, row_messages.c, row_ids.c, row_packs.c ---- */

/* Sets the error "WHERE: expected EXPECTED, found FOUND", and returns -EINVAL. */
int mfs_row_unlike(const char *where, const char *expected, const json_t *found,
		   struct mfs_error *err);
/* mfs_row_unlike() of LIST[i]. */
int mfs_row_unlike_at(const char *list, size_t i, const char *expected, const json_t *found,
		      struct mfs_error *err);
/* What a row may have that is looked at. */
extern const char *const mfs_row_members[];
extern const size_t mfs_row_member_count;
/* A member of a row. NULL: there is none, or it is null, as a table has it where a row has no value
 * in a column. */
json_t *mfs_row_member(const json_t *row, const char *name);
/* The messages that a row has in one of the forms that conversation.h names, as a new list of
 * {"role", "content"}. NULL: it has none. */
json_t *mfs_row_messages(const json_t *row);
/* Passes on a row whose input_ids are ids. */
int mfs_talk_ids(struct mfs_talk *t, json_t *row, json_t *ids, const struct mfs_talk_hooks *hooks,
		 struct mfs_error *err);
/* Checks what a packed row has next to its input_ids. */
int mfs_row_check_packs(const json_t *row, struct mfs_error *err);
/* Passes on t->turns, whose counts are still those of loss_mask, as documents that begin at
 * seq_start_id. */
int mfs_talk_packs(struct mfs_talk *t, const json_t *starts, const struct mfs_talk_hooks *hooks,
		   struct mfs_error *err);

#endif
