#include "trainer/config/refuse.h"

#include <errno.h>
#include <string.h>

#include "formats/base/str.h"
#include "trainer/config/precision.h"

/* Shows a value as on the command line: a list as its items, a text without quotes. */
static void show_plain(const struct mft_flag_value *v, struct mfs_buf *out)
{
	if (v->type == MFT_IS_TEXT)
		mfs_buf_adds(out, v->text);
	else
		mft_flag_value_show(v, out);
}

static bool is_had(const struct mft_flag *f, const struct mft_flag_value *v)
{
	struct mfs_buf text = {0};
	bool had = true;

	if (!f->have || v->type == MFT_IS_NONE)
		return f->have;
	if (v->type == MFT_IS_LIST) {
		for (size_t i = 0; i < v->count; i++)
			had &= is_had(f, &v->items[i]);
		return had;
	}
	if (v->type == MFT_IS_DTYPE)
		mfs_buf_adds(&text, mft_precision_word(v->dtype));
	else
		show_plain(v, &text);
	had = !text.failed && mft_flag_is_choice(f->have, text.data, text.len);
	mfs_buf_release(&text);
	return had;
}

static int refuse(const struct mft_flag *f, const struct mft_flag_value *v, struct mfs_error *err)
{
	char spelling[MFT_FLAG_SPELLING] = "";
	struct mfs_buf text = {0};
	int r;
	bool on;

	mft_flag_spelling(f, 0, spelling, &on);
	if (v->type == MFT_IS_DTYPE)
		mfs_buf_adds(&text, mft_precision_word(v->dtype));
	else if (v->type != MFT_IS_BOOL)
		show_plain(v, &text);
	r = mfs_fail(err, -ENOTSUP, "%s%s%.*s is not supported; %s", spelling, text.len ? " " : "",
		     (int)(text.len < 80 ? text.len : 80), text.len ? text.data : "",
		     f->instead ? f->instead : "leave it out");
	mfs_buf_release(&text);
	return r;
}

int mft_flags_refuse(const struct mft_flag_values *v, struct mfs_error *err)
{
	struct mfs_arena arena = {0};
	struct mft_flag_values *initial;
	int r = mft_flag_values_new(&arena, &initial, err);

	for (size_t i = 0; i < mft_flag_count() && !r; i++) {
		const struct mft_flag *f = mft_flag_at(i);
		const bool refused = f->use == MFT_FLAG_REFUSED;

		if ((!refused && !f->have) || is_had(f, &v->at[i]))
			continue;
		if (!refused || !mft_flag_value_same(&v->at[i], &initial->at[i]))
			r = refuse(f, &v->at[i], err);
	}
	mfs_arena_release(&arena);
	return r;
}

/* A saved file has all values: those that are the default are no news. None is off. */
static bool is_news(const struct mft_flag_values *v, const struct mft_flag_values *initial,
		    size_t i)
{
	const struct mft_flag_value *x = &v->at[i], *usual = &initial->at[i];

	if (v->from[i] != MFT_FROM_YAML)
		return v->from[i] == MFT_FROM_COMMAND_LINE;
	if (x->type == MFT_IS_BOOL && !x->truth && usual->type == MFT_IS_NONE)
		return false;
	return !mft_flag_value_same(x, usual);
}

void mft_flags_unused(const struct mft_flag_values *v, struct mfs_buf *out)
{
	struct mfs_arena arena = {0};
	struct mft_flag_values *initial;
	char spelling[MFT_FLAG_SPELLING];
	bool on, first = true;

	if (mft_flag_values_new(&arena, &initial, NULL)) {
		out->failed = true;
		mfs_arena_release(&arena);
		return;
	}
	for (size_t i = 0; i < mft_flag_count(); i++) {
		const struct mft_flag *f = mft_flag_at(i);

		if (f->use != MFT_FLAG_UNUSED || !is_news(v, initial, i) ||
		    !mft_flag_spelling(f, 0, spelling, &on))
			continue;
		mfs_buf_printf(out, "%s%s", first ? "" : ", ", spelling);
		first = false;
	}
	for (const struct mft_flag_other *o = v->others; o; o = o->next) {
		if (o->becomes)
			continue;
		mfs_buf_printf(out, "%s%s", first ? "" : ", ", o->name);
		first = false;
	}
	mfs_arena_release(&arena);
}
