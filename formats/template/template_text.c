/* Texts as Python has them: by characters, of which UTF-8 has one to four bytes. */
#define _GNU_SOURCE /* memmem() */
#include "formats/template/template_i.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/python_float.h"
#include "formats/base/str.h"

uint32_t mfs_tpl_next_char(const char **at, const char *end)
{
	const unsigned char *s = (const unsigned char *)*at;
	const size_t len = *s < 0x80 ? 1 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;
	uint32_t c = len == 1 ? *s : *s & (0x7fu >> len);

	if (len > (size_t)(end - *at)) {
		*at = end;
		return 0xfffd;
	}
	for (size_t i = 1; i < len; i++)
		c = c << 6 | (s[i] & 0x3f);
	*at += len;
	return c;
}

bool mfs_tpl_is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 ||
	       c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
	       c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t mfs_tpl_chars(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += (text[i] & 0xc0) != 0x80;
	return n;
}

size_t mfs_tpl_offset(const char *text, size_t len, size_t chars)
{
	size_t i = 0;

	for (; i < len; i++)
		if ((text[i] & 0xc0) != 0x80 && !chars--)
			break;
	return i;
}

/* ---- strip, replace, cases ---- */

/* Whether the character between two places goes. */
static bool strips(struct mfs_tpl_render *r, const char *at, const char *next,
		   struct mfs_tpl_value chars)
{
	if (chars.kind != MFS_TPL_TEXT)
		return mfs_tpl_is_space(mfs_tpl_next_char(&at, next));
	return mfs_tpl_work(r, chars.len) && memmem(chars.text, chars.len, at, (size_t)(next - at));
}

/* Where the first character of a text ends. */
static const char *after_first(const char *begin, const char *end)
{
	mfs_tpl_next_char(&begin, end);
	return begin;
}

/* Where the last character of a text begins. */
static const char *last_of(const char *begin, const char *end)
{
	do {
		end--;
	} while (end > begin && (*end & 0xc0) == 0x80);
	return end;
}

struct mfs_tpl_value mfs_tpl_strip(struct mfs_tpl_render *r, struct mfs_tpl_value text,
				   struct mfs_tpl_value chars, enum mfs_tpl_side side)
{
	const char *at = text.text, *end = at + text.len, *next;

	if (chars.kind != MFS_TPL_TEXT && chars.kind != MFS_TPL_UNDEFINED &&
	    chars.kind != MFS_TPL_NONE)
		return mfs_tpl_fail(r, -EINVAL, "strip() of a %s", mfs_tpl_type_name(chars));
	if (!mfs_tpl_work(r, text.len))
		return text;
	for (; (side & MFS_TPL_LEFT) && at < end; at = next) {
		next = after_first(at, end);
		if (!strips(r, at, next, chars))
			break;
	}
	for (; (side & MFS_TPL_RIGHT) && at < end; end = next) {
		next = last_of(at, end);
		if (!strips(r, next, end, chars))
			break;
	}
	return mfs_tpl_text(at, (size_t)(end - at));
}

/* Where `what` is in a text from an offset on; len: nowhere. */
static size_t find(struct mfs_tpl_value text, size_t from, struct mfs_tpl_value what)
{
	const char *at = from <= text.len && what.len
				 ? memmem(text.text + from, text.len - from, what.text, what.len)
				 : NULL;

	return at ? (size_t)(at - text.text) : text.len;
}

static void replace_between(struct mfs_tpl_render *r, struct mfs_tpl_value text,
			    struct mfs_tpl_value to, int64_t most, struct mfs_buf *out)
{
	const char *at = text.text, *end = at + text.len;

	while (mfs_tpl_work(r, to.len)) {
		const char *begin = at;

		if (most < 0 || most-- > 0)
			mfs_buf_add(out, to.text, to.len);
		if (at == end || out->len > MFS_TPL_MEMORY)
			break;
		mfs_tpl_next_char(&at, end);
		mfs_buf_add(out, begin, (size_t)(at - begin));
	}
}

