/* Filters. Source: jinja2/filters.py; tojson: transformers/utils/chat_template_utils.py. */
#include "formats/template/template_i.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/array.h"

typedef struct mfs_tpl_value value;

static value nothing(void)
{
	return mfs_tpl_undefined(mfs_tpl_none());
}

bool mfs_tpl_arg(const struct mfs_tpl_args *args, size_t place, const char *name, value *ret)
{
	if (place < args->count) {
		*ret = args->at[place];
		return true;
	}
	for (size_t i = 0; i < args->named_count; i++)
		if (mfs_tpl_text_is(args->named[i].key, name)) {
			*ret = args->named[i].value;
			return true;
		}
	return false;
}

static bool is_one_of(value name, const char *const *names)
{
	for (; *names; names++)
		if (mfs_tpl_text_is(name, *names))
			return true;
	return false;
}

bool mfs_tpl_check_args(struct mfs_tpl_render *r, const char *what, const struct mfs_tpl_args *args,
			size_t most, const char *const *names)
{
	static const char *const none[] = {NULL};

	if (args->count > most)
		mfs_tpl_fail(r, -ENOTSUP, "%s has %zu arguments: at most %zu are known", what,
			     args->count, most);
	for (size_t i = 0; i < args->named_count && mfs_tpl_work(r, 0); i++)
		if (!is_one_of(args->named[i].key, names ? names : none))
			mfs_tpl_fail(r, -ENOTSUP, "the argument '%.*s' of %s is not known",
				     (int)args->named[i].key.len, args->named[i].key.text, what);
	return !r->rc;
}

static value text_arg(struct mfs_tpl_render *r, const struct mfs_tpl_args *args, size_t place,
		      const char *name)
{
	value v = mfs_tpl_text("", 0);

	return mfs_tpl_arg(args, place, name, &v) ? mfs_tpl_str(r, v) : v;
}

/* ---- of texts ---- */

static value f_trim(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	value chars = mfs_tpl_none();

	mfs_tpl_arg(args, 0, "chars", &chars);
	v = mfs_tpl_str(r, v);
	return r->rc ? v : mfs_tpl_strip(r, v, chars, MFS_TPL_BOTH);
}

static value change_case(struct mfs_tpl_render *r, value v, enum mfs_tpl_case to)
{
	v = mfs_tpl_str(r, v);
	return r->rc ? v : mfs_tpl_change_case(r, v, to);
}

static value f_upper(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return change_case(r, v, MFS_TPL_UPPER);
}

static value f_lower(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return change_case(r, v, MFS_TPL_LOWER);
}

static value f_capitalize(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return change_case(r, v, MFS_TPL_CAPITALIZE);
}

static value f_title(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return change_case(r, v, MFS_TPL_TITLE);
}

/* soft_str(): a text stays what it is, safe or not. */
static value f_string(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return v.kind == MFS_TPL_TEXT ? v : mfs_tpl_str(r, v);
}

static value f_safe(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	v = mfs_tpl_str(r, v);
	v.safe = true;
	return v;
}

static value f_replace(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	const value from = text_arg(r, args, 0, "old"), to = text_arg(r, args, 1, "new");
	value most = mfs_tpl_int(-1);

	mfs_tpl_arg(args, 2, "count", &most);
	if (most.kind != MFS_TPL_INT)
		return mfs_tpl_fail(r, -ENOTSUP, "replace by a %s", mfs_tpl_type_name(most));
	v = mfs_tpl_str(r, v);
	return r->rc ? v : mfs_tpl_replace(r, v, from, to, most.integer);
}

