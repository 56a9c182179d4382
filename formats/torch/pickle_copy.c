#include <string.h>

#include "formats/base/bytes.h"
#include "formats/torch/pickle_write_i.h"

#define MAX_NAME 64 /* texts up to here are memoised: keys and enum names repeat, prose does not */

static const struct mfs_pickle_hooks no_hooks;

/* Errors go to the writer's record, because a copy that failed has left half a value there. */
struct copier {
	struct mfs_pickle_writer *w;
	const struct mfs_pickle *doc;
	const struct mfs_pickle_hooks *hooks;
	size_t start;
	uint64_t limit;
	uint64_t asked; /* pairs that may have cost time and no bytes */
};

static int copy_value(struct copier *c, mfs_value v, unsigned depth);

static int copy_text(struct copier *c, mfs_value v)
{
	const char *text = NULL;
	size_t len = 0;

	mfs_value_str(c->doc, v, &text, &len);
	if (len <= MAX_NAME)
		mfs_pickle_namen(c->w, text, len);
	else
		mfs_pickle_strn(c->w, text, len);
	return 0;
}

static int copy_scalar(struct copier *c, mfs_value v)
{
	const struct mfs_pickle *doc = c->doc;
	const uint8_t *bytes = NULL;
	int64_t i = 0;
	size_t len = 0;
	double f = 0;
	bool b = false;

	if (mfs_value_bool(doc, v, &b))
		mfs_pickle_bool(c->w, b);
	else if (mfs_value_int(doc, v, &i))
		mfs_pickle_int(c->w, i);
	else if (mfs_value_float(doc, v, &f))
		mfs_pickle_float(c->w, f);
	else if (mfs_value_bigint(doc, v, &bytes, &len))
		mfs_pickle_long(c->w, bytes, len);
	else if (!mfs_value_bytes(doc, v, &bytes, &len))
		mfs_pickle_none(c->w);
	else if (mfs_value_form(doc, v) == MFS_FORM_BYTEARRAY)
		mfs_pickle_bytearray(c->w, bytes, len);
	else
		mfs_pickle_bytes(c->w, bytes, len);
	return 0;
}

static int copy_global(struct copier *c, mfs_value v)
{
	struct mfs_text module, name;

	if (!mfs_value_global(c->doc, v, &module.at, &module.len, &name.at, &name.len))
		return mfs_fail(&c->w->failure, -EINVAL, "a class has no name");
	mfs_pickle_globaln(c->w, module, name);
	return 0;
}

/* batches: the items are appended to the list on the stack, some at a time. */
static int copy_each(struct copier *c, mfs_value v, bool batches, unsigned depth)
{
	uint32_t count = mfs_value_count(c->doc, v);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		if (batches)
			mfs_pickle_batch(c->w, MFS_OP_APPENDS, i);
		rc = copy_value(c, mfs_value_at(c->doc, v, i), depth);
	}
	return rc;
}

/* APPENDS to the list, or list subclass object, on the stack. */
static int copy_items(struct copier *c, mfs_value v, unsigned depth)
{
	int rc;

	if (!mfs_value_count(c->doc, v))
		return 0;
	mfs_pickle_op(c->w, MFS_OP_MARK);
	rc = copy_each(c, v, true, depth);
	mfs_pickle_op(c->w, MFS_OP_APPENDS);
	return rc;
}

static int copy_tuple(struct copier *c, mfs_value v, unsigned depth)
{
	uint32_t count = mfs_value_count(c->doc, v);
	int rc;

	mfs_pickle_tuple_begin(c->w, count);
	rc = copy_each(c, v, false, depth);
	mfs_pickle_tuple_end(c->w, count);
	return rc;
}

static int copy_set(struct copier *c, mfs_value v, unsigned depth)
{
	const bool frozen = mfs_value_form(c->doc, v) == MFS_FORM_FROZENSET;
	int rc;

	if (c->w->protocol >= 4) {
		if (!frozen)
			mfs_pickle_op(c->w, MFS_OP_EMPTY_SET);
		mfs_pickle_op(c->w, MFS_OP_MARK);
		rc = copy_each(c, v, false, depth);
		mfs_pickle_op(c->w, frozen ? MFS_OP_FROZENSET : MFS_OP_ADDITEMS);
		return rc;
	}
	/* Protocol 2 has no opcodes for sets: the class is called with a list. */
	mfs_pickle_global(c->w, "builtins", frozen ? "frozenset" : "set");
	mfs_pickle_op(c->w, MFS_OP_EMPTY_LIST);
	rc = copy_items(c, v, depth);
	mfs_pickle_op(c->w, MFS_OP_TUPLE1);
	mfs_pickle_op(c->w, MFS_OP_REDUCE);
	return rc;
}

