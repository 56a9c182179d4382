/* Values, and what Python does with two of them. */
#define _GNU_SOURCE /* memmem() */
#include "formats/template/template_i.h"

#include <stdlib.h>

#include "formats/base/bytes.h"

struct mfs_tpl_value mfs_tpl_bool(bool truth)
{
	return (struct mfs_tpl_value){.kind = MFS_TPL_BOOL, .truth = truth};
}

struct mfs_tpl_value mfs_tpl_int(int64_t integer)
{
	return (struct mfs_tpl_value){.kind = MFS_TPL_INT, .integer = integer};
}

struct mfs_tpl_value mfs_tpl_text(const char *text, size_t len)
{
	return (struct mfs_tpl_value){.kind = MFS_TPL_TEXT, .text = text, .len = len};
}

struct mfs_tpl_value mfs_tpl_texts(const char *text)
{
	return mfs_tpl_text(text, strlen(text));
}

struct mfs_tpl_value mfs_tpl_undefined(struct mfs_tpl_value name)
{
	if (name.kind != MFS_TPL_TEXT)
		name = mfs_tpl_texts("an element");
	name.kind = MFS_TPL_UNDEFINED;
	name.safe = false;
	return name;
}

struct mfs_tpl_value mfs_tpl_none(void)
{
	return (struct mfs_tpl_value){.kind = MFS_TPL_NONE};
}

struct mfs_tpl_value mfs_tpl_list(struct mfs_tpl_render *r, enum mfs_tpl_list_type type,
				  size_t count)
{
	struct mfs_tpl_list *list = mfs_tpl_alloc(r, 1, sizeof(*list));

	if (!list)
		return mfs_tpl_undefined(mfs_tpl_none());
	list->type = type;
	list->at = mfs_tpl_alloc(r, count, sizeof(*list->at));
	list->count = list->at ? count : 0;
	return (struct mfs_tpl_value){.kind = MFS_TPL_LIST, .list = list};
}

struct mfs_tpl_value mfs_tpl_take(struct mfs_tpl_render *r, struct mfs_buf *b)
{
	char *copy = b->failed ? NULL : mfs_tpl_alloc(r, b->len + 1, 1);
	const size_t len = b->len;

	if (copy && len)
		memcpy(copy, b->data, len);
	mfs_buf_release(b);
	if (!copy)
		return mfs_tpl_fail(r, -ENOMEM, "out of memory");
	return mfs_tpl_text(copy, len);
}

static struct mfs_tpl_value dict_from_json(struct mfs_tpl_render *r, json_t *json)
{
	struct mfs_tpl_value v = {.kind = MFS_TPL_DICT,
				  .dict = mfs_tpl_alloc(r, 1, sizeof(*v.dict))};
	struct mfs_tpl_pair *pair;
	const char *key;
	json_t *member;

	if (!v.dict)
		return v;
	v.dict->room = json_object_size(json);
	v.dict->at = mfs_tpl_alloc(r, v.dict->room, sizeof(*v.dict->at));
	if (!v.dict->at)
		return v;
	json_object_foreach(json, key, member)
	{
		pair = &v.dict->at[v.dict->count++];
		pair->key = mfs_tpl_texts(key);
		pair->value = mfs_tpl_from_json(r, member);
	}
	return v;
}

static struct mfs_tpl_value list_from_json(struct mfs_tpl_render *r, json_t *json)
{
	struct mfs_tpl_value v = mfs_tpl_list(r, MFS_TPL_IS_LIST, json_array_size(json));

	for (size_t i = 0; !r->rc && i < v.list->count; i++)
		v.list->at[i] = mfs_tpl_from_json(r, json_array_get(json, i));
	return v;
}

/* Texts stay where jansson has them. */
struct mfs_tpl_value mfs_tpl_from_json(struct mfs_tpl_render *r, json_t *json)
{
	struct mfs_tpl_value v = mfs_tpl_none();

