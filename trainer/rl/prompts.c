#include "trainer/rl/prompts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/dataset/random/numpy.h"
#include "formats/sft/conversation.h"
#include "formats/sft/row_file.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer.h"

struct mft_prompts {
	struct mft_prompts_config config;
	struct mfs_tokenizer *tokenizer; /* NULL: prompts are ids */
	struct mfs_encoder *encoder;
	struct mfs_talk *talk; /* NULL: no prompt was messages yet */
	struct mft_prompt *list;
	uint64_t count;
	uint32_t *order[2];	 /* [count], of an even epoch and of an odd one */
	uint64_t order_epoch[2]; /* plus 1; 0: none yet */
};

/* ---- a row ---- */

/* A member by its name, with dots for objects in objects. NULL: there is none. */
static json_t *member(json_t *row, const char *key)
{
	json_t *found = json_object_get(row, key);
	const char *dot;

	while (!found && (dot = strchr(key, '.'))) {
		row = json_object_getn(row, key, (size_t)(dot - key));
		key = dot + 1;
		found = json_object_get(row, key);
	}
	return found;
}

static int take_ids(struct mft_prompt *to, const json_t *ids, struct mfs_error *err)
{
	const size_t count = json_array_size(ids);

	to->ids = calloc(count + 1, sizeof(*to->ids));
	if (!to->ids)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count; i++) {
		const json_t *id = json_array_get(ids, i);
		const json_int_t value = json_integer_value(id);

		if (!json_is_integer(id) || value < 0 || value > UINT32_MAX)
			return mfs_fail(err, -EINVAL,
					"the prompt is a list: expected token ids in it");
		to->ids[i] = (uint32_t)value;
	}
	to->count = (uint32_t)count;
	return 0;
}

static int encode(const struct mft_prompts *p, struct mft_prompt *to, const json_t *text,
		  struct mfs_error *err)
{
	struct mfs_token_ids ids = {0};
	int rc;

	if (!p->encoder)
		return mfs_fail(err, -ENODATA,
				"the prompt is a text, and there is no tokenizer: expected token "
				"ids, or --tokenizer-model");
	rc = mfs_encode(p->encoder, json_string_value(text), json_string_length(text), true, &ids,
			err);
	to->ids = ids.at;
	to->count = (uint32_t)ids.count;
	return rc;
}

static int open_talk(struct mft_prompts *p, struct mfs_error *err)
{
	int64_t now;
	int rc;

	if (p->talk)
		return 0;
	if (!p->config.tokenizer)
		return mfs_fail(err, -ENODATA,
				"the prompt is messages, and there is no tokenizer with a chat "
				"template: expected --tokenizer-model");
	rc = mfs_talk_now(&now, err);
	return rc ? rc : mfs_talk_open(p->config.tokenizer, "default", false, now, &p->talk, err);
}

/* Messages, as the chat template writes them for an answer to follow. */
static int render(struct mft_prompts *p, struct mft_prompt *to, json_t *messages,
		  struct mfs_error *err)
{
	struct mfs_token_ids ids = {0};
	json_t *row = json_copy(to->row);
	int rc = open_talk(p, err);

	json_object_set(row, "messages", messages);
	if (!rc)
		rc = mfs_talk_prompt(p->talk, row, &ids, err);
	json_decref(row);
	to->ids = ids.at;
	to->count = (uint32_t)ids.count;
	return rc;
}

static int take_prompt(struct mft_prompts *p, struct mft_prompt *to, struct mfs_error *err)
{
	json_t *prompt = member(to->row, p->config.prompt_key);

	if (json_is_string(prompt))
		return encode(p, to, prompt, err);
	if (json_is_array(prompt) && json_is_integer(json_array_get(prompt, 0)))
		return take_ids(to, prompt, err);
	if (json_is_array(prompt) && json_is_object(json_array_get(prompt, 0)))
		return render(p, to, prompt, err);
	return mfs_fail(err, -EINVAL, "'%s': expected a text, or a list of token ids or messages",
			p->config.prompt_key);
}

static int check_prompt(const struct mft_prompts *p, const struct mft_prompt *of,
			struct mfs_error *err)
{
	if (!of->count || of->count > p->config.longest)
		return mfs_fail(err, -EINVAL,
				"expected a prompt of 1 to %u tokens, since the longest response "
				"follows it within --seq-length; found %u",
				p->config.longest, of->count);
	for (uint32_t i = 0; i < of->count; i++)
		if (of->ids[i] >= p->config.vocab)
			return mfs_fail(err, -EINVAL,
					"token %u is %u: the vocabulary has 0 to %llu", i,
					of->ids[i], (unsigned long long)p->config.vocab - 1);
	return 0;
}