struct mfs_tpl_value mfs_tpl_replace(struct mfs_tpl_render *r, struct mfs_tpl_value text,
				     struct mfs_tpl_value from, struct mfs_tpl_value to,
				     int64_t most)
{
	struct mfs_buf out = {0};
	size_t at = 0, found;

	if (!mfs_tpl_work(r, text.len))
		return text;
	if (!from.len) {
		replace_between(r, text, to, most, &out);
		return mfs_tpl_take(r, &out);
	}
	while (most-- && (found = find(text, at, from)) < text.len && mfs_tpl_work(r, to.len)) {
		mfs_buf_add(&out, text.text + at, found - at);
		mfs_buf_add(&out, to.text, to.len);
		at = found + from.len;
		if (out.len > MFS_TPL_MEMORY)
			break;
	}
	if (!at)
		return text;
	mfs_buf_add(&out, text.text + at, text.len - at);
	return mfs_tpl_take(r, &out);
}

struct mfs_tpl_value mfs_tpl_change_case(struct mfs_tpl_render *r, struct mfs_tpl_value text,
					 enum mfs_tpl_case to)
{
	char *out = mfs_tpl_alloc(r, text.len + 1, 1);
	bool begins = true; /* a word, or the text */

	if (!out)
		return text;
	for (size_t i = 0; i < text.len; i++) {
		const unsigned char c = (unsigned char)text.text[i];
		const bool upper = to == MFS_TPL_UPPER || (to != MFS_TPL_LOWER && begins);

		if (c >= 0x80)
			return mfs_tpl_fail(r, -ENOTSUP,
					    "upper and lower case of letters that are not ASCII");
		out[i] = (char)(upper ? toupper(c) : tolower(c));
		/* filters.py: _word_beginning_split_re */
		begins = to == MFS_TPL_TITLE && (mfs_tpl_is_space(c) || strchr("-({[<", c));
	}
	return mfs_tpl_text(out, text.len);
}

/* ---- str() and repr() ---- */

