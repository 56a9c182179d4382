#include "formats/torch/pickle_tree_i.h"

#include <errno.h>
#include <string.h>

#include "formats/torch/pickle_index.h"

mfs_value mfs_pickle_root(const struct mfs_pickle *doc)
{
	return doc->root;
}

mfs_value mfs_pickle_values(const struct mfs_pickle *doc)
{
	return doc->nodes.count;
}

size_t mfs_pickle_length(const struct mfs_pickle *doc)
{
	return doc->length;
}

enum mfs_value_type mfs_value_type(const struct mfs_pickle *doc, mfs_value v)
{
	return (enum mfs_value_type)mfs_pickle_node(doc, v)->type;
}

enum mfs_pickled_kind mfs_value_form(const struct mfs_pickle *doc, mfs_value v)
{
	return (enum mfs_pickled_kind)mfs_pickle_node(doc, v)->form;
}

bool mfs_value_is_none(const struct mfs_pickle *doc, mfs_value v)
{
	return mfs_value_type(doc, v) == MFS_V_NONE;
}

bool mfs_value_int(const struct mfs_pickle *doc, mfs_value v, int64_t *ret)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	if (n->type != MFS_V_INT)
		return false;
	*ret = n->u.i;
	return true;
}

bool mfs_value_bool(const struct mfs_pickle *doc, mfs_value v, bool *ret)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	if (n->type != MFS_V_BOOL)
		return false;
	*ret = n->u.i;
	return true;
}

bool mfs_value_float(const struct mfs_pickle *doc, mfs_value v, double *ret)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	if (n->type == MFS_V_FLOAT)
		*ret = n->u.f;
	else if (n->type == MFS_V_INT)
		*ret = (double)n->u.i;
	else
		return false;
	return true;
}

static const uint8_t *value_text(const struct mfs_pickle *doc, mfs_value v,
				 enum mfs_value_type type, size_t *ret_len)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	if (n->type != type)
		return NULL;
	*ret_len = n->a;
	return doc->bytes + n->u.i;
}

bool mfs_value_str(const struct mfs_pickle *doc, mfs_value v, const char **ret, size_t *ret_len)
{
	const uint8_t *text = value_text(doc, v, MFS_V_STR, ret_len);

	if (text)
		*ret = (const char *)text;
	return text;
}

bool mfs_value_bytes(const struct mfs_pickle *doc, mfs_value v, const uint8_t **ret,
		     size_t *ret_len)
{
	const uint8_t *bytes = value_text(doc, v, MFS_V_BYTES, ret_len);

	if (bytes)
		*ret = bytes;
	return bytes;
}

bool mfs_value_bigint(const struct mfs_pickle *doc, mfs_value v, const uint8_t **ret,
		      size_t *ret_len)
{
	const uint8_t *bytes = value_text(doc, v, MFS_V_BIGINT, ret_len);

	if (bytes)
		*ret = bytes;
	return bytes;
}

bool mfs_value_is_str(const struct mfs_pickle *doc, mfs_value v, const char *text)
{
	const char *s;
	size_t len;

	return mfs_value_str(doc, v, &s, &len) && len == strlen(text) && !memcmp(s, text, len);
}

/* The extra of an object; an empty one for other values and for objects without. */
static const struct mfs_pickle_extra *extra_of(const struct mfs_pickle *doc, mfs_value v)
{
	static const struct mfs_pickle_extra nothing;
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);
	const struct mfs_pickle_extra *x = NULL;

	if (n->type == MFS_V_OBJECT)
		x = mfs_pickle_extra(doc, n);
	return x ? x : &nothing;
}

/* The node that holds the items of v (a LIST, TUPLE or SET): v itself, or a part of an object. */
static const struct mfs_pickle_node *items_of(const struct mfs_pickle *doc, mfs_value v)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	if (n->type == MFS_V_OBJECT)
		n = mfs_pickle_node(doc, extra_of(doc, v)->items);
	return n->type == MFS_V_LIST || n->type == MFS_V_TUPLE || n->type == MFS_V_SET
		       ? n
		       : mfs_pickle_node(doc, MFS_VALUE_EMPTY_TUPLE);
}

/* The same of pairs: a DICT. */
static const struct mfs_pickle_node *pairs_of(const struct mfs_pickle *doc, mfs_value v)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	if (n->type == MFS_V_OBJECT)
		n = mfs_pickle_node(doc, extra_of(doc, v)->pairs);
	return n->type == MFS_V_DICT ? n : mfs_pickle_node(doc, MFS_VALUE_EMPTY_TUPLE);
}

uint32_t mfs_value_count(const struct mfs_pickle *doc, mfs_value v)
{
	return items_of(doc, v)->a;
}

mfs_value mfs_value_at(const struct mfs_pickle *doc, mfs_value v, uint32_t i)
{
	const struct mfs_pickle_node *n = items_of(doc, v);

	return i < n->a ? n->u.items[i] : MFS_VALUE_NONE;
}

