#include "trainer/data/sft/conversation.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/template/template.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer.h"

#define IGNORED (-100)	    /* of "labels" */
#define LARGEST (64u << 20) /* bytes of tokenizer_config.json */

/* The formats that Megatron has templates of its own for. */
struct format {
	const char *name, *template;
	size_t prefix; /* tokens of an assistant's turn that do not count */
};

static const struct format formats[] = {
	{"nemotron-h-aligned",
	 "{% for m in messages %}{% set c = m['content'] %}"
	 "{% if m['role'] == 'system' %}{{ '<SPECIAL_10>System\\n' ~ c.strip() ~ '\\n' }}"
	 "{% elif m['role'] == 'user' %}"
	 "{{ '<SPECIAL_11>User\\n' ~ c.strip() ~ '\\n<SPECIAL_11>Assistant\\n' }}"
	 "{% elif m['role'] == 'assistant' %}{{ c.strip() ~ '\\n' }}{% endif %}{% endfor %}",
	 0},
	{"nemotron-nano-v2",
	 "{% for m in messages %}{% set c = m['content'] %}{% set role = m['role'] %}"
	 "{% if role == 'assistant' %}"
	 "{{ '<SPECIAL_11>Assistant\\n' ~ c.strip() ~ '\\n<SPECIAL_12>\\n' }}"
	 "{% elif role in ('system', 'user') %}"
	 "{{ '<SPECIAL_10>System\\n' if role == 'system' else '<SPECIAL_11>User\\n' }}"
	 "{{ c.replace('/think', '').replace('/no_think', '').strip() ~ '\\n' }}"
	 "{% endif %}{% endfor %}",
	 3},
	{"identity", "{% for m in messages %}{{ m['content'] }}{% endfor %}", 0},
	{"default", NULL, 0},
};

struct mft_talk {
	const struct format *format;
	bool answers_only;
	struct mfs_tokenizer *tokenizer; /* NULL: rows have ids */
	struct mfs_encoder *encoder;
	struct mfs_template *template;
	json_t *special; /* bos_token and its like, as templates have them */
	/* those of which the files say nothing; NULL ends them */
	const char *unknown[MFS_ARRAY_SIZE(mfs_hf_token_names)];
	time_t now;
	struct mft_turns turns;	   /* of the conversation at hand */
	struct mfs_token_ids part; /* of a part of it */
};

/* ---- opening ---- */

static int find_format(const char *name, const struct format **ret, struct mfs_error *err)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(formats); i++)
		if (mfs_str_is(name, formats[i].name)) {
			*ret = &formats[i];
			return 0;
		}
	return mfs_fail(err, -EINVAL,
			"--sft-tokenizer-prompt-format: expected nemotron-h-aligned, "
			"nemotron-nano-v2, identity or default, found '%s'",
			name);
}

/* As in transformers a token that the files say is none is not defined. */
static void take_special(struct mft_talk *t, const json_t *texts)
{
	size_t unknown = 0;

	for (const char *const *name = mfs_hf_token_names; *name; name++) {
		json_t *text = json_object_get(texts, *name);

		if (!text)
			t->unknown[unknown++] = *name;
		else if (!json_is_null(text))
			json_object_set(t->special, *name, text);
	}
}

static int parse_template(struct mft_talk *t, const char *dir, const json_t *config,
			  struct mfs_error *err)
{
	const json_t *in_config = json_object_get(config, "chat_template");
	const char *from = t->format->template;
	char *file = NULL;
	size_t len = from ? strlen(from) : 0;
	int rc = 0;

	if (!from) {
		rc = mfs_hf_slurp(dir, "chat_template.jinja", MFS_TEMPLATE_LARGEST, &file, &len,
				  err);
		from = file;
		if (rc == -ENOENT && json_is_string(in_config)) {
			rc = 0;
			from = json_string_value(in_config);
			len = json_string_length(in_config);
		} else if (rc == -ENOENT) {
			return mfs_fail(err, -ENODATA,
					"%s has no chat template that is one text: another "
					"--sft-tokenizer-prompt-format brings its own",
					dir);
		}
	}
	if (!rc && (rc = mfs_template_parse(from, len, &t->template, err)))
		rc = mfs_fail_in(err, "the chat template of %s", dir);
	free(file);
	return rc;
}

static int open_tokenizer(struct mft_talk *t, const char *dir, struct mfs_error *err)
{
	json_t *texts = NULL, *config = NULL;
	int rc = mfs_tokenizer_open(dir, &t->tokenizer, err);

	if (!rc)
		rc = mfs_encoder_new(t->tokenizer, &t->encoder, err);
	if (!rc)
		rc = mfs_hf_token_texts_read(dir, &texts, &config, err);
	if (!rc) {
		take_special(t, texts);
		rc = parse_template(t, dir, config, err);
	}
	json_decref(texts);
	json_decref(config);
	return rc;
}