	switch (json_typeof(json)) {
	case JSON_OBJECT:
		if (++r->depth < MFS_TPL_DEEP)
			v = dict_from_json(r, json);
		else
			mfs_tpl_fail(r, -ENOTSUP, "values are too deep within each other");
		r->depth--;
		return v;
	case JSON_ARRAY:
		if (++r->depth < MFS_TPL_DEEP)
			v = list_from_json(r, json);
		else
			mfs_tpl_fail(r, -ENOTSUP, "values are too deep within each other");
		r->depth--;
		return v;
	case JSON_STRING:
		return mfs_tpl_text(json_string_value(json), json_string_length(json));
	case JSON_INTEGER:
		return mfs_tpl_int(json_integer_value(json));
	case JSON_REAL:
		v.kind = MFS_TPL_REAL;
		v.real = json_real_value(json);
		return v;
	case JSON_NULL:
		return v;
	default:
		return mfs_tpl_bool(json_is_true(json));
	}
}

const char *mfs_tpl_type_name(struct mfs_tpl_value v)
{
	static const char *const names[] = {
		[MFS_TPL_UNDEFINED] = "undefined value",
		[MFS_TPL_NONE] = "None",
		[MFS_TPL_BOOL] = "bool",
		[MFS_TPL_INT] = "int",
		[MFS_TPL_REAL] = "float",
		[MFS_TPL_TEXT] = "str",
		[MFS_TPL_LIST] = "list",
		[MFS_TPL_DICT] = "dict",
		[MFS_TPL_NAMESPACE] = "namespace",
		[MFS_TPL_LOOP] = "loop",
		[MFS_TPL_CALLABLE] = "function",
	};

	return names[v.kind];
}

bool mfs_tpl_text_is(struct mfs_tpl_value v, const char *what)
{
	return v.kind == MFS_TPL_TEXT && v.len == strlen(what) && !memcmp(v.text, what, v.len);
}

bool mfs_tpl_is_number(struct mfs_tpl_value v)
{
	return v.kind == MFS_TPL_BOOL || v.kind == MFS_TPL_INT || v.kind == MFS_TPL_REAL;
}

double mfs_tpl_real_of(struct mfs_tpl_value v)
{
	return v.kind == MFS_TPL_REAL  ? v.real
	       : v.kind == MFS_TPL_INT ? (double)v.integer
				       : (double)v.truth;
}

static int64_t int_of(struct mfs_tpl_value v)
{
	return v.kind == MFS_TPL_INT ? v.integer : v.truth;
}

bool mfs_tpl_truth(struct mfs_tpl_render *r, struct mfs_tpl_value v)
{
	(void)r;
	switch (v.kind) {
	case MFS_TPL_UNDEFINED:
	case MFS_TPL_NONE:
		return false;
	case MFS_TPL_BOOL:
		return v.truth;
	case MFS_TPL_INT:
		return v.integer;
	case MFS_TPL_REAL:
		return v.real != 0;
	case MFS_TPL_TEXT:
		return v.len;
	case MFS_TPL_LIST:
		return v.list->count || v.list->type == MFS_TPL_IS_GENERATOR;
	case MFS_TPL_DICT:
		return v.dict->count;
	default:
		return true;
	}
}

/* ---- == ---- */

static bool equal_lists(struct mfs_tpl_render *r, const struct mfs_tpl_list *a,
			const struct mfs_tpl_list *b)
{
	if (a == b)
		return true;
	if (a->type > MFS_TPL_IS_TUPLE || b->type > MFS_TPL_IS_TUPLE)
		mfs_tpl_fail(r, -ENOTSUP, "a generator, a range or a view of a dict is compared");
	if (a->type != b->type || a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (!mfs_tpl_equal(r, a->at[i], b->at[i]))
			return false;
	return true;
}

static bool equal_dicts(struct mfs_tpl_render *r, const struct mfs_tpl_dict *a,
			const struct mfs_tpl_dict *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct mfs_tpl_value *other = mfs_tpl_dict_find(r, b, a->at[i].key);

		if (!other || !mfs_tpl_equal(r, a->at[i].value, *other))
			return false;
	}
	return true;
}

