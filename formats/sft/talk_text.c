/* Messages as text, and text as tokens. */
#include "formats/sft/conversation_i.h"

#include <errno.h>
#include <stdlib.h>

int mfs_turns_resize(struct mfs_turns *to, size_t count, struct mfs_error *err)
{
	uint32_t *ids;
	uint8_t *counts;

	if (count > to->room) {
		ids = realloc(to->ids, 2 * count * sizeof(*ids));
		to->ids = ids ? ids : to->ids;
		counts = realloc(to->counts, 2 * count);
		to->counts = counts ? counts : to->counts;
		if (!ids || !counts)
			return mfs_fail_nomem(err);
		to->room = 2 * count;
	}
	to->count = count;
	return 0;
}

/* Messages of a row as text. */
int mfs_talk_render(struct mfs_talk *t, json_t *row, json_t *messages, bool prompt,
		    struct mfs_template_text *ret, struct mfs_error *err)
{
	json_t *variables = json_copy(t->special), *tools = mfs_row_member(row, "tools");
	int rc;

	json_object_update(variables, mfs_row_member(row, "chat_template_kwargs"));
	json_object_set(variables, "messages", messages);
	json_object_set_new(variables, "tools", tools ? json_incref(tools) : json_null());
	json_object_set_new(variables, "documents", json_null());
	json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
	rc = mfs_template_render(t->template, variables, t->now, t->unknown, ret, err);
	json_decref(variables);
	if (rc == -ENODATA)
		mfs_fail_in(err, "the chat template: expected its special tokens in "
				 "tokenizer_config.json or special_tokens_map.json");
	return rc;
}

int mfs_talk_encode(struct mfs_talk *t, const char *text, size_t len, struct mfs_error *err)
{
	t->part.count = 0;
	return len ? mfs_encode(t->encoder, text, len, false, &t->part, err) : 0;
}

int mfs_talk_prompt(struct mfs_talk *t, json_t *row, struct mfs_token_ids *ids,
		    struct mfs_error *err)
{
	json_t *messages = mfs_row_messages(row);
	struct mfs_template_text text = {0};
	int rc;

	if (!messages || !json_array_size(messages))
		rc = mfs_fail(err, -EINVAL, "there is no conversation: expected messages");
	else
		rc = mfs_talk_render(t, row, messages, true, &text, err);
	if (!rc && text.text.len)
		rc = mfs_encode(t->encoder, text.text.data, text.text.len, false, ids, err);
	mfs_template_text_release(&text);
	json_decref(messages);
	return rc;
}