int mft_talk_open(const char *tokenizer, const char *format, bool answers_only, time_t now,
		  struct mft_talk **ret, struct mfs_error *err)
{
	struct mft_talk *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return mfs_fail_nomem(err);
	t->answers_only = answers_only;
	t->now = now;
	t->special = json_object();
	rc = find_format(format, &t->format, err);
	if (!rc && tokenizer)
		rc = open_tokenizer(t, tokenizer, err);
	if (rc) {
		mft_talk_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

void mft_talk_free(struct mft_talk *t)
{
	if (!t)
		return;
	mfs_template_free(t->template);
	mfs_encoder_free(t->encoder);
	mfs_tokenizer_free(t->tokenizer);
	json_decref(t->special);
	free(t->turns.ids);
	free(t->turns.counts);
	free(t->part.at);
	free(t);
}

/* ---- tokens ---- */

static int make_room(struct mft_turns *to, size_t count, struct mfs_error *err)
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
static int render(struct mft_talk *t, json_t *row, json_t *messages, bool prompt,
		  struct mfs_template_text *ret, struct mfs_error *err)
{
	json_t *variables = json_copy(t->special), *tools = json_object_get(row, "tools");
	int rc;

	json_object_update(variables, json_object_get(row, "chat_template_kwargs"));
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

static int encode(struct mft_talk *t, const char *text, size_t len, struct mfs_error *err)
{
	t->part.count = 0;
	return len ? mfs_encode(t->encoder, text, len, false, &t->part, err) : 0;
}

/* Whether the ids of a part are those that the whole begins with. */
static int check_beginning(const struct mft_talk *t, struct mfs_error *err)
{
	if (t->part.count > t->turns.count ||
	    (t->part.count &&
	     memcmp(t->part.at, t->turns.ids, t->part.count * sizeof(*t->part.at))))
		return mfs_fail(err, -ENOTSUP,
				"which tokens are an assistant's cannot be told: the beginning of "
				"the conversation has other tokens by itself than in the whole");
	return 0;
}

static void mark(struct mft_turns *turns, size_t from, size_t to, bool counts)
{
	memset(turns->counts + from, counts, to - from);
}

/* ---- which tokens count ---- */

/* Where each token's bytes end in the text. A token that ends within a character has no bytes yet:
 * it touches the character that comes next. */
static int find_places(struct mft_talk *t, const struct mfs_buf *text, size_t *ends,
		       struct mfs_error *err)
{
	struct mfs_decoder *decoder;
	struct mfs_buf out = {0};
	int rc = mfs_decoder_new(t->tokenizer, false, &decoder, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < t->turns.count && !rc; i++) {
		rc = mfs_decode(decoder, &t->turns.ids[i], 1, &out, err);
		ends[i] = out.len;
	}
	if (!rc)
		rc = mfs_decode_end(decoder, &out, err);
	if (!rc && (out.failed || out.len != text->len || memcmp(out.data, text->data, out.len)))
		rc = mfs_fail(err, -ENOTSUP,
			      "which tokens are an assistant's cannot be told: the tokenizer does "
			      "not give the text back");
	mfs_decoder_free(decoder);
	mfs_buf_release(&out);
	return rc;
}

/* Generation blocks of a template: tokens that have a byte of one, as transformers takes them. */
static int mark_spans(struct mft_talk *t, const struct mfs_template_text *text,
		      struct mfs_error *err)
{
	size_t *ends = calloc(t->turns.count, sizeof(*ends)), begin, end;
	int rc = ends ? find_places(t, &text->text, ends, err) : mfs_fail_nomem(err);

	mark(&t->turns, 0, t->turns.count, false);
	for (size_t k = 0; k < text->span_count && !rc; k++)
		for (size_t i = 0; i < t->turns.count; i++) {
			begin = i ? ends[i - 1] : 0;
			end = ends[i] > begin ? ends[i] : begin + 1;
			if (begin < text->spans[k].to && text->spans[k].from < end)
				t->turns.counts[i] = 1;
		}
	free(ends);
	return rc;
}

/* The first messages of a conversation, as ids. */
static int encode_beginning(struct mft_talk *t, json_t *row, json_t *messages, bool prompt,
			    struct mfs_error *err)
{
	struct mfs_template_text text;
	int rc = render(t, row, messages, prompt, &text, err);

	if (rc)
		return rc;
	rc = encode(t, text.text.data, text.text.len, err);
	mfs_template_text_release(&text);
	return rc ? rc : check_beginning(t, err);
}

/* An assistant's turn is what its message adds to the text that would ask for it. */
static int mark_answers(struct mft_talk *t, json_t *row, json_t *messages, struct mfs_error *err)
{
	json_t *first = json_array();
	size_t from = 0;
	int rc = 0;

	mark(&t->turns, 0, t->turns.count, false);
	for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
		json_t *m = json_array_get(messages, i);
		const bool answer =
			mfs_str_is(json_string_value(json_object_get(m, "role")), "assistant");

		if (answer)
			rc = encode_beginning(t, row, first, true, err);
		from = t->part.count;
		json_array_append(first, m);
		if (!rc && answer)
			rc = encode_beginning(t, row, first, false, err);
		if (!rc && answer && t->part.count > from)
			mark(&t->turns, from, t->part.count, true);
	}
	json_decref(first);
	return rc;
}

/* Megatron's own formats: a turn's tokens are those of its message alone. */
static int mark_turns(struct mft_talk *t, json_t *row, json_t *messages, struct mfs_error *err)
{
	size_t at = 0;
	int rc = 0;

	for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
		json_t *m = json_array_get(messages, i), *alone = json_array();
		struct mfs_template_text text = {0};
		const bool answer =
			mfs_str_is(json_string_value(json_object_get(m, "role")), "assistant");

		json_array_append(alone, m);
		rc = render(t, row, alone, false, &text, err);
		if (!rc)
			rc = encode(t, text.text.data, text.text.len, err);
		if (!rc &&
		    (t->part.count > t->turns.count - at ||
		     memcmp(t->part.at, t->turns.ids + at, t->part.count * sizeof(*t->part.at))))
			rc = mfs_fail(
				err, -EINVAL,
				"the tokens of message %zu alone are not those that it has in "
				"the conversation",
				i + 1);
		if (!rc) {
			mark(&t->turns, at, at + t->part.count, answer);
			if (answer)
				mark(&t->turns, at,
				     at + (t->format->prefix < t->part.count ? t->format->prefix
									     : t->part.count),
				     false);
			at += t->part.count;
		}
		mfs_template_text_release(&text);
		json_decref(alone);
	}
	return rc || at == t->turns.count
		       ? rc
		       : mfs_fail(err, -EINVAL, "messages have other tokens alone than together");
}

static int mark_all(struct mft_talk *t, json_t *row, json_t *messages,
		    const struct mfs_template_text *text, struct mfs_error *err)
{
	if (t->format->template)
		return mark_turns(t, row, messages, err);
	if (t->answers_only && mfs_template_marks_answers(t->template))
		return mark_spans(t, text, err);
	if (t->answers_only)
		return mark_answers(t, row, messages, err);
	mark(&t->turns, 0, t->turns.count, true);
	return 0;
}

static int add_conversation(struct mft_talk *t, json_t *row, json_t *messages,
			    const struct mft_talk_hooks *hooks, struct mfs_error *err)
{
	struct mfs_template_text text;
	int rc = render(t, row, messages, false, &text, err);

	if (rc)
		return rc;
	rc = encode(t, text.text.data, text.text.len, err);
	if (!rc)
		rc = make_room(&t->turns, t->part.count, err);
	if (!rc && t->part.count)
		memcpy(t->turns.ids, t->part.at, t->part.count * sizeof(*t->part.at));
	if (!rc && t->part.count)
		rc = mark_all(t, row, messages, &text, err);
	mfs_template_text_release(&text);
	return rc ? rc : hooks->conversation(hooks->arg, &t->turns, err);
}

/* ---- rows ---- */

static int check_message(const json_t *m, const struct format *format, struct mfs_error *err)
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
static int add_messages(struct mft_talk *t, json_t *row, json_t *messages,
			const struct mft_talk_hooks *hooks, struct mfs_error *err)
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

static int not_expected(const char *where, const char *expected, const json_t *found,
			struct mfs_error *err)
{
	char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
	const int rc = mfs_fail(err, -EINVAL, "%s: expected %s, found %.40s", where, expected,
				text ? text : "it");