static void print_real(double value, bool json, struct mfs_buf *out)
{
	char text[MFS_PYTHON_REPR_SIZE];

	if (!json && !isfinite(value)) {
		mfs_buf_adds(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
		return;
	}
	mfs_python_repr(value, text);
	mfs_buf_adds(out, text);
}

/* repr() of a text. Which other characters can be printed is a question of Unicode's tables. */
static void print_quoted(struct mfs_tpl_render *r, struct mfs_tpl_value v, struct mfs_buf *out)
{
	const bool has = memchr(v.text, '\'', v.len), both = has && memchr(v.text, '"', v.len);
	const char quote = has && !both ? '"' : '\'';

	mfs_buf_add(out, &quote, 1);
	for (size_t i = 0; i < v.len; i++) {
		const unsigned char c = (unsigned char)v.text[i];

		if (c >= 0x80) {
			mfs_tpl_fail(r, -ENOTSUP,
				     "a list or dict is printed whose texts are not ASCII");
			return;
		}
		if (c == (unsigned char)quote || c == '\\')
			mfs_buf_printf(out, "\\%c", c);
		else if (c == '\n' || c == '\r' || c == '\t')
			mfs_buf_adds(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
		else if (c < 0x20 || c == 0x7f)
			mfs_buf_printf(out, "\\x%02x", c);
		else
			mfs_buf_add(out, &v.text[i], 1);
	}
	mfs_buf_add(out, &quote, 1);
}

static void print_list(struct mfs_tpl_render *r, const struct mfs_tpl_list *list,
		       struct mfs_buf *out)
{
	const bool tuple = list->type == MFS_TPL_IS_TUPLE;

	if (!tuple && list->type != MFS_TPL_IS_LIST) {
		mfs_tpl_fail(r, -ENOTSUP, "a generator, a range or a view of a dict is printed");
		return;
	}
	mfs_buf_adds(out, tuple ? "(" : "[");
	for (size_t i = 0; i < list->count && !r->rc; i++) {
		mfs_buf_adds(out, i ? ", " : "");
		mfs_tpl_print(r, list->at[i], true, out);
	}
	mfs_buf_adds(out, tuple ? list->count == 1 ? ",)" : ")" : "]");
}

static void print_dict(struct mfs_tpl_render *r, const struct mfs_tpl_dict *d, struct mfs_buf *out)
{
	mfs_buf_adds(out, "{");
	for (size_t i = 0; i < d->count && !r->rc; i++) {
		mfs_buf_adds(out, i ? ", " : "");
		mfs_tpl_print(r, d->at[i].key, true, out);
		mfs_buf_adds(out, ": ");
		mfs_tpl_print(r, d->at[i].value, true, out);
	}
	mfs_buf_adds(out, "}");
}

/* Counts work, memory of a buffer, and depth; false: too much. */
static bool may_write(struct mfs_tpl_render *r, const struct mfs_buf *out)
{
	if (out->len > MFS_TPL_MEMORY || r->depth >= MFS_TPL_DEEP)
		mfs_tpl_fail(r, -ENOTSUP, "more text than a conversation has");
	return mfs_tpl_work(r, 0);
}

static void print_undefined(struct mfs_tpl_render *r, struct mfs_tpl_value v, bool quoted,
			    struct mfs_buf *out)
{
	for (const char *const *name = r->needed; name && *name; name++)
		if (v.len == strlen(*name) && !memcmp(v.text, *name, v.len))
			mfs_tpl_fail(r, -ENODATA, "%s is written, and has no value", *name);
	mfs_buf_adds(out, quoted ? "Undefined" : "");
}

void mfs_tpl_print(struct mfs_tpl_render *r, struct mfs_tpl_value v, bool quoted,
		   struct mfs_buf *out)
{
	if (!may_write(r, out))
		return;
	r->depth++;
	switch (v.kind) {
	case MFS_TPL_UNDEFINED:
		print_undefined(r, v, quoted, out);
		break;
	case MFS_TPL_NONE:
		mfs_buf_adds(out, "None");
		break;
	case MFS_TPL_BOOL:
		mfs_buf_adds(out, v.truth ? "True" : "False");
		break;
	case MFS_TPL_INT:
		mfs_buf_printf(out, "%lld", (long long)v.integer);
		break;
	case MFS_TPL_REAL:
		print_real(v.real, false, out);
		break;
	case MFS_TPL_TEXT:
		mfs_tpl_work(r, v.len);
		if (quoted && v.safe)
			mfs_tpl_fail(
				r, -ENOTSUP,
				"a list or dict is printed with a text from the filter 'safe'");
		else if (quoted)
			print_quoted(r, v, out);
		else
			mfs_buf_add(out, v.text, v.len);
		break;
	case MFS_TPL_LIST:
		print_list(r, v.list, out);
		break;
	case MFS_TPL_DICT:
		print_dict(r, v.dict, out);
		break;
	default:
		mfs_tpl_fail(r, -ENOTSUP, "a %s is printed", mfs_tpl_type_name(v));
	}
	r->depth--;
}

struct mfs_tpl_value mfs_tpl_str(struct mfs_tpl_render *r, struct mfs_tpl_value v)
{
	struct mfs_buf out = {0};

	if (v.kind == MFS_TPL_TEXT)
		return mfs_tpl_text(v.text, v.len);
	mfs_tpl_print(r, v, false, &out);
	return mfs_tpl_take(r, &out);
}

/* ---- json.dumps() ---- */

static void json_escape(uint32_t c, struct mfs_buf *out)
{
	if (c >= 0x10000) {
		mfs_buf_printf(out, "\\u%04x", 0xd800 + ((c - 0x10000) >> 10));
		c = 0xdc00 + ((c - 0x10000) & 0x3ff);
	}
	mfs_buf_printf(out, "\\u%04x", c);
}

static void json_text(struct mfs_tpl_value v, bool ascii, struct mfs_buf *out)
{
	static const char special[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";

	mfs_buf_adds(out, "\"");
	for (const char *at = v.text, *end = at + v.len, *begin = at; at < end; begin = at) {
		const uint32_t c = mfs_tpl_next_char(&at, end);
		const char *found = c && c < 0x80 ? strchr(special, (int)c) : NULL;

		if (found)
			mfs_buf_printf(out, "\\%c", letters[found - special]);
		else if (c < 0x20 || (ascii && c > 0x7e))
			json_escape(c, out);
		else
			mfs_buf_add(out, begin, (size_t)(at - begin));
	}
	mfs_buf_adds(out, "\"");
}

struct json_writer {
	struct mfs_tpl_render *r;
	const struct mfs_tpl_json_style *style;
	struct mfs_buf *out;
	unsigned level;
};

static void json_value(struct json_writer *w, struct mfs_tpl_value v);

static void json_newline(const struct json_writer *w)
{
	if (!w->style->indent)
		return;
	mfs_buf_adds(w->out, "\n");
	for (unsigned i = 0; i < w->level; i++)
		mfs_buf_adds(w->out, w->style->indent);
}

static void json_list(struct json_writer *w, const struct mfs_tpl_list *list)
{
	if (list->type != MFS_TPL_IS_LIST && list->type != MFS_TPL_IS_TUPLE) {
		mfs_tpl_fail(w->r, -EINVAL, "tojson of what JSON has not");
		return;
	}
	if (!list->count) {
		mfs_buf_adds(w->out, "[]");
		return;
	}
	mfs_buf_adds(w->out, "[");
	w->level++;
	for (size_t i = 0; i < list->count && !w->r->rc; i++) {
		mfs_buf_adds(w->out, i ? w->style->item : "");
		json_newline(w);
		json_value(w, list->at[i]);
	}
	w->level--;
	json_newline(w);
	mfs_buf_adds(w->out, "]");
}

static int by_key(const void *a, const void *b)
{
	const struct mfs_tpl_value x = ((const struct mfs_tpl_pair *)a)->key,
				   y = ((const struct mfs_tpl_pair *)b)->key;
	const int order = memcmp(x.text, y.text, x.len < y.len ? x.len : y.len);

	return order ? order : (x.len > y.len) - (x.len < y.len);
}

static const struct mfs_tpl_pair *sorted(struct mfs_tpl_render *r, const struct mfs_tpl_dict *d)
{
	struct mfs_tpl_pair *at = mfs_tpl_alloc(r, d->count, sizeof(*at));

	if (!at)
		return d->at;
	memcpy(at, d->at, d->count * sizeof(*at));
	qsort(at, d->count, sizeof(*at), by_key);
	return at;
}

static void json_dict(struct json_writer *w, const struct mfs_tpl_dict *d)
{
	const struct mfs_tpl_pair *at = d->at;

	if (!d->count) {
		mfs_buf_adds(w->out, "{}");
		return;
	}
	for (size_t i = 0; i < d->count; i++)
		if (at[i].key.kind != MFS_TPL_TEXT) {
			mfs_tpl_fail(w->r, -ENOTSUP, "tojson of a dict whose keys are no texts");
			return;
		}
	if (w->style->sort_keys)
		at = sorted(w->r, d);
	mfs_buf_adds(w->out, "{");
	w->level++;
	for (size_t i = 0; i < d->count && !w->r->rc; i++) {
		mfs_buf_adds(w->out, i ? w->style->item : "");
		json_newline(w);
		json_text(at[i].key, w->style->ascii, w->out);
		mfs_buf_adds(w->out, w->style->key);
		json_value(w, at[i].value);
	}
	w->level--;
	json_newline(w);
	mfs_buf_adds(w->out, "}");
}

static void json_value(struct json_writer *w, struct mfs_tpl_value v)
{
	if (!may_write(w->r, w->out))
		return;
	w->r->depth++;
	switch (v.kind) {
	case MFS_TPL_NONE:
		mfs_buf_adds(w->out, "null");
		break;
	case MFS_TPL_BOOL:
		mfs_buf_adds(w->out, v.truth ? "true" : "false");
		break;
	case MFS_TPL_INT:
		mfs_buf_printf(w->out, "%lld", (long long)v.integer);
		break;
	case MFS_TPL_REAL:
		print_real(v.real, true, w->out);
		break;
	case MFS_TPL_TEXT:
		mfs_tpl_work(w->r, v.len);
		json_text(v, w->style->ascii, w->out);
		break;
	case MFS_TPL_LIST:
		json_list(w, v.list);
		break;
	case MFS_TPL_DICT:
		json_dict(w, v.dict);
		break;
	default:
		mfs_tpl_fail(w->r, -EINVAL, "tojson of a %s", mfs_tpl_type_name(v));
	}
	w->r->depth--;
}

void mfs_tpl_to_json(struct mfs_tpl_render *r, struct mfs_tpl_value v,
		     const struct mfs_tpl_json_style *style, struct mfs_buf *out)
{
	struct json_writer w = {r, style, out, 0};

	json_value(&w, v);
}