/* Whether a text has what str.splitlines() takes for a line's end, other than a newline. */
static bool has_other_ends(value v)
{
	for (const char *at = v.text, *end = at + v.len; at < end;) {
		const uint32_t c = mfs_tpl_next_char(&at, end);

		if ((c >= 0x0b && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
		    c == 0x2028 || c == 0x2029)
			return true;
	}
	return false;
}

static void add_spaces(struct mfs_buf *out, int64_t count)
{
	if (count > 0)
		mfs_buf_printf(out, "%*s", (int)count, "");
}

/* Lines after the first get spaces before them, unless they are empty; `first`: the first one does,
 * whatever it is. */
static value f_indent(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	value width = mfs_tpl_int(4), first = mfs_tpl_bool(false), blank = first;
	struct mfs_buf out = {0};
	bool begins = false;

	mfs_tpl_arg(args, 0, "width", &width);
	mfs_tpl_arg(args, 1, "first", &first);
	mfs_tpl_arg(args, 2, "blank", &blank);
	if (v.kind != MFS_TPL_TEXT)
		return mfs_tpl_fail(r, -EINVAL, "indent of a %s", mfs_tpl_type_name(v));
	if (width.kind != MFS_TPL_INT || width.integer > 1000 || mfs_tpl_truth(r, blank))
		return mfs_tpl_fail(r, -ENOTSUP, "indent with such arguments");
	if (has_other_ends(v))
		return mfs_tpl_fail(r, -ENOTSUP, "indent of lines that do not end by \\n");
	if (mfs_tpl_truth(r, first))
		add_spaces(&out, width.integer);
	for (size_t i = 0; i < v.len && out.len < MFS_TPL_MEMORY; i++) {
		if (begins && v.text[i] != '\n')
			add_spaces(&out, width.integer);
		mfs_buf_add(&out, v.text + i, 1);
		begins = v.text[i] == '\n';
	}
	return mfs_tpl_take(r, &out);
}

static value f_tojson(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	struct mfs_tpl_json_style style = {.item = ", ", .key = ": "};
	char spaces[33] = "";
	struct mfs_buf out = {0};
	value a;

	if (mfs_tpl_arg(args, 0, "ensure_ascii", &a))
		style.ascii = mfs_tpl_truth(r, a);
	if (mfs_tpl_arg(args, 3, "sort_keys", &a))
		style.sort_keys = mfs_tpl_truth(r, a);
	if (mfs_tpl_arg(args, 1, "indent", &a) && a.kind != MFS_TPL_NONE) {
		if (a.kind != MFS_TPL_INT || a.integer < 0 || a.integer > 32)
			return mfs_tpl_fail(r, -ENOTSUP, "tojson with such an indent");
		memset(spaces, ' ', (size_t)a.integer);
		spaces[a.integer] = '\0';
		style.indent = spaces;
		style.item = ",";
	}
	if (mfs_tpl_arg(args, 2, "separators", &a) && a.kind != MFS_TPL_NONE) {
		if (a.kind != MFS_TPL_LIST || a.list->count != 2 ||
		    a.list->at[0].kind != MFS_TPL_TEXT || a.list->at[1].kind != MFS_TPL_TEXT)
			return mfs_tpl_fail(r, -EINVAL, "tojson with such separators");
		style.item = mfs_arena_strndup(&r->arena, a.list->at[0].text, a.list->at[0].len);
		style.key = mfs_arena_strndup(&r->arena, a.list->at[1].text, a.list->at[1].len);
		if (!style.item || !style.key)
			return mfs_tpl_fail(r, -ENOMEM, "out of memory");
	}
	mfs_tpl_to_json(r, v, &style, &out);
	return mfs_tpl_take(r, &out);
}

/* ---- of lists ---- */

static value f_length(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return mfs_tpl_int(mfs_tpl_length(r, v));
}

static value f_default(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	value other = mfs_tpl_text("", 0), boolean;

	mfs_tpl_arg(args, 0, "default_value", &other);
	if (v.kind == MFS_TPL_UNDEFINED)
		return other;
	if (mfs_tpl_arg(args, 1, "boolean", &boolean) && mfs_tpl_truth(r, boolean) &&
	    !mfs_tpl_truth(r, v))
		return other;
	return v;
}

static value copy_list(struct mfs_tpl_render *r, const struct mfs_tpl_list *from,
		       enum mfs_tpl_list_type type, bool backwards)
{
	value out = mfs_tpl_list(r, type, from->count);

	for (size_t i = 0; !r->rc && i < from->count; i++)
		out.list->at[i] = from->at[backwards ? from->count - 1 - i : i];
	return out;
}

static value f_list(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	return copy_list(r, mfs_tpl_iterate(r, v), MFS_TPL_IS_LIST, false);
}

static value f_reverse(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	struct mfs_buf out = {0};
	value all;

	(void)args;
	all = copy_list(r, mfs_tpl_iterate(r, v), MFS_TPL_IS_GENERATOR, true);
	if (v.kind != MFS_TPL_TEXT || r->rc)
		return all;
	for (size_t i = 0; i < all.list->count; i++)
		mfs_buf_add(&out, all.list->at[i].text, all.list->at[i].len);
	return mfs_tpl_take(r, &out);
}

static value f_first(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	const struct mfs_tpl_list *list = mfs_tpl_iterate(r, v);

	(void)args;
	return list->count ? list->at[0] : nothing();
}

static value f_last(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	const struct mfs_tpl_list *list = mfs_tpl_iterate(r, v);

	(void)args;
	if (list->type == MFS_TPL_IS_GENERATOR)
		return mfs_tpl_fail(r, -EINVAL, "last of a generator");
	return list->count ? list->at[list->count - 1] : nothing();
}

/* a.b.0 of an element (make_attrgetter). */
static value by_path(struct mfs_tpl_render *r, value v, value path)
{
	const char *at, *dot, *end;
	value part;

	/* An undefined path is a key that nothing has. */
	if (path.kind == MFS_TPL_INT || path.kind == MFS_TPL_UNDEFINED)
		return mfs_tpl_get_item(r, v, path);
	if (path.kind != MFS_TPL_TEXT)
		return mfs_tpl_fail(r, -ENOTSUP, "a %s as an attribute's path",
				    mfs_tpl_type_name(path));
	mfs_tpl_work(r, path.len);
	end = path.text + path.len;
	for (at = path.text; at && mfs_tpl_work(r, 0); at = dot ? dot + 1 : NULL) {
		dot = memchr(at, '.', (size_t)(end - at));
		part = mfs_tpl_text(at, (size_t)((dot ? dot : end) - at));
		if (part.len && *at >= '0' && *at <= '9')
			return mfs_tpl_fail(r, -ENOTSUP, "an attribute's path with numbers");
		v = mfs_tpl_get_item(r, v, part);
	}
	return v;
}

static value f_join(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	const value between = text_arg(r, args, 0, "d");
	const struct mfs_tpl_list *list = mfs_tpl_iterate(r, v);
	struct mfs_buf out = {0};
	value path;
	const bool has_path = mfs_tpl_arg(args, 1, "attribute", &path);

	for (size_t i = 0; i < list->count && mfs_tpl_work(r, between.len); i++) {
		if (i)
			mfs_buf_add(&out, between.text, between.len);
		mfs_tpl_print(r, has_path ? by_path(r, list->at[i], path) : list->at[i], false,
			      &out);
	}
	return mfs_tpl_take(r, &out);
}

static value f_items(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	value out;

	(void)args;
	if (v.kind != MFS_TPL_DICT && v.kind != MFS_TPL_UNDEFINED)
		return mfs_tpl_fail(r, -EINVAL, "items of a %s", mfs_tpl_type_name(v));
	out = mfs_tpl_list(r, MFS_TPL_IS_GENERATOR, v.kind == MFS_TPL_DICT ? v.dict->count : 0);
	for (size_t i = 0; !r->rc && i < out.list->count; i++) {
		out.list->at[i] = mfs_tpl_list(r, MFS_TPL_IS_TUPLE, 2);
		if (r->rc)
			break;
		out.list->at[i].list->at[0] = v.dict->at[i].key;
		out.list->at[i].list->at[1] = v.dict->at[i].value;
	}
	return out;
}

struct sort_key {
	value lower;
	size_t at; /* in the dict */
};

static int by_lower(const void *a, const void *b)
{
	const struct sort_key *x = a, *y = b;
	const size_t len = x->lower.len < y->lower.len ? x->lower.len : y->lower.len;
	const int order = memcmp(x->lower.text, y->lower.text, len);

	if (order || x->lower.len != y->lower.len)
		return order ? order : x->lower.len < y->lower.len ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

/* Pairs by their keys, whose case does not count (filters.py: do_dictsort). */
static value f_dictsort(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	const value pairs = v.kind == MFS_TPL_DICT ? f_items(r, v, args) : nothing();
	struct sort_key *keys;
	size_t compares = 1; /* of a key */
	value out;

	if (v.kind != MFS_TPL_DICT)
		return mfs_tpl_fail(r, -EINVAL, "dictsort of a %s", mfs_tpl_type_name(v));
	keys = mfs_tpl_alloc(r, v.dict->count + 1, sizeof(*keys));
	for (size_t n = v.dict->count; n > 1; n /= 2)
		compares++;
	for (size_t i = 0; !r->rc && i < v.dict->count; i++) {
		if (v.dict->at[i].key.kind != MFS_TPL_TEXT)
			return mfs_tpl_fail(r, -ENOTSUP, "dictsort of keys that are no texts");
		mfs_tpl_work(r, compares * (v.dict->at[i].key.len + 1));
		keys[i] = (struct sort_key){change_case(r, v.dict->at[i].key, MFS_TPL_LOWER), i};
	}
	out = mfs_tpl_list(r, MFS_TPL_IS_LIST, r->rc ? 0 : v.dict->count);
	if (r->rc)
		return out;
	qsort(keys, out.list->count, sizeof(*keys), by_lower);
	for (size_t i = 0; i < out.list->count; i++)
		out.list->at[i] = pairs.list->at[keys[i].at];
	return out;
}

/* map('filter', ...) or map(attribute='a.b'). */
static value f_map(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	const struct mfs_tpl_list *list = mfs_tpl_iterate(r, v);
	value out = mfs_tpl_list(r, MFS_TPL_IS_GENERATOR, list->count), path, other;
	struct mfs_tpl_args rest = *args;
	bool has_other;

	if (!args->count) {
		if (!mfs_tpl_arg(args, 0, "attribute", &path))
			return mfs_tpl_fail(r, -EINVAL, "map without a filter");
		has_other = mfs_tpl_arg(args, 1, "default", &other);
		for (size_t i = 0; !r->rc && i < list->count; i++) {
			out.list->at[i] = by_path(r, list->at[i], path);
			if (has_other && out.list->at[i].kind == MFS_TPL_UNDEFINED)
				out.list->at[i] = other;
		}
		return out;
	}
	rest.at++;
	rest.count--;
	for (size_t i = 0; !r->rc && i < list->count; i++)
		out.list->at[i] = mfs_tpl_filter(r, args->at[0], list->at[i], &rest);
	return out;
}

/* Elements of which a test holds, or does not: of themselves, or of an attribute. */
static value chosen(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args,
		    bool attribute, bool wanted)
{
	const struct mfs_tpl_list *list = mfs_tpl_iterate(r, v);
	value out = mfs_tpl_list(r, MFS_TPL_IS_GENERATOR, list->count), subject;
	struct mfs_tpl_args rest = *args;
	bool holds;

	if (rest.count < attribute)
		return mfs_tpl_fail(r, -EINVAL, "a filter has no attribute");
	rest.at += attribute;
	rest.count -= attribute;
	if (r->rc)
		return out;
	out.list->count = 0;
	for (size_t i = 0; !r->rc && i < list->count; i++) {
		struct mfs_tpl_args of_test = {.at = rest.at + 1,
					       .count = rest.count ? rest.count - 1 : 0};

		subject = attribute ? by_path(r, list->at[i], args->at[0]) : list->at[i];
		holds = rest.count ? mfs_tpl_test(r, rest.at[0], subject, &of_test)
				   : mfs_tpl_truth(r, subject);
		if (holds == wanted)
			out.list->at[out.list->count++] = list->at[i];
	}
	return out;
}

static value f_select(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	return chosen(r, v, args, false, true);
}

static value f_reject(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	return chosen(r, v, args, false, false);
}

static value f_selectattr(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	return chosen(r, v, args, true, true);
}

static value f_rejectattr(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	return chosen(r, v, args, true, false);
}

/* ---- of numbers ---- */

static value f_int(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	char *end, text[24];
	long long n;

	(void)args;
	if (v.kind == MFS_TPL_INT || v.kind == MFS_TPL_BOOL)
		return mfs_tpl_int(v.kind == MFS_TPL_INT ? v.integer : v.truth);
	if (v.kind != MFS_TPL_TEXT || !v.len || v.len >= sizeof(text))
		return mfs_tpl_fail(r, -ENOTSUP, "int of a %s", mfs_tpl_type_name(v));
	memcpy(text, v.text, v.len);
	text[v.len] = '\0';
	errno = 0;
	n = strtoll(text, &end, 10);
	if (*end || errno || text[0] == ' ')
		return mfs_tpl_fail(r, -ENOTSUP, "int of the text '%s'", text);
	return mfs_tpl_int(n);
}

static value f_abs(struct mfs_tpl_render *r, value v, const struct mfs_tpl_args *args)
{
	(void)args;
	if (v.kind == MFS_TPL_INT && v.integer != INT64_MIN)
		return mfs_tpl_int(v.integer < 0 ? -v.integer : v.integer);
	return mfs_tpl_fail(r, -ENOTSUP, "abs of a %s", mfs_tpl_type_name(v));
}

/* ---- the table ---- */

struct filter {
	const char *name;
	mfs_tpl_function *apply;
	size_t most;		    /* arguments by place */
	const char *const names[5]; /* and by name */
};

static const struct filter filters[] = {
	{"abs", f_abs, 0, {NULL}},
	{"capitalize", f_capitalize, 0, {NULL}},
	{"count", f_length, 0, {NULL}},
	{"d", f_default, 2, {"default_value", "boolean"}},
	{"default", f_default, 2, {"default_value", "boolean"}},
	{"dictsort", f_dictsort, 0, {NULL}},
	{"first", f_first, 0, {NULL}},
	{"indent", f_indent, 3, {"width", "first", "blank"}},
	{"int", f_int, 0, {NULL}},
	{"items", f_items, 0, {NULL}},
	{"join", f_join, 2, {"d", "attribute"}},
	{"last", f_last, 0, {NULL}},
	{"length", f_length, 0, {NULL}},
	{"list", f_list, 0, {NULL}},
	{"lower", f_lower, 0, {NULL}},
	{"map", f_map, 3, {"attribute", "default"}},
	{"reject", f_reject, 2, {NULL}},
	{"rejectattr", f_rejectattr, 3, {NULL}},
	{"replace", f_replace, 3, {"old", "new", "count"}},
	{"reverse", f_reverse, 0, {NULL}},
	{"safe", f_safe, 0, {NULL}},
	{"select", f_select, 2, {NULL}},
	{"selectattr", f_selectattr, 3, {NULL}},
	{"string", f_string, 0, {NULL}},
	{"title", f_title, 0, {NULL}},
	{"tojson", f_tojson, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}},
	{"trim", f_trim, 1, {"chars"}},
	{"upper", f_upper, 0, {NULL}},
};

static const struct filter *find(value name)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(filters); i++)
		if (mfs_tpl_text_is(name, filters[i].name))
			return &filters[i];
	return NULL;
}

bool mfs_tpl_has_filter(value name)
{
	return find(name);
}

value mfs_tpl_filter(struct mfs_tpl_render *r, value name, value v, const struct mfs_tpl_args *args)
{
	const struct filter *f = find(name);

	if (!f)
		return mfs_tpl_fail(r, -ENOTSUP, "a filter is not known");
	if (v.safe && f->apply != f_safe && f->apply != f_string)
		return mfs_tpl_fail(r, -ENOTSUP, "'%s' of a text from the filter 'safe'", f->name);
	if (!mfs_tpl_check_args(r, f->name, args, f->most, f->names))
		return nothing();
	return f->apply(r, v, args);
}
