#include "trainer/config/help/foreign.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trainer/config/number.h"

#define MOST_WORDS 16 /* that a flag becomes */

/* ---- rows ---- */

static char plain(char c)
{
	return c == '_' ? '-' : c;
}

static bool is_named(const struct mft_foreign *f, const char *name, size_t len)
{
	const size_t wanted = strcspn(f->name, "*");

	if (f->name[wanted] ? len < wanted : len != wanted)
		return false;
	for (size_t i = 0; i < wanted; i++)
		if (plain(name[i]) != plain(f->name[i]))
			return false;
	return true;
}

const struct mft_foreign *mft_foreign_find(const char *name, size_t len, const char *word)
{
	for (size_t i = 0; i < mft_foreign_count; i++) {
		const struct mft_foreign *f = &mft_foreign_table[i];

		if (is_named(f, name, len) &&
		    (!f->values || (word && mft_flag_is_choice(f->values, word, strlen(word)))))
			return f;
	}
	return NULL;
}

/* ---- what it becomes ---- */

/* '@' and "@-1" of the flag's own word; anything else is itself. */
static int put_in(const char *part, const char *spelling, const char *word, struct mfs_arena *arena,
		  const char **ret, struct mfs_error *err)
{
	enum mft_number_status found;
	int64_t number;

	*ret = part;
	if (*part != '@')
		return 0;
	*ret = word;
	if (!part[1])
		return 0;
	found = mft_number_int(word, &number);
	if (found != MFT_NUMBER_OK)
		return mfs_fail(err, -EINVAL, "%s: expected %s, found '%.80s'", spelling,
				mft_number_expected(found, true), word);
	*ret = mfs_arena_printf(arena, "%lld%s", (long long)number - 1, part + 3);
	return *ret ? 0 : mfs_fail_nomem(err);
}

/* parts: a flag of Megatron's, and the words that follow it. */
static int set(const char *spelling, const char *const *parts, size_t count, bool weak,
	       enum mft_flag_source from, struct mft_flag_values *v, struct mfs_arena *arena,
	       struct mfs_error *err)
{
	struct mft_flag_value value = {.type = MFT_IS_BOOL};
	bool on;
	const size_t number = mft_flag_of_spelling(parts[0], strlen(parts[0]), &on);
	int r = 0;

	value.truth = on;
	if (count > 1)
		r = mft_flag_value_parse(mft_flag_at(number), spelling, parts + 1, count - 1, arena,
					 &value, err);
	if (r || v->from[number] > (unsigned char)(weak ? MFT_FROM_DEFAULT : from))
		return r;
	v->at[number] = value;
	/* The last one that is given counts. */
	v->from[number] = weak ? MFT_FROM_YAML : from;
	return 0;
}

static int become(const struct mft_foreign *f, const char *spelling, const char *word,
		  enum mft_flag_source from, struct mft_flag_values *v, struct mfs_arena *arena,
		  struct mfs_error *err)
{
	char *text = mfs_arena_strndup(arena, f->becomes, strlen(f->becomes)), *rest = NULL;
	const char *parts[MOST_WORDS];
	size_t count = 0;
	bool weak = false;
	int r = text ? 0 : mfs_fail_nomem(err);

	for (char *part = text ? strtok_r(text, " ", &rest) : NULL; part && !r;
	     part = strtok_r(NULL, " ", &rest)) {
		const bool begins = *part == '?' || !strncmp(part, "--", 2);

		if (begins && count) {
			r = set(spelling, parts, count, weak, from, v, arena, err);
			count = 0;
		}
		if (begins)
			weak = *part == '?';
		if (!r)
			r = put_in(part + (*part == '?'), spelling, word, arena, &parts[count++],
				   err);
	}
	return r || !count ? r : set(spelling, parts, count, weak, from, v, arena, err);
}

/* Of what a flag becomes, how a person reads it, without what others may say. */
static int show(const struct mft_foreign *f, const char *spelling, const char *word,
		struct mfs_arena *arena, const char **ret, struct mfs_error *err)
{
	char *text = mfs_arena_strndup(arena, f->becomes, strlen(f->becomes)), *rest = NULL;
	const char *put;
	int r = 0;

	*ret = text ? "" : NULL;
	for (char *part = text ? strtok_r(text, " ", &rest) : NULL; part && *part != '?' && !r;
	     part = strtok_r(NULL, " ", &rest)) {
		r = put_in(part, spelling, word, arena, &put, err);
		if (!r)
			*ret = mfs_arena_printf(arena, "%s%s%s", *ret, **ret ? " " : "", put);
		if (!*ret)
			break;
	}
	return r || *ret ? r : mfs_fail_nomem(err);
}

/* ---- notes ---- */

static int note(const struct mft_foreign *f, const char *spelling, const char *word,
		struct mft_flag_values *v, struct mfs_arena *arena, struct mfs_error *err)
{
	struct mft_flag_other *o = mfs_arena_alloc(arena, sizeof(*o)), **at = &v->others;

	if (!o)
		return mfs_fail_nomem(err);
	while (*at)
		at = &(*at)->next;
	*at = o;
	o->next = NULL;
	o->name = f->values ? mfs_arena_printf(arena, "%.80s %.80s (%s)", spelling, word, f->whose)
			    : mfs_arena_printf(arena, "%.80s (%s)", spelling, f->whose);
	o->becomes = NULL;
	if (!o->name)
		return mfs_fail_nomem(err);
	return f->use == MFT_FOREIGN_BECOMES ? show(f, spelling, word, arena, &o->becomes, err) : 0;
}

int mft_foreign_take(const struct mft_foreign *f, const char *spelling, const char *const *words,
		     size_t count, enum mft_flag_source from, struct mft_flag_values *v,
		     struct mfs_arena *arena, struct mfs_error *err)
{
	const char *word = count ? words[0] : NULL;
	int r;

	if (f->use == MFT_FOREIGN_REFUSED)
		return mfs_fail(err, -ENOTSUP, "%s%s%.80s (%s) is not supported; %s", spelling,
				f->values ? " " : "", f->values ? word : "", f->whose, f->say);
	if (isdigit((unsigned char)f->words) && count != (size_t)(f->words - '0'))
		return mfs_fail(err, -EINVAL, "%s (%s): %s, found %zu", spelling, f->whose,
				f->words == '0' ? "takes no value" : "expected one value", count);
	r = f->use == MFT_FOREIGN_BECOMES ? become(f, spelling, word, from, v, arena, err) : 0;
	return r ? r : note(f, spelling, word, v, arena, err);
}