static int copy_pair(struct copier *c, mfs_value dict, uint32_t i, unsigned depth)
{
	mfs_value key = mfs_value_key(c->doc, dict, i), item = mfs_value_item(c->doc, dict, i);
	const char *text;
	size_t len;
	int rc;

	if (c->hooks->pair && mfs_value_str(c->doc, key, &text, &len)) {
		rc = c->hooks->pair(c->hooks->arg, c->w, dict, text, len, item, &c->w->failure);
		c->asked++;
		if (rc)
			return rc < 0 ? rc : 0;
	}
	rc = copy_value(c, key, depth);
	return rc ? rc : copy_value(c, item, depth);
}

/* SETITEMS to the dict, or dict subclass object, on the stack; nothing if no pair is left. */
static int copy_pairs(struct copier *c, mfs_value v, unsigned depth)
{
	uint32_t pairs = mfs_value_pairs(c->doc, v);
	size_t start = c->w->out->len;
	int rc = 0;

	mfs_pickle_op(c->w, MFS_OP_MARK);
	for (uint32_t i = 0; i < pairs && !rc; i++) {
		mfs_pickle_batch(c->w, MFS_OP_SETITEMS, i);
		rc = copy_pair(c, v, i, depth);
	}
	if (!rc && c->hooks->pairs_end)
		rc = c->hooks->pairs_end(c->hooks->arg, c->w, v, &c->w->failure);
	if (c->w->out->len == start + 1)
		mfs_pickle_cut(c->w, start);
	else
		mfs_pickle_op(c->w, MFS_OP_SETITEMS);
	return rc;
}

static int copy_call(struct copier *c, mfs_value v, unsigned depth)
{
	mfs_value kwargs = mfs_value_kwargs(c->doc, v);
	int rc = copy_value(c, mfs_value_callable(c->doc, v), depth);

	if (!rc)
		rc = copy_value(c, mfs_value_args(c->doc, v), depth);
	if (mfs_value_form(c->doc, v) != MFS_FORM_NEWOBJ) {
		mfs_pickle_op(c->w, MFS_OP_REDUCE);
	} else if (mfs_value_is_none(c->doc, kwargs)) {
		mfs_pickle_op(c->w, MFS_OP_NEWOBJ);
	} else {
		/* Of protocol 4, but Python's readers do not ask which protocol an opcode is of. */
		if (!rc)
			rc = copy_value(c, kwargs, depth);
		mfs_pickle_op(c->w, MFS_OP_NEWOBJ_EX);
	}
	return rc;
}

/* In the order of Python's save_reduce(): the call, items, pairs, state. */
static int copy_object(struct copier *c, mfs_value v, unsigned depth)
{
	mfs_value state = mfs_value_state(c->doc, v);
	int rc = copy_call(c, v, depth);

	if (!rc)
		rc = copy_items(c, v, depth);
	if (!rc && (mfs_value_pairs(c->doc, v) || mfs_value_is_object_of(c->doc, v, "OrderedDict")))
		rc = copy_pairs(c, v, depth);
	if (rc || mfs_value_is_none(c->doc, state))
		return rc;
	rc = copy_value(c, state, depth);
	mfs_pickle_op(c->w, MFS_OP_BUILD);
	return rc;
}

