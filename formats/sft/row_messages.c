/* The forms of conversations (megatron/training/datasets/varlen_dataset.py). */
#include "formats/sft/conversation_i.h"

#include "formats/base/str.h"

#define ASKS  "instruction", "prompt", "query", "question"
#define SAYS  "output", "response", "completion", "answer"
#define ABOUT "input", "context"

const char *const mfs_row_members[] = {
	"input_ids",
	"labels",
	"loss_mask",
	"seq_start_id",
	"messages",
	"conversations",
	ASKS,
	SAYS,
	ABOUT,
	"tools",
	"chat_template_kwargs",
};
const size_t mfs_row_member_count = MFS_ARRAY_SIZE(mfs_row_members);

json_t *mfs_row_member(const json_t *row, const char *name)
{
	json_t *found = json_object_get(row, name);

	return json_is_null(found) ? NULL : found;
}

static json_t *first_of(const json_t *row, const char *const *names)
{
	json_t *found = NULL;

	for (; *names && !found; names++) {
		found = mfs_row_member(row, *names);
		if (json_is_string(found) && !json_string_length(found))
			found = NULL;
	}
	return found;
}

static void say(json_t *messages, const char *role, json_t *content)
{
	json_t *m = json_object();

	json_object_set_new(m, "role", json_string(role));
	json_object_set(m, "content", content);
	json_array_append_new(messages, m);
}

/* An instruction, with what it is about, and its answer; each a text, or a list of messages. */
static json_t *from_prompt(const json_t *row)
{
	static const char *const asks[] = {ASKS, NULL};
	static const char *const says[] = {SAYS, NULL};
	static const char *const about[] = {ABOUT, NULL};
	json_t *ask = first_of(row, asks), *answer = first_of(row, says),
	       *more = first_of(row, about), *messages, *both;

	if (json_is_array(ask) && json_is_array(answer)) {
		messages = json_copy(ask);
		json_array_extend(messages, answer);
		return messages;
	}
	if (!json_is_string(ask) || !json_is_string(answer))
		return NULL;
	messages = json_array();
	both = json_is_string(more)
		       ? json_sprintf("%s\n\n%s", json_string_value(ask), json_string_value(more))
		       : json_incref(ask);
	say(messages, "user", both);
	say(messages, "assistant", answer);
	json_decref(both);
	return messages;
}

static const char *role_of(const char *from)
{
	static const char *const roles[][2] = {
		{"human", "user"},	    {"user", "user"},	    {"gpt", "assistant"},
		{"assistant", "assistant"}, {"model", "assistant"}, {"chatgpt", "assistant"},
		{"bing", "assistant"},	    {"bard", "assistant"},  {"system", "system"},
		{"tool", "tool"},	    {"function", "tool"},   {"observation", "tool"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(roles); i++)
		if (mfs_str_is(from, roles[i][0]))
			return roles[i][1];
	return NULL;
}

/* [{"from": "human", "value": "..."}, ...]. NULL: it is no list, or somebody speaks whom nobody
 * knows. */
static json_t *from_share(const json_t *turns)
{
	json_t *messages;

	if (!json_is_array(turns))
		return NULL;
	messages = json_array();
	for (size_t i = 0; i < json_array_size(turns); i++) {
		const json_t *turn = json_array_get(turns, i);
		const char *role = role_of(json_string_value(json_object_get(turn, "from")));

		if (!role) {
			json_decref(messages);
			return NULL;
		}
		say(messages, role, json_object_get(turn, "value"));
	}
	return messages;
}

json_t *mfs_row_messages(const json_t *row)
{
	json_t *messages = mfs_row_member(row, "messages");

	if (messages)
		return json_is_array(messages) ? json_incref(messages) : NULL;
	messages = mfs_row_member(row, "conversations");
	return messages ? from_share(messages) : from_prompt(row);
}
