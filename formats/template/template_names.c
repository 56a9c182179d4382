/* What a template can call: methods of values, and functions. */
#define _GNU_SOURCE /* memmem() */
#include "formats/template/template_i.h"

#include <stdio.h>

#include "formats/base/array.h"

typedef struct mfs_tpl_value value;

static value callable(struct mfs_tpl_render *r, const char *name, mfs_tpl_function *f, value self)
{
	struct mfs_tpl_callable *c = mfs_tpl_alloc(r, 1, sizeof(*c));

	if (!c)
		return mfs_tpl_undefined(mfs_tpl_none());
	*c = (struct mfs_tpl_callable){.name = name, .function = f, .self = self};
	return (value){.kind = MFS_TPL_CALLABLE, .callable = c};
}

/* ---- methods of texts ---- */

static value text_at(struct mfs_tpl_render *r, const struct mfs_tpl_args *args, size_t place)
{
	if (place < args->count && args->at[place].kind == MFS_TPL_TEXT)
		return args->at[place];
	return mfs_tpl_fail(r, -EINVAL, "a method of a str has no text as argument %zu", place + 1);
}

static value strip(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args,
		   enum mfs_tpl_side side)
{
	return mfs_tpl_strip(r, self, args->count ? args->at[0] : mfs_tpl_none(), side);
}

static value m_strip(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	return strip(r, self, args, MFS_TPL_BOTH);
}

static value m_lstrip(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	return strip(r, self, args, MFS_TPL_LEFT);
}

static value m_rstrip(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	return strip(r, self, args, MFS_TPL_RIGHT);
}

static bool starts_with(value text, value with)
{
	return text.len >= with.len && !memcmp(text.text, with.text, with.len);
}

static bool ends_with(value text, value with)
{
	return text.len >= with.len &&
	       !memcmp(text.text + text.len - with.len, with.text, with.len);
}

/* startswith() and endswith() take a text or a tuple of texts. */
static value any_of(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args,
		    bool (*fits)(value text, value with))
{
	const value *with = args->at;
	size_t count = args->count;

	if (count == 1 && with->kind == MFS_TPL_LIST && with->list->type == MFS_TPL_IS_TUPLE) {
		count = with->list->count;
		with = with->list->at;
	} else if (count != 1) {
		return mfs_tpl_fail(r, -ENOTSUP, "startswith or endswith with such arguments");
	}
	for (size_t i = 0; i < count; i++) {
		if (with[i].kind != MFS_TPL_TEXT)
			return mfs_tpl_fail(r, -EINVAL, "startswith or endswith of a %s",
					    mfs_tpl_type_name(with[i]));
		if (mfs_tpl_work(r, with[i].len) && fits(self, with[i]))
			return mfs_tpl_bool(true);
	}
	return mfs_tpl_bool(false);
}

static value m_startswith(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	return any_of(r, self, args, starts_with);
}

static value m_endswith(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	return any_of(r, self, args, ends_with);
}

static value m_replace(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	const value from = text_at(r, args, 0), to = text_at(r, args, 1);
	const bool has_most = args->count > 2;

	if (has_most && args->at[2].kind != MFS_TPL_INT)
		return mfs_tpl_fail(r, -EINVAL, "replace by a %s", mfs_tpl_type_name(args->at[2]));
	if (r->rc)
		return self;
	return mfs_tpl_replace(r, self, from, to, has_most ? args->at[2].integer : -1);
}

/* The next piece of white space, from an offset on, or of `by`; len: none. */
static const char *find_text(value self, size_t from, value by)
{
	return memmem(self.text + from, self.len - from, by.text, by.len);
}

static bool add_piece(struct mfs_tpl_render *r, value *list, size_t *room, const char *from,
		      const char *to)
{
	value grown;

	if (list->list->count == *room) {
		*room = *room * 2 + 4;
		grown = mfs_tpl_list(r, MFS_TPL_IS_LIST, *room);
		if (r->rc)
			return false;
		grown.list->count = list->list->count;
		if (list->list->count)
			memcpy(grown.list->at, list->list->at,
			       list->list->count * sizeof(*grown.list->at));
		*list = grown;
	}
	list->list->at[list->list->count++] = mfs_tpl_text(from, (size_t)(to - from));
	return !r->rc;
}

static value split_by(struct mfs_tpl_render *r, value self, value by, int64_t most)
{
	value list = mfs_tpl_list(r, MFS_TPL_IS_LIST, 0);
	const char *end = self.text + self.len, *at = self.text, *found;
	size_t room = 0;

	if (!by.len)
		return mfs_tpl_fail(r, -EINVAL, "split by nothing");
	while (!r->rc && most-- && (found = find_text(self, (size_t)(at - self.text), by))) {
		add_piece(r, &list, &room, at, found);
		at = found + by.len;
	}
	if (!r->rc)
		add_piece(r, &list, &room, at, end);
	return list;
}

