#include "trainer/generate/prompt_list.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/sft/conversation.h"
#include "formats/sft/row_file.h"

struct reading {
	const struct mft_train_config *config;
	const struct mfs_tokenizer *tokenizer;
	const char *dir;
	struct mft_prompt_list *to;
	struct mfs_encoder *encoder;
	struct mfs_talk *talk; /* NULL: no prompt was messages yet */
};

/* ---- one prompt ---- */

/* Takes ids, and the text, which may be NULL. */
static int add(struct reading *r, struct mfs_token_ids *ids, const char *text,
	       struct mfs_error *err)
{
	struct mft_prompt_list *p = r->to;
	const uint64_t seed = (uint64_t)r->config->seed << 32 | (uint32_t)p->count;
	const size_t room = 2 * p->room + 8;
	struct mft_request *list = p->list;
	char **texts = p->texts;

	if (p->count == p->room) {
		list = realloc(p->list, room * sizeof(*list));
		p->list = list ? list : p->list;
		texts = list ? realloc(p->texts, room * sizeof(*texts)) : NULL;
		p->texts = texts ? texts : p->texts;
		p->room = texts ? room : p->room;
	}
	if (!list || !texts || (text && !(text = strdup(text)))) {
		free(ids->at);
		return mfs_fail_nomem(err);
	}
	p->list[p->count] = (struct mft_request){ids->at, (uint32_t)ids->count, seed};
	p->texts[p->count++] = (char *)(uintptr_t)text;
	return 0;
}

static int add_text(struct reading *r, const char *text, struct mfs_error *err)
{
	struct mfs_token_ids ids = {0};
	int rc = 0;

	if (!r->tokenizer)
		return mfs_fail(err, -ENODATA,
				"there is no tokenizer with the checkpoint: expected "
				"--tokenizer-model, or prompts as input_ids");
	if (!r->encoder)
		rc = mfs_encoder_new(r->tokenizer, &r->encoder, err);
	if (!rc)
		rc = mfs_encode(r->encoder, text, strlen(text), true, &ids, err);
	if (!rc)
		return add(r, &ids, text, err);
	free(ids.at);
	return rc;
}

static int add_messages(struct reading *r, json_t *row, struct mfs_error *err)
{
	struct mfs_token_ids ids = {0};
	int64_t now;
	int rc = 0;

	if (!r->dir)
		return mfs_fail(err, -ENODATA,
				"there is no tokenizer with a chat template: expected "
				"--tokenizer-model DIR");
	if (!r->talk)
		rc = mfs_talk_now(&now, err);
	if (!rc && !r->talk)
		rc = mfs_talk_open(r->dir, "default", false, now, &r->talk, err);
	if (!rc)
		rc = mfs_talk_prompt(r->talk, row, &ids, err);
	if (!rc)
		return add(r, &ids, NULL, err);
	free(ids.at);
	return rc;
}

static int add_ids(struct reading *r, const json_t *list, struct mfs_error *err)
{
	const size_t count = json_array_size(list);
	struct mfs_token_ids ids = {.at = calloc(count + 1, sizeof(*ids.at)), .count = count};

	if (!ids.at)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count; i++) {
		const json_t *id = json_array_get(list, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > UINT32_MAX) {
			free(ids.at);
			return mfs_fail(err, -EINVAL, "input_ids[%zu]: expected a token's id", i);
		}
		ids.at[i] = (uint32_t)json_integer_value(id);
	}
	return add(r, &ids, NULL, err);
}

static int add_row(void *arg, json_t *row, struct mfs_error *err)
{
	const json_t *text = json_object_get(row, "prompt"),
		     *ids = json_object_get(row, "input_ids");

	if (!text)
		text = json_object_get(row, "text");
	if (json_is_array(ids))
		return add_ids(arg, ids, err);
	if (json_is_string(text) && strlen(json_string_value(text)) == json_string_length(text))
		return add_text(arg, json_string_value(text), err);
	if (json_is_array(json_object_get(row, "messages")))
		return add_messages(arg, row, err);
	return mfs_fail(err, -EINVAL,
			"expected prompt or text, a string without NUL, messages or input_ids");
}

/* ---- where they come from ---- */

static int add_line(struct reading *r, const char *line, struct mfs_error *err)
{
	json_error_t why;
	json_t *row;
	int rc;

	if (line[strspn(line, " \t")] != '{')
		return add_text(r, line, err);
	row = json_loads(line, 0, &why);
	if (!row)
		return mfs_fail(err, -EINVAL, "no JSON: %s", why.text);
	rc = add_row(r, row, err);
	json_decref(row);
	return rc;
}

static int read_standard_input(struct reading *r, struct mfs_error *err)
{
	unsigned long long number = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int rc = 0;

	while (!rc && (len = getline(&line, &room, stdin)) > 0) {
		number++;
		line[len - (line[len - 1] == '\n')] = '\0';
		if (*line)
			rc = add_line(r, line, err);
	}
	free(line);
	return rc ? mfs_fail_in(err, "standard input, line %llu", number) : 0;
}

static int read_all(struct reading *r, struct mfs_error *err)
{
	const struct mft_generate_config *g = &r->config->generate;
	const struct mfs_row_hooks hooks = {.arg = r, .row = add_row};
	uint64_t rows;
	int rc = 0;

	if (g->prompts.count && g->prompt_file)
		return mfs_fail(err, -EINVAL, "--prompts and --prompt-file exclude each other");
	for (size_t i = 0; i < g->prompts.count && !rc; i++)
		rc = add_text(r, g->prompts.list[i], err);
	if (g->prompt_file)
		return mfs_row_file_read(g->prompt_file, 0, UINT64_MAX, &hooks, &rows, err);
	return rc || g->prompts.count ? rc : read_standard_input(r, err);
}

int mft_prompt_list_read(const struct mft_train_config *config,
			 const struct mfs_tokenizer *tokenizer, const char *dir,
			 struct mft_prompt_list *ret, struct mfs_error *err)
{
	struct reading r = {config, tokenizer, dir, ret, NULL, NULL};
	int rc;

	*ret = (struct mft_prompt_list){0};
	rc = read_all(&r, err);
	if (!rc && !ret->count)
		rc = mfs_fail(err, -ENODATA, "--generate: there is no prompt");
	mfs_talk_free(r.talk);
	mfs_encoder_free(r.encoder);
	return rc;
}

void mft_prompt_list_release(struct mft_prompt_list *p)
{
	for (size_t i = 0; i < p->count; i++) {
		free((void *)(uintptr_t)p->list[i].tokens);
		free(p->texts[i]);
	}
	free(p->list);
	free(p->texts);
	*p = (struct mft_prompt_list){0};
}