	free(text);
	return rc;
}

static int not_expected_at(const char *list, size_t i, const char *expected, const json_t *found,
			   struct mfs_error *err)
{
	char where[32];

	snprintf(where, sizeof(where), "%s[%zu]", list, i);
	return not_expected(where, expected, found, err);
}

/* What a row with input_ids has. */
struct id_lists {
	const json_t *ids, *labels, *mask; /* labels, mask: NULL: not given */
};

static int check_length(const char *name, const json_t *list, const json_t *ids,
			struct mfs_error *err)
{
	char expected[64];

	if (!list || (json_is_array(list) && json_array_size(list) == json_array_size(ids)))
		return 0;
	snprintf(expected, sizeof(expected), "a list of %zu, as input_ids", json_array_size(ids));
	return not_expected(name, expected, list, err);
}

static int check_lists(const struct mft_talk *t, const struct id_lists *l, struct mfs_error *err)
{
	int rc;

	if (l->labels && l->mask)
		return mfs_fail(err, -EINVAL,
				"input_ids: expected labels or loss_mask, found both");
	if (t->answers_only && !l->labels && !l->mask)
		return mfs_fail(err, -EINVAL,
				"input_ids: expected labels or loss_mask with "
				"--sft-answer-only-loss, found neither");
	rc = check_length("labels", l->labels, l->ids, err);
	return rc ? rc : check_length("loss_mask", l->mask, l->ids, err);
}

/* Whether the loss of token i counts. */
static int take_count(const struct id_lists *l, size_t i, uint8_t *ret, struct mfs_error *err)
{
	const json_t *v = json_array_get(l->labels ? l->labels : l->mask, i);
	const json_int_t id = json_integer_value(json_array_get(l->ids, i));
	char expected[64];

	*ret = !v || json_is_true(v) || (json_is_number(v) && json_number_value(v) == 1);
	if (l->labels) {
		*ret = json_is_integer(v) && json_integer_value(v) == id;
		if (*ret || (json_is_integer(v) && json_integer_value(v) == IGNORED))
			return 0;
		snprintf(expected, sizeof(expected), "%lld, as input_ids[%zu], or %d",
			 (long long)id, i, IGNORED);
		return not_expected_at("labels", i, expected, v, err);
	}
	if (*ret || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0))
		return 0;
	return not_expected_at("loss_mask", i, "0 or 1", v, err);
}

