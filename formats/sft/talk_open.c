/* A tokenizer and the template that goes with it. */
#include "formats/sft/conversation_i.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/str.h"
#include "formats/tokenizer/read/tokenizer_open.h"

/* The formats that Megatron has templates of its own for. */
static const struct mfs_talk_format formats[] = {
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

static int find_format(const char *name, const struct mfs_talk_format **ret, struct mfs_error *err)
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
static void take_special(struct mfs_talk *t, const json_t *texts)
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

static int parse_template(struct mfs_talk *t, const char *dir, const json_t *config,
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

static int open_tokenizer(struct mfs_talk *t, const char *dir, struct mfs_error *err)
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

int mfs_talk_open(const char *tokenizer, const char *format, bool answers_only, time_t now,
		  struct mfs_talk **ret, struct mfs_error *err)
{
	struct mfs_talk *t = calloc(1, sizeof(*t));
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
		mfs_talk_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

void mfs_talk_free(struct mfs_talk *t)
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

int mfs_talk_now(int64_t *ret, struct mfs_error *err)
{
	const char *given = getenv("SOURCE_DATE_EPOCH");
	char *end;

	*ret = time(NULL);
	if (!given)
		return 0;
	errno = 0;
	*ret = strtoll(given, &end, 10);
	/* Years have four digits. */
	if (errno || end == given || *end || *ret < 0 || *ret > 253402300799)
		return mfs_fail(err, -EINVAL,
				"SOURCE_DATE_EPOCH: expected seconds since 1970, found '%s'",
				given);
	return 0;
}