/* ('storage', class, key, location, numel) with another key and location. */
static int copy_storage(struct copier *c, mfs_value id, unsigned depth)
{
	const struct mfs_pickle *doc = c->doc;
	uint32_t storage = 0;
	const char *key;
	size_t len;
	int rc;

	if (mfs_value_count(doc, id) != 5 ||
	    !mfs_value_is_str(doc, mfs_value_at(doc, id, 0), "storage") ||
	    !mfs_value_str(doc, mfs_value_at(doc, id, 2), &key, &len))
		return mfs_fail(&c->w->failure, -ENOTSUP, "a persistent id is not a storage");
	rc = c->hooks->storage(c->hooks->arg, id, key, len, &storage, &c->w->failure);
	if (rc)
		return rc;
	mfs_pickle_op(c->w, MFS_OP_MARK);
	mfs_pickle_name(c->w, "storage");
	rc = copy_value(c, mfs_value_at(doc, id, 1), depth);
	mfs_pickle_storage_key(c->w, storage);
	mfs_pickle_name(c->w, "cpu");
	if (!rc)
		rc = copy_value(c, mfs_value_at(doc, id, 4), depth);
	mfs_pickle_op(c->w, MFS_OP_TUPLE);
	return rc;
}

static int copy_persid(struct copier *c, mfs_value v, unsigned depth)
{
	mfs_value id = mfs_value_persid(c->doc, v);
	int rc = c->hooks->storage ? copy_storage(c, id, depth) : copy_value(c, id, depth);

	mfs_pickle_op(c->w, MFS_OP_BINPERSID);
	return rc;
}

static int copy_container(struct copier *c, mfs_value v, unsigned depth)
{
	int rc = 0;

	if (depth > MFS_PICKLE_COPY_DEPTH)
		return mfs_fail(&c->w->failure, -ENOTSUP,
				"values nested more than %d deep cannot be copied",
				MFS_PICKLE_COPY_DEPTH);
	if (c->hooks->value)
		rc = c->hooks->value(c->hooks->arg, c->w, v, &c->w->failure);
	if (rc)
		return rc < 0 ? rc : 0;
	switch (mfs_value_type(c->doc, v)) {
	case MFS_V_LIST:
		mfs_pickle_op(c->w, MFS_OP_EMPTY_LIST);
		return copy_items(c, v, depth + 1);
	case MFS_V_TUPLE:
		return copy_tuple(c, v, depth + 1);
	case MFS_V_DICT:
		mfs_pickle_op(c->w, MFS_OP_EMPTY_DICT);
		return copy_pairs(c, v, depth + 1);
	case MFS_V_SET:
		return copy_set(c, v, depth + 1);
	case MFS_V_OBJECT:
		return copy_object(c, v, depth + 1);
	default:
		return copy_persid(c, v, depth + 1);
	}
}

static int copy_value(struct copier *c, mfs_value v, unsigned depth)
{
	if (c->w->failure.code)
		return c->w->failure.code;
	if (c->w->out->failed)
		return mfs_fail_nomem(&c->w->failure);
	if (c->w->out->len - c->start + c->asked > c->limit)
		return mfs_fail(
			&c->w->failure, -ENOTSUP,
			"a copy of more than %llu bytes (does it refer to one value again and "
			"again?)",
			(unsigned long long)c->limit);
	switch (mfs_value_type(c->doc, v)) {
	case MFS_V_DISCARDED:
		return mfs_fail(&c->w->failure, -EINVAL, "a value that was not kept");
	case MFS_V_STR:
		return copy_text(c, v);
	case MFS_V_GLOBAL:
		return copy_global(c, v);
	case MFS_V_LIST:
	case MFS_V_TUPLE:
	case MFS_V_DICT:
	case MFS_V_SET:
	case MFS_V_OBJECT:
	case MFS_V_PERSID:
		return copy_container(c, v, depth);
	default:
		return copy_scalar(c, v);
	}
}

int mfs_pickle_copy(struct mfs_pickle_writer *w, const struct mfs_pickle *doc, mfs_value v,
		    const struct mfs_pickle_hooks *hooks, struct mfs_error *err)
{
	struct copier c = {
		.w = w, .doc = doc, .hooks = hooks ? hooks : &no_hooks, .start = w->out->len};
	int rc;

	c.limit = c.hooks->limit ? c.hooks->limit : MFS_PICKLE_COPY_LIMIT;
	rc = copy_value(&c, v, 0);
	if (!rc)
		rc = w->failure.code;
	if (!rc && w->out->failed)
		rc = mfs_fail_nomem(&w->failure);
	if (!rc)
		return 0;
	if (!w->failure.code) /* a hook that reported nothing */
		mfs_error_set(&w->failure, rc, "the copy was given up");
	return mfs_fail(err, rc, "%s", w->failure.msg);
}