static int add_ids(struct mft_talk *t, json_t *row, json_t *ids, const struct mft_talk_hooks *hooks,
		   struct mfs_error *err)
{
	const struct id_lists lists = {ids, json_object_get(row, "labels"),
				       json_object_get(row, "loss_mask")};
	const size_t count = json_array_size(ids);
	int rc = check_lists(t, &lists, err);

	if (!rc)
		rc = make_room(&t->turns, count, err);
	for (size_t i = 0; i < count && !rc; i++) {
		const json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > INT32_MAX)
			return not_expected_at("input_ids", i, "an id, 0 to 2^31 - 1", id, err);
		t->turns.ids[i] = (uint32_t)json_integer_value(id);
		rc = take_count(&lists, i, &t->turns.counts[i], err);
	}
	return rc ? rc : hooks->conversation(hooks->arg, &t->turns, err);
}

/* ---- other forms of conversations (varlen_dataset.py) ---- */

static json_t *first_of(const json_t *row, const char *const *names)
{
	json_t *found = NULL;

	for (; *names && !found; names++) {
		found = json_object_get(row, *names);
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
	static const char *const asks[] = {"instruction", "prompt", "query", "question", NULL};
	static const char *const says[] = {"output", "response", "completion", "answer", NULL};
	static const char *const about[] = {"input", "context", NULL};
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

/* [{"from": "human", "value": "..."}, ...]. NULL: somebody speaks whom nobody knows. */
static json_t *from_share(const json_t *turns)
{
	json_t *messages = json_array();

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

static json_t *messages_of(const json_t *row)
{
	json_t *messages = json_object_get(row, "messages");

	if (messages)
		return json_is_array(messages) ? json_incref(messages) : NULL;
	messages = json_object_get(row, "conversations");
	return messages ? from_share(messages) : from_prompt(row);
}

/* What goes to the template as it is. */
static int check_extras(const json_t *row, struct mfs_error *err)
{
	const json_t *tools = json_object_get(row, "tools"),
		     *more = json_object_get(row, "chat_template_kwargs");

	if (more && !json_is_null(more) && !json_is_object(more))
		return not_expected("chat_template_kwargs", "an object or null", more, err);
	if (tools && !json_is_null(tools) && !json_is_array(tools))
		return not_expected("tools", "a list of objects or null", tools, err);
	for (size_t i = 0; i < json_array_size(tools); i++)
		if (!json_is_object(json_array_get(tools, i)))
			return not_expected_at("tools", i, "an object", json_array_get(tools, i),
					       err);
	return 0;
}

int mft_talk_row(struct mft_talk *t, json_t *row, const struct mft_talk_hooks *hooks,
		 struct mfs_error *err)
{
	json_t *ids = json_object_get(row, "input_ids"), *messages;
	int rc;

	if (json_is_array(ids))
		return add_ids(t, row, ids, hooks, err);
	messages = messages_of(row);
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