static bool equal_same_kind(struct mfs_tpl_render *r, struct mfs_tpl_value a,
			    struct mfs_tpl_value b)
{
	switch (a.kind) {
	case MFS_TPL_TEXT:
		if (a.safe || b.safe)
			mfs_tpl_fail(r, -ENOTSUP, "a text from the filter 'safe' is compared");
		return a.len == b.len && mfs_tpl_work(r, a.len) && !memcmp(a.text, b.text, a.len);
	case MFS_TPL_LIST:
		return equal_lists(r, a.list, b.list);
	case MFS_TPL_DICT:
		return equal_dicts(r, a.dict, b.dict);
	case MFS_TPL_NAMESPACE:
		return a.dict == b.dict;
	case MFS_TPL_LOOP:
		return a.loop == b.loop;
	case MFS_TPL_CALLABLE:
		mfs_tpl_fail(r, -ENOTSUP, "functions are compared");
		return false;
	default:
		return true; /* None, undefined */
	}
}

bool mfs_tpl_equal(struct mfs_tpl_render *r, struct mfs_tpl_value a, struct mfs_tpl_value b)
{
	bool equal = false;

	if (!mfs_tpl_work(r, 0))
		return false;
	if (mfs_tpl_is_number(a) && mfs_tpl_is_number(b)) {
		if (a.kind != MFS_TPL_REAL && b.kind != MFS_TPL_REAL)
			return int_of(a) == int_of(b);
		return mfs_tpl_real_of(a) == mfs_tpl_real_of(b);
	}
	if (a.kind != b.kind)
		return false;
	if (++r->depth < MFS_TPL_DEEP)
		equal = equal_same_kind(r, a, b);
	else
		mfs_tpl_fail(r, -ENOTSUP, "values are too deep within each other");
	r->depth--;
	return equal;
}

/* ---- in, <, len(), iter() ---- */

bool mfs_tpl_contains(struct mfs_tpl_render *r, struct mfs_tpl_value in, struct mfs_tpl_value what)
{
	switch (in.kind) {
	case MFS_TPL_UNDEFINED:
		return false;
	case MFS_TPL_TEXT:
		if (what.kind != MFS_TPL_TEXT)
			mfs_tpl_fail(r, -EINVAL, "'in' a str asks for a %s",
				     mfs_tpl_type_name(what));
		else
			return mfs_tpl_work(r, in.len) &&
			       (!what.len || memmem(in.text, in.len, what.text, what.len));
		return false;
	case MFS_TPL_LIST:
		if (in.list->type == MFS_TPL_IS_GENERATOR) {
			mfs_tpl_fail(r, -ENOTSUP, "'in' a generator");
			return false;
		}
		for (size_t i = 0; i < in.list->count && !r->rc; i++)
			if (mfs_tpl_equal(r, in.list->at[i], what))
				return true;
		return false;
	case MFS_TPL_DICT:
		return mfs_tpl_dict_find(r, in.dict, what);
	default:
		mfs_tpl_fail(r, -EINVAL, "'in' a %s", mfs_tpl_type_name(in));
		return false;
	}
}

int mfs_tpl_order(struct mfs_tpl_render *r, struct mfs_tpl_value a, struct mfs_tpl_value b)
{
	if (mfs_tpl_is_number(a) && mfs_tpl_is_number(b)) {
		const double x = mfs_tpl_real_of(a), y = mfs_tpl_real_of(b);

		if (a.kind != MFS_TPL_REAL && b.kind != MFS_TPL_REAL)
			return (int_of(a) > int_of(b)) - (int_of(a) < int_of(b));
		return (x > y) - (x < y);
	}
	if (a.kind == MFS_TPL_TEXT && b.kind == MFS_TPL_TEXT) {
		const size_t len = a.len < b.len ? a.len : b.len;
		const int order = mfs_tpl_work(r, len) ? memcmp(a.text, b.text, len) : 0;

		return order < 0 ? -1 : order ? 1 : (a.len > b.len) - (a.len < b.len);
	}
	mfs_tpl_fail(r, a.kind == MFS_TPL_LIST && b.kind == MFS_TPL_LIST ? -ENOTSUP : -EINVAL,
		     "a %s and a %s have no order", mfs_tpl_type_name(a), mfs_tpl_type_name(b));
	return 0;
}

