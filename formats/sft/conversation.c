/* A row as conversations, and each as tokens. */
#include "formats/sft/conversation_i.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"

static int add_conversation(struct mfs_talk *t, json_t *row, json_t *messages,
			    const struct mfs_talk_hooks *hooks, struct mfs_error *err)
{
	struct mfs_template_text text;
	int rc = mfs_talk_render(t, row, messages, false, &text, err);

	if (rc)
		return rc;
	rc = mfs_talk_encode(t, text.text.data, text.text.len, err);
	if (!rc)
		rc = mfs_turns_resize(&t->turns, t->part.count, err);
	if (!rc && t->part.count)
		memcpy(t->turns.ids, t->part.at, t->part.count * sizeof(*t->part.at));
	if (!rc && t->part.count)
		rc = mfs_talk_mark(t, row, messages, &text, err);
	mfs_template_text_release(&text);
	return rc ? rc : hooks->conversation(hooks->arg, &t->turns, err);
}

static int check_message(const json_t *m, const struct mfs_talk_format *format,
			 struct mfs_error *err)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool"};
	const char *role = json_string_value(json_object_get(m, "role"));
	const json_t *content = json_object_get(m, "content");

	if (!role)
		return mfs_fail(err, -EINVAL, "a message has no role");
	if (json_is_array(content) || json_is_object(content))
		return mfs_fail(err, -ENOTSUP,
				"a message's content is no text: images, and parts "
				"of texts, are not trained on");
	if (!format->template)
		return 0;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(roles); i++)
		if (!strcmp(role, roles[i]))
			return json_is_string(content)
				       ? 0
				       : mfs_fail(err, -EINVAL, "a message has no content");
	return mfs_fail(err, -EINVAL,
			"a message's role is '%s': expected system, user, assistant or tool", role);
}

/* A system message begins another conversation. */
static int add_messages(struct mfs_talk *t, json_t *row, json_t *messages,
			const struct mfs_talk_hooks *hooks, struct mfs_error *err)
{
	json_t *some = json_array(), *m;
	int rc = 0;

	for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
		m = json_array_get(messages, i);
		rc = check_message(m, t->format, err);
		if (!rc && json_array_size(some) &&
		    mfs_str_is(json_string_value(json_object_get(m, "role")), "system")) {
			rc = add_conversation(t, row, some, hooks, err);
			json_array_clear(some);
		}
		json_array_append(some, m);
	}
	if (!rc && json_array_size(some))
		rc = add_conversation(t, row, some, hooks, err);
	json_decref(some);
	return rc;
}

int mfs_row_unlike(const char *where, const char *expected, const json_t *found,
		   struct mfs_error *err)
{
	char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
	const int rc = mfs_fail(err, -EINVAL, "%s: expected %s, found %.40s", where, expected,
				text ? text : "it");

	free(text);
	return rc;
}

int mfs_row_unlike_at(const char *list, size_t i, const char *expected, const json_t *found,
		      struct mfs_error *err)
{
	char where[32];

	snprintf(where, sizeof(where), "%s[%zu]", list, i);
	return mfs_row_unlike(where, expected, found, err);
}

/* What goes to the template as it is. */
static int check_extras(const json_t *row, struct mfs_error *err)
{
	const json_t *tools = mfs_row_member(row, "tools"),
		     *more = mfs_row_member(row, "chat_template_kwargs");

	if (more && !json_is_object(more))
		return mfs_row_unlike("chat_template_kwargs", "an object or null", more, err);
	if (tools && !json_is_array(tools))
		return mfs_row_unlike("tools", "a list of objects or null", tools, err);
	for (size_t i = 0; i < json_array_size(tools); i++)
		if (!json_is_object(json_array_get(tools, i)))
			return mfs_row_unlike_at("tools", i, "an object", json_array_get(tools, i),
						 err);
	return 0;
}

int mfs_talk_row(struct mfs_talk *t, json_t *row, const struct mfs_talk_hooks *hooks,
		 struct mfs_error *err)
{
	json_t *ids = mfs_row_member(row, "input_ids"), *messages;
	int rc;

	if (json_is_array(ids))
		return mfs_talk_ids(t, row, ids, hooks, err);
	messages = mfs_row_messages(row);
	if (!messages)
		return mfs_fail(err, -EINVAL,
				"there is no conversation: expected messages, conversations, "
				"prompt and completion (or instruction and output), or input_ids");
	if (t->tokenizer) {
		rc = check_extras(row, err);
		rc = rc ? rc : add_messages(t, row, messages, hooks, err);
	} else {
		rc = mfs_fail(err, -ENODATA,
			      "messages need a tokenizer: expected --tokenizer-type SFTTokenizer "
			      "and --tokenizer-model, a directory with tokenizer.json");
	}
	json_decref(messages);
	return rc;
}