static value split_spaces(struct mfs_tpl_render *r, value self)
{
	value list = mfs_tpl_list(r, MFS_TPL_IS_LIST, 0);
	const char *end = self.text + self.len, *word = NULL;
	size_t room = 0;

	for (const char *at = self.text, *next = at; at < end && !r->rc; at = next) {
		if (!mfs_tpl_is_space(mfs_tpl_next_char(&next, end))) {
			word = word ? word : at;
		} else if (word) {
			add_piece(r, &list, &room, word, at);
			word = NULL;
		}
	}
	if (word && !r->rc)
		add_piece(r, &list, &room, word, end);
	return list;
}

static value m_split(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	int64_t most = -1;

	if (!mfs_tpl_work(r, self.len))
		return self;
	if (!args->count || (args->count == 1 && args->at[0].kind == MFS_TPL_NONE))
		return split_spaces(r, self);
	if (args->count > 1) {
		if (args->at[1].kind != MFS_TPL_INT)
			return mfs_tpl_fail(r, -EINVAL, "split by a number that is none");
		most = args->at[1].integer < 0 ? -1 : args->at[1].integer;
	}
	if (text_at(r, args, 0).kind != MFS_TPL_TEXT)
		return self;
	return split_by(r, self, args->at[0], most);
}

static value m_upper(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	(void)args;
	return mfs_tpl_change_case(r, self, MFS_TPL_UPPER);
}

static value m_lower(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	(void)args;
	return mfs_tpl_change_case(r, self, MFS_TPL_LOWER);
}

static value m_capitalize(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	(void)args;
	return mfs_tpl_change_case(r, self, MFS_TPL_CAPITALIZE);
}

static value m_find(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	const value what = text_at(r, args, 0);
	const char *found;

	if (!mfs_tpl_work(r, self.len))
		return self;
	found = what.len ? find_text(self, 0, what) : self.text;
	return mfs_tpl_int(found ? (int64_t)mfs_tpl_chars(self.text, (size_t)(found - self.text))
				 : -1);
}

static value m_join(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	const struct mfs_tpl_list *list;
	struct mfs_buf out = {0};

	if (args->count != 1)
		return mfs_tpl_fail(r, -EINVAL, "join has %zu arguments", args->count);
	list = mfs_tpl_iterate(r, args->at[0]);
	for (size_t i = 0; i < list->count && mfs_tpl_work(r, self.len); i++) {
		if (list->at[i].kind != MFS_TPL_TEXT)
			mfs_tpl_fail(r, -EINVAL, "join of a %s", mfs_tpl_type_name(list->at[i]));
		if (i)
			mfs_buf_add(&out, self.text, self.len);
		mfs_tpl_print(r, list->at[i], false, &out);
	}
	return mfs_tpl_take(r, &out);
}

/* ---- methods of dicts, and of a loop ---- */

/* keys, values or items: which of a pair. */
enum part { KEYS = 1, VALUES = 2, ITEMS = 3 };

static value view(struct mfs_tpl_render *r, value self, enum part part)
{
	const struct mfs_tpl_dict *d = self.dict;
	value out = mfs_tpl_list(r, MFS_TPL_IS_VIEW, d->count), both;

	for (size_t i = 0; !r->rc && i < d->count; i++) {
		if (part != ITEMS) {
			out.list->at[i] = part == KEYS ? d->at[i].key : d->at[i].value;
			continue;
		}
		both = mfs_tpl_list(r, MFS_TPL_IS_TUPLE, 2);
		if (r->rc)
			break;
		both.list->at[0] = d->at[i].key;
		both.list->at[1] = d->at[i].value;
		out.list->at[i] = both;
	}
	return out;
}

static value m_keys(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	(void)args;
	return view(r, self, KEYS);
}

static value m_values(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	(void)args;
	return view(r, self, VALUES);
}

static value m_items(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	(void)args;
	return view(r, self, ITEMS);
}

static value m_get(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	const value *found;

	if (!args->count)
		return mfs_tpl_fail(r, -EINVAL, "get without a key");
	found = mfs_tpl_dict_find(r, self.dict, args->at[0]);
	return found ? *found : args->count > 1 ? args->at[1] : mfs_tpl_none();
}

static value m_cycle(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	if (!args->count)
		return mfs_tpl_fail(r, -EINVAL, "cycle of nothing");
	return args->at[self.loop->index % args->count];
}

static value m_list_index(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	for (size_t i = 0; args->count == 1 && i < self.list->count; i++)
		if (mfs_tpl_equal(r, self.list->at[i], args->at[0]))
			return mfs_tpl_int((int64_t)i);
	return mfs_tpl_fail(r, -EINVAL, "index of what is not in the list");
}