int64_t mfs_tpl_length(struct mfs_tpl_render *r, struct mfs_tpl_value v)
{
	switch (v.kind) {
	case MFS_TPL_UNDEFINED:
		return 0;
	case MFS_TPL_TEXT:
		return mfs_tpl_work(r, v.len) ? (int64_t)mfs_tpl_chars(v.text, v.len) : 0;
	case MFS_TPL_DICT:
		return (int64_t)v.dict->count;
	case MFS_TPL_LIST:
		if (v.list->type != MFS_TPL_IS_GENERATOR)
			return (int64_t)v.list->count;
		mfs_tpl_fail(r, -EINVAL, "a generator has no length");
		return 0;
	default:
		mfs_tpl_fail(r, -EINVAL, "a %s has no length", mfs_tpl_type_name(v));
		return 0;
	}
}

static struct mfs_tpl_value characters(struct mfs_tpl_render *r, struct mfs_tpl_value v)
{
	struct mfs_tpl_value list = mfs_tpl_list(r, MFS_TPL_IS_LIST, mfs_tpl_chars(v.text, v.len));
	const char *at = v.text, *end = at + v.len, *begin;

	for (size_t i = 0; !r->rc && i < list.list->count; i++) {
		begin = at;
		mfs_tpl_next_char(&at, end);
		list.list->at[i] = mfs_tpl_text(begin, (size_t)(at - begin));
	}
	return list;
}

static struct mfs_tpl_value keys(struct mfs_tpl_render *r, const struct mfs_tpl_dict *d)
{
	struct mfs_tpl_value list = mfs_tpl_list(r, MFS_TPL_IS_LIST, d->count);

	for (size_t i = 0; !r->rc && i < d->count; i++)
		list.list->at[i] = d->at[i].key;
	return list;
}

const struct mfs_tpl_list *mfs_tpl_iterate(struct mfs_tpl_render *r, struct mfs_tpl_value v)
{
	static const struct mfs_tpl_list nothing;

	if (v.kind == MFS_TPL_TEXT)
		v = characters(r, v);
	else if (v.kind == MFS_TPL_DICT)
		v = keys(r, v.dict);
	else if (v.kind != MFS_TPL_LIST && v.kind != MFS_TPL_UNDEFINED)
		mfs_tpl_fail(r, -EINVAL, "a %s cannot be gone through", mfs_tpl_type_name(v));
	if (r->rc || v.kind != MFS_TPL_LIST)
		return &nothing;
	if (v.list->spent) {
		mfs_tpl_fail(r, -ENOTSUP, "a generator is gone through twice");
		return &nothing;
	}
	v.list->spent = v.list->type == MFS_TPL_IS_GENERATOR;
	return v.list;
}

/* ---- dicts ---- */

struct mfs_tpl_value *mfs_tpl_dict_find(struct mfs_tpl_render *r, const struct mfs_tpl_dict *d,
					struct mfs_tpl_value key)
{
	if (key.kind == MFS_TPL_LIST || key.kind == MFS_TPL_DICT) {
		mfs_tpl_fail(r, -EINVAL, "a %s is no key", mfs_tpl_type_name(key));
		return NULL;
	}
	for (size_t i = 0; i < d->count && !r->rc; i++)
		if (mfs_tpl_equal(r, d->at[i].key, key))
			return &d->at[i].value;
	return NULL;
}

void mfs_tpl_dict_set(struct mfs_tpl_render *r, struct mfs_tpl_dict *d, struct mfs_tpl_value key,
		      struct mfs_tpl_value value)
{
	struct mfs_tpl_value *old = mfs_tpl_dict_find(r, d, key);
	struct mfs_tpl_pair *grown;

	if (r->rc)
		return;
	if (old) {
		*old = value;
		return;
	}
	if (d->count == d->room) {
		grown = mfs_tpl_alloc(r, d->room * 2 + 4, sizeof(*grown));
		if (!grown)
			return;
		if (d->count)
			memcpy(grown, d->at, d->count * sizeof(*grown));
		d->at = grown;
		d->room = d->room * 2 + 4;
	}
	d->at[d->count++] = (struct mfs_tpl_pair){key, value};
}
