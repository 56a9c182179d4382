#include "trainer/config/parse/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"
#include "trainer/config/fill.h"
#include "trainer/config/help/foreign.h"
#include "trainer/config/number.h"
#include "trainer/config/help/suggest.h"
#include "trainer/config/value.h"
#include "trainer/config/parse/yaml.h"

#define SHOWN 100 /* letters of a word in a message */

struct words {
	const char *const *list;
	size_t count, at;
};

/* A flag, and not a negative number or a lone hyphen. (argparse takes -1 and -0.5 for numbers, and
 * -1e-3 and -1_000 in its newest versions alone.) */
static bool is_flag(const char *word)
{
	double number;

	return *word == '-' && word[1] && mft_number_real(word, &number) == MFT_NUMBER_NOT;
}

static int unknown(const char *word, size_t len, struct mfs_error *err)
{
	char name[MFT_FLAG_SPELLING], spelling[MFT_FLAG_SPELLING] = "";
	const char *dest;
	bool on;

	if (len > SHOWN)
		len = SHOWN;
	snprintf(name, sizeof(name), "%.*s", (int)len, word);
	dest = mft_flag_suggest(name);
	if (dest)
		mft_flag_spelling(mft_flag_at(mft_flag_of_dest(dest)), 0, spelling, &on);
	return mfs_fail(err, -EINVAL, "unknown flag '%s'%s%s%s", name,
			dest ? "; did you mean '" : "", spelling, dest ? "'?" : "");
}

static bool takes_words(const struct mft_flag *f)
{
	return f->kind != MFT_FLAG_ON && f->kind != MFT_FLAG_OFF && f->kind != MFT_FLAG_SWITCH;
}

/* The words of a flag: what follows '=', or the next word or words that are no flag. */
static size_t words_of(const struct mft_flag *f, const char *equals, struct words *w,
		       const char *const **ret)
{
	size_t count = 0;

	if (equals)
		return 1;
	*ret = w->list + w->at;
	while (w->at < w->count && !is_flag(w->list[w->at]) && (f->words || !count)) {
		count++;
		w->at++;
	}
	return count;
}

/* The words of a flag of another program's. */
static size_t foreign_words(const struct mft_foreign *f, const char *equals, struct words *w,
			    const char *const **ret)
{
	const struct mft_flag like = {.kind = MFT_FLAG_TEXT, .words = f->words == '*' ? '*' : 0};

	return f->words == '0' && !equals ? 0 : words_of(&like, equals, w, ret);
}

static int read_foreign(const struct mft_foreign *f, const char *spelling, const char *equals,
			struct words *w, struct mft_flag_values *v, struct mfs_arena *arena,
			struct mfs_error *err)
{
	const char *const *words = &equals;
	const size_t count = foreign_words(f, equals, w, &words);

	return mft_foreign_take(f, spelling, words, count, MFT_FROM_COMMAND_LINE, v, arena, err);
}

static int read_flag(struct words *w, struct mft_flag_values *v, struct mfs_arena *arena,
		     struct mfs_error *err)
{
	const char *word = w->list[w->at++];
	const char *equals = strchr(word, '=');
	const size_t len = equals ? (size_t)(equals - word) : strlen(word);
	const char *after = equals ? equals + 1 : NULL, *const *words = &after;
	char spelling[MFT_FLAG_SPELLING];
	const struct mft_foreign *foreign;
	const struct mft_flag *f;
	size_t number, count;
	bool on;

	if (!is_flag(word))
		return mfs_fail(err, -EINVAL, "expected a flag, found '%.*s'", SHOWN, word);
	snprintf(spelling, sizeof(spelling), "%.*s", (int)len, word);
	foreign = mft_foreign_find(word, len,
				   after	      ? after
				   : w->at < w->count ? w->list[w->at]
						      : NULL);
	if (foreign)
		return read_foreign(foreign, spelling, after, w, v, arena, err);
	number = mft_flag_of_spelling(word, len, &on);
	if (number == SIZE_MAX)
		return unknown(word, len, err);
	f = mft_flag_at(number);
	v->from[number] = MFT_FROM_COMMAND_LINE;
	if (!takes_words(f)) {
		v->at[number] = (struct mft_flag_value){.type = MFT_IS_BOOL, .truth = on};
		return equals ? mfs_fail(err, -EINVAL, "%s: takes no value, found '%.*s'", spelling,
					 SHOWN, after)
			      : 0;
	}
	count = words_of(f, equals, w, &words);
	return mft_flag_value_parse(f, spelling, words, count, arena, &v->at[number], err);
}