struct method {
	enum mfs_tpl_kind of;
	const char *name;
	mfs_tpl_function *call;
	size_t most; /* arguments */
};

static const struct method methods[] = {
	{MFS_TPL_TEXT, "capitalize", m_capitalize, 0},
	{MFS_TPL_TEXT, "endswith", m_endswith, 1},
	{MFS_TPL_TEXT, "find", m_find, 1},
	{MFS_TPL_TEXT, "join", m_join, 1},
	{MFS_TPL_TEXT, "lower", m_lower, 0},
	{MFS_TPL_TEXT, "lstrip", m_lstrip, 1},
	{MFS_TPL_TEXT, "replace", m_replace, 3},
	{MFS_TPL_TEXT, "rstrip", m_rstrip, 1},
	{MFS_TPL_TEXT, "split", m_split, 2},
	{MFS_TPL_TEXT, "startswith", m_startswith, 1},
	{MFS_TPL_TEXT, "strip", m_strip, 1},
	{MFS_TPL_TEXT, "upper", m_upper, 0},
	{MFS_TPL_DICT, "get", m_get, 2},
	{MFS_TPL_DICT, "items", m_items, 0},
	{MFS_TPL_DICT, "keys", m_keys, 0},
	{MFS_TPL_DICT, "values", m_values, 0},
	{MFS_TPL_LIST, "index", m_list_index, 1},
	{MFS_TPL_LOOP, "cycle", m_cycle, 1000},
};

/* What else Python's types have: a template that asks for one is refused, and does not find
 * nothing. */
static const char *const other_methods[] = {
	[MFS_TPL_TEXT] =
		" casefold center count encode expandtabs format format_map index isalnum isalpha "
		"isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace "
		"istitle isupper ljust maketrans partition removeprefix removesuffix rfind rindex "
		"rjust rpartition rsplit splitlines swapcase title translate zfill ",
	[MFS_TPL_DICT] = " clear copy fromkeys pop popitem setdefault update ",
	[MFS_TPL_LIST] = " append clear copy count extend insert pop remove reverse sort "
			 "start stop step mapping isdisjoint throw send close ",
	[MFS_TPL_INT] = " as_integer_ratio bit_count bit_length conjugate denominator from_bytes "
			"imag numerator real to_bytes ",
	[MFS_TPL_BOOL] = " as_integer_ratio bit_count bit_length conjugate denominator from_bytes "
			 "imag numerator real to_bytes ",
	[MFS_TPL_REAL] = " as_integer_ratio conjugate fromhex hex imag is_integer real ",
	[MFS_TPL_LOOP] = " changed ",
	[MFS_TPL_CALLABLE] = " name arguments catch_kwargs catch_varargs caller ",
};

static bool is_other(value v, value name)
{
	char word[24];

	if (name.len && *name.text == '_')
		return true;
	if (v.kind >= MFS_ARRAY_SIZE(other_methods) || !other_methods[v.kind] || name.len > 20 ||
	    memchr(name.text, ' ', name.len))
		return false;
	snprintf(word, sizeof(word), " %.*s ", (int)name.len, name.text);
	return strstr(other_methods[v.kind], word);
}

static bool loop_attribute(const struct mfs_tpl_loop *l, value name, value *ret)
{
	const int64_t i = (int64_t)l->index, n = (int64_t)l->list->count;
	const struct {
		const char *name;
		value v;
	} all[] = {
		{"index", mfs_tpl_int(i + 1)},
		{"index0", mfs_tpl_int(i)},
		{"revindex", mfs_tpl_int(n - i)},
		{"revindex0", mfs_tpl_int(n - i - 1)},
		{"first", mfs_tpl_bool(!i)},
		{"last", mfs_tpl_bool(i == n - 1)},
		{"length", mfs_tpl_int(n)},
		{"depth", mfs_tpl_int(1)},
		{"depth0", mfs_tpl_int(0)},
		{"previtem", i ? l->list->at[i - 1] : mfs_tpl_undefined(name)},
		{"nextitem", i + 1 < n ? l->list->at[i + 1] : mfs_tpl_undefined(name)},
	};

	for (size_t k = 0; k < MFS_ARRAY_SIZE(all); k++)
		if (mfs_tpl_text_is(name, all[k].name)) {
			*ret = all[k].v;
			return true;
		}
	return false;
}

static value bound(struct mfs_tpl_render *r, const struct method *m, value self)
{
	value v = callable(r, m->name, m->call, self);

	if (v.kind == MFS_TPL_CALLABLE) {
		v.callable->method = true;
		v.callable->most = m->most;
	}
	return v;
}