static int take_row(void *arg, json_t *row, struct mfs_error *err)
{
	struct mft_prompts *p = arg;
	struct mft_prompt *to;
	int rc;

	if (mfs_grow(&p->list, p->count))
		return mfs_fail_nomem(err);
	to = &p->list[p->count++];
	*to = (struct mft_prompt){.number = p->count, .row = json_incref(row)};
	if (!json_is_object(row))
		return mfs_fail(err, -EINVAL, "expected a JSON object");
	rc = take_prompt(p, to, err);
	if (!rc)
		rc = check_prompt(p, to, err);
	if (rc || !p->config.label_key)
		return rc;
	to->label = member(row, p->config.label_key);
	return to->label ? 0
			 : mfs_fail(err, -EINVAL, "it has no '%s', which --rl-label-key names",
				    p->config.label_key);
}

/* ---- the file ---- */

/* Columns of a table that are looked at. */
struct columns {
	const char *list[8];
	size_t count;
	char *own[2]; /* of the prompt and of the label */
};

/* Takes the column of a member, which is the member's name up to the first dot. */
static int add_column(struct columns *to, const char *key, char **own, struct mfs_error *err)
{
	*own = strndup(key, strcspn(key, "."));
	if (!*own)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < to->count; i++)
		if (!strcmp(to->list[i], *own))
			return 0;
	to->list[to->count++] = *own;
	return 0;
}

static int read_file(struct mft_prompts *p, struct mfs_error *err)
{
	struct columns c = {.list = {"tools", "chat_template_kwargs", "metadata"}, .count = 3};
	struct mfs_row_hooks hooks = {.arg = p, .row = take_row, .columns = c.list};
	uint64_t rows;
	int rc = add_column(&c, p->config.prompt_key, &c.own[0], err);

	if (!rc && p->config.label_key)
		rc = add_column(&c, p->config.label_key, &c.own[1], err);
	hooks.column_count = c.count;
	if (!rc)
		rc = mfs_row_file_read(p->config.path, 0, UINT64_MAX, &hooks, &rows, err);
	free(c.own[0]);
	free(c.own[1]);
	return rc;
}

static int open_tokenizer(struct mft_prompts *p, struct mfs_error *err)
{
	const int rc = p->config.tokenizer
			       ? mfs_tokenizer_open(p->config.tokenizer, &p->tokenizer, err)
			       : 0;

	return rc || !p->tokenizer ? rc : mfs_encoder_new(p->tokenizer, &p->encoder, err);
}

int mft_prompts_open(const struct mft_prompts_config *config, struct mft_prompts **ret,
		     struct mfs_error *err)
{
	struct mft_prompts *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return mfs_fail_nomem(err);
	p->config = *config;
	rc = open_tokenizer(p, err);
	if (!rc)
		rc = read_file(p, err);
	if (!rc && (!p->count || p->count > UINT32_MAX))
		rc = mfs_fail(err, -ENODATA, "%s has no prompts, or too many", config->path);
	if (!rc) {
		for (int i = 0; i < 2; i++)
			p->order[i] = calloc(p->count, sizeof(*p->order[i]));
		rc = p->order[0] && p->order[1] ? 0 : mfs_fail_nomem(err);
	}
	if (rc) {
		mft_prompts_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void mft_prompts_free(struct mft_prompts *p)
{
	if (!p)
		return;
	for (uint64_t i = 0; i < p->count; i++) {
		free(p->list[i].ids);
		json_decref(p->list[i].row);
	}
	free(p->list);
	free(p->order[0]);
	free(p->order[1]);
	mfs_talk_free(p->talk);
	mfs_encoder_free(p->encoder);
	mfs_tokenizer_free(p->tokenizer);
	free(p);
}

uint64_t mft_prompts_count(const struct mft_prompts *p)
{
	return p->count;
}

/* ---- the order ---- */

static void shuffle(struct mft_prompts *p, uint64_t epoch)
{
	uint32_t *order = p->order[epoch % 2];
	struct mfs_numpy_random random;

	for (uint64_t i = 0; i < p->count; i++)
		order[i] = (uint32_t)i;
	mfs_numpy_random_seed(&random, p->config.seed + (uint32_t)epoch);
	mfs_numpy_shuffle32(&random, order, p->count);
	p->order_epoch[epoch % 2] = epoch + 1;
}

const struct mft_prompt *mft_prompts_draw(struct mft_prompts *p, uint64_t n)
{
	const uint64_t epoch = n / p->count;

	if (p->order_epoch[epoch % 2] != epoch + 1)
		shuffle(p, epoch);
	return &p->list[p->order[epoch % 2][n % p->count]];
}