uint32_t mfs_value_pairs(const struct mfs_pickle *doc, mfs_value v)
{
	return pairs_of(doc, v)->a / 2;
}

mfs_value mfs_value_key(const struct mfs_pickle *doc, mfs_value v, uint32_t i)
{
	const struct mfs_pickle_node *n = pairs_of(doc, v);

	return i < n->a / 2 ? n->u.items[2 * i] : MFS_VALUE_NONE;
}

mfs_value mfs_value_item(const struct mfs_pickle *doc, mfs_value v, uint32_t i)
{
	const struct mfs_pickle_node *n = pairs_of(doc, v);

	return i < n->a / 2 ? n->u.items[2 * i + 1] : MFS_VALUE_NONE;
}

/* The value under a key. Pairs are searched from the end, because a key that is set twice keeps its
 * last value. */
static bool find_key(const struct mfs_pickle *doc, mfs_value v, const char *key, mfs_value *ret)
{
	const struct mfs_pickle_node *n = pairs_of(doc, v);
	const bool is_long = n->a / 2 > MFS_PICKLE_LONG;
	uint32_t pair = 0;
	int rc = is_long ? mfs_pickle_index_find(doc->indices, doc, v, key, &pair) : -ENOMEM;

	if (!rc)
		*ret = n->u.items[2 * pair + 1];
	if (rc != -ENOMEM)
		return !rc;
	for (uint32_t i = n->a / 2; i-- > 0;) {
		if (!mfs_value_is_str(doc, n->u.items[2 * i], key))
			continue;
		*ret = n->u.items[2 * i + 1];
		return true;
	}
	return false;
}

mfs_value mfs_value_get(const struct mfs_pickle *doc, mfs_value v, const char *key)
{
	mfs_value item = MFS_VALUE_NONE;

	find_key(doc, v, key, &item);
	return item;
}

bool mfs_value_has(const struct mfs_pickle *doc, mfs_value v, const char *key)
{
	mfs_value item;

	return find_key(doc, v, key, &item);
}

mfs_value mfs_value_callable(const struct mfs_pickle *doc, mfs_value v)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	return n->type == MFS_V_OBJECT ? n->a : MFS_VALUE_NONE;
}

mfs_value mfs_value_args(const struct mfs_pickle *doc, mfs_value v)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	return n->type == MFS_V_OBJECT ? n->u.p.b : MFS_VALUE_NONE;
}

mfs_value mfs_value_kwargs(const struct mfs_pickle *doc, mfs_value v)
{
	return extra_of(doc, v)->kwargs;
}

mfs_value mfs_value_state(const struct mfs_pickle *doc, mfs_value v)
{
	return extra_of(doc, v)->state;
}

mfs_value mfs_value_persid(const struct mfs_pickle *doc, mfs_value v)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	return n->type == MFS_V_PERSID ? n->a : MFS_VALUE_NONE;
}

mfs_value mfs_value_attr(const struct mfs_pickle *doc, mfs_value v, const char *name)
{
	mfs_value state = mfs_value_state(doc, v);

	if (mfs_value_type(doc, state) == MFS_V_TUPLE)
		state = mfs_value_at(doc, state, 0); /* (dict, slots) */
	return mfs_value_get(doc, state, name);
}

bool mfs_value_is_global(const struct mfs_pickle *doc, mfs_value v, const char *module,
			 const char *name)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	return n->type == MFS_V_GLOBAL && mfs_value_is_str(doc, n->a, module) &&
	       mfs_value_is_str(doc, n->u.p.b, name);
}

bool mfs_value_global(const struct mfs_pickle *doc, mfs_value v, const char **ret_module,
		      size_t *ret_module_len, const char **ret_name, size_t *ret_name_len)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);

	return n->type == MFS_V_GLOBAL && mfs_value_str(doc, n->a, ret_module, ret_module_len) &&
	       mfs_value_str(doc, n->u.p.b, ret_name, ret_name_len);
}

const char *mfs_value_class(const struct mfs_pickle *doc, mfs_value v, size_t *ret_len)
{
	const struct mfs_pickle_node *n = mfs_pickle_node(doc, v);
	const char *text = "";
	size_t len = 0;

	if (n->type == MFS_V_OBJECT)
		n = mfs_pickle_node(doc, n->a);
	if (n->type == MFS_V_GLOBAL)
		mfs_value_str(doc, n->u.p.b, &text, &len);
	if (memchr(text, 0, len)) /* no class has such a name, and its beginning is another's */
		len = 0;
	*ret_len = len;
	return len ? text : "";
}

bool mfs_value_is_object_of(const struct mfs_pickle *doc, mfs_value v, const char *class_name)
{
	size_t len;
	const char *text = mfs_value_class(doc, v, &len);

	return mfs_value_type(doc, v) == MFS_V_OBJECT && len == strlen(class_name) &&
	       !memcmp(text, class_name, len);
}