bool mfs_tpl_attribute(struct mfs_tpl_render *r, value v, value name, value *ret)
{
	const value *member;

	if (v.kind == MFS_TPL_NAMESPACE) {
		member = mfs_tpl_dict_find(r, v.dict, name);
		if (member)
			*ret = *member;
		return member;
	}
	if (v.safe) {
		*ret = mfs_tpl_fail(r, -ENOTSUP, "'%.*s' of a text from the filter 'safe'",
				    (int)name.len, name.text);
		return true;
	}
	if (v.kind == MFS_TPL_LOOP && loop_attribute(v.loop, name, ret))
		return true;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(methods); i++)
		if (methods[i].of == v.kind && mfs_tpl_text_is(name, methods[i].name)) {
			*ret = bound(r, &methods[i], v);
			return true;
		}
	if (!is_other(v, name))
		return false;
	*ret = mfs_tpl_fail(r, -ENOTSUP, "'%.*s' of a %s is not known", (int)name.len, name.text,
			    mfs_tpl_type_name(v));
	return true;
}

/* ---- functions ---- */

static value g_raise(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	value why = args->count ? mfs_tpl_str(r, args->at[0]) : mfs_tpl_texts("");

	(void)self;
	return mfs_tpl_fail(r, -EINVAL, "the template refuses the conversation: %.*s",
			    (int)(why.len < 400 ? why.len : 400), why.text);
}

static value g_namespace(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	value out = {.kind = MFS_TPL_NAMESPACE, .dict = mfs_tpl_alloc(r, 1, sizeof(*out.dict))};

	(void)self;
	if (args->count)
		return mfs_tpl_fail(r, -ENOTSUP, "a namespace out of a dict");
	for (size_t i = 0; !r->rc && i < args->named_count; i++)
		mfs_tpl_dict_set(r, out.dict, args->named[i].key, args->named[i].value);
	return out;
}

static value g_dict(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	value out = g_namespace(r, self, args);

	out.kind = r->rc ? MFS_TPL_UNDEFINED : MFS_TPL_DICT;
	return out;
}

static value g_range(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	int64_t part[3] = {0, 0, 1}, count;
	value out;

	(void)self;
	for (size_t i = 0; i < args->count && i < 3; i++) {
		if (args->at[i].kind != MFS_TPL_INT)
			return mfs_tpl_fail(r, -EINVAL, "range of a %s",
					    mfs_tpl_type_name(args->at[i]));
		part[args->count == 1 ? 1 : i] = args->at[i].integer;
	}
	/* sandbox.py: MAX_RANGE is 100000 */
	for (size_t i = 0; i < 3; i++)
		if (part[i] > INT32_MAX || part[i] < INT32_MIN)
			return mfs_tpl_fail(r, -EINVAL, "range is too long");
	if (!args->count || args->count > 3 || args->named_count || !part[2])
		return mfs_tpl_fail(r, -EINVAL, "range has such arguments");
	count = part[2] > 0 ? (part[1] - part[0] + part[2] - 1) / part[2]
			    : (part[0] - part[1] - part[2] - 1) / -part[2];
	count = count < 0 ? 0 : count;
	if (count > 100000)
		return mfs_tpl_fail(r, -EINVAL, "range is too long");
	out = mfs_tpl_list(r, MFS_TPL_IS_RANGE, (size_t)count);
	for (int64_t i = 0; !r->rc && i < count; i++)
		out.list->at[i] = mfs_tpl_int(part[0] + i * part[2]);
	return out;
}

static value g_strftime_now(struct mfs_tpl_render *r, value self, const struct mfs_tpl_args *args)
{
	char format[256], text[512];
	struct tm tm;
	value v;

	(void)self;
	if (args->count != 1 || args->at[0].kind != MFS_TPL_TEXT || !args->at[0].len ||
	    args->at[0].len >= sizeof(format))
		return mfs_tpl_fail(r, -EINVAL, "strftime_now has such arguments");
	memcpy(format, args->at[0].text, args->at[0].len);
	format[args->at[0].len] = '\0';
	gmtime_r(&r->now, &tm);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	v = mfs_tpl_text(text, strftime(text, sizeof(text), format, &tm));
#pragma GCC diagnostic pop
	v.text = mfs_arena_strndup(&r->arena, text, v.len);
	return v.text ? v : mfs_tpl_fail(r, -ENOMEM, "out of memory");
}

bool mfs_tpl_global(struct mfs_tpl_render *r, value name, value *ret)
{
	static const struct {
		const char *name;
		mfs_tpl_function *call; /* NULL: not known */
	} all[] = {
		{"range", g_range},
		{"namespace", g_namespace},
		{"dict", g_dict},
		{"raise_exception", g_raise},
		{"strftime_now", g_strftime_now},
		{"cycler", NULL},
		{"joiner", NULL},
		{"lipsum", NULL},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++)
		if (mfs_tpl_text_is(name, all[i].name)) {
			*ret = callable(r, all[i].name, all[i].call, mfs_tpl_none());
			return true;
		}
	return false;
}