/* "SECTION.NAME=VALUE", as a file would say it. */
static bool is_override(const char *word)
{
	const char *equals = strchr(word, '='), *dot = strchr(word, '.');

	return *word != '-' && equals && dot && dot > word && dot < equals;
}

static int read_override(const char *word, struct mft_flag_values *v, struct mfs_arena *arena,
			 struct mfs_error *err)
{
	const char *dot = strchr(word, '.'), *equals = strchr(word, '=');
	struct mfs_buf text = {0};
	int r;

	mfs_buf_printf(&text, "%.*s:\n  %.*s: %s\n", (int)(dot - word), word,
		       (int)(equals - dot - 1), dot + 1, equals + 1);
	r = text.failed ? mfs_fail_nomem(err)
			: mft_yaml_parse("the command line", text.data, text.len, v, arena, err);
	mfs_buf_release(&text);
	return r;
}

/* Remembers that a flag says something else than an override. */
static int overrule(const char *word, size_t number, struct mft_train_config *c,
		    struct mfs_error *err)
{
	struct mft_flag_other *o = mfs_arena_alloc(&c->arena, sizeof(*o)),
			      **at = &c->values->overruled;
	char spelling[MFT_FLAG_SPELLING];
	struct mfs_buf value = {0};
	bool on;

	if (!o)
		return mfs_fail_nomem(err);
	while (*at)
		at = &(*at)->next;
	mft_flag_spelling(mft_flag_at(number), 0, spelling, &on);
	mft_flag_value_show(&c->values->at[number], &value);
	if (!value.failed)
		o->name = mfs_arena_printf(&c->arena,
					   "%.80s was given, and %s, which is %s, has the last "
					   "word",
					   word, spelling, value.data);
	mfs_buf_release(&value);
	*at = o;
	return o->name ? 0 : mfs_fail_nomem(err);
}

/* What an override says, it says where nobody else does, too. */
static int tell_overruled(const char *word, struct mft_train_config *c, struct mfs_error *err)
{
	const struct mft_flag_values *v = c->values;
	struct mft_flag_values *alone;
	int r = mft_flag_values_new(&c->arena, &alone, err);

	if (!r)
		r = read_override(word, alone, &c->arena, err);
	for (size_t i = 0; i < mft_flag_count() && !r; i++)
		if (alone->from[i] == MFT_FROM_YAML && v->from[i] == MFT_FROM_COMMAND_LINE &&
		    !mft_flag_value_same(&alone->at[i], &v->at[i]))
			r = overrule(word, i, c, err);
	return r;
}

/* Overrides have the last word over a file, and flags over both. */
static int read_overrides(const char *const *words, size_t count, struct mft_train_config *c,
			  struct mfs_error *err)
{
	int r = 0;

	for (size_t i = 0; i < count && !r; i++) {
		r = read_override(words[i], c->values, &c->arena, err);
		if (!r)
			r = tell_overruled(words[i], c, err);
	}
	return r;
}

static int read_all(const char *const *words, size_t count, struct mft_train_config *c,
		    struct mfs_error *err)
{
	struct words w = {words, count, 0};
	const char *yaml, **overrides;
	size_t overridden = 0;
	int r = mft_flag_values_new(&c->arena, &c->values, err);

	overrides = mfs_arena_array(&c->arena, count ? count : 1, sizeof(*overrides));
	if (!r && !overrides)
		r = mfs_fail_nomem(err);
	while (!r && w.at < w.count)
		if (is_override(w.list[w.at]))
			overrides[overridden++] = w.list[w.at++];
		else
			r = read_flag(&w, c->values, &c->arena, err);
	yaml = r ? NULL : mft_flag_text(c->values, "yaml_cfg");
	if (yaml)
		r = mft_yaml_read(yaml, c->values, &c->arena, err);
	if (!r)
		r = read_overrides(overrides, overridden, c, err);
	return r ? r : mft_train_config_fill(c, err);
}

int mft_train_config_parse_words(const char *const *words, size_t count,
				 struct mft_train_config *ret, struct mfs_error *err)
{
	struct mft_train_config c = {0};
	int r = read_all(words, count, &c, err);

	if (r)
		mft_train_config_release(&c);
	else
		*ret = c;
	return r;
}

int mft_train_config_parse(int argc, char **argv, struct mft_train_config *ret,
			   struct mfs_error *err)
{
	return mft_train_config_parse_words((const char *const *)argv + 1,
					    argc > 0 ? (size_t)argc - 1 : 0, ret, err);
}

void mft_train_config_release(struct mft_train_config *c)
{
	mfs_arena_release(&c->arena);
	c->values = NULL;
}
