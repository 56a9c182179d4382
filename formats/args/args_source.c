#include "formats/args/args_source.h"

#include <string.h>

struct mfs_arg mfs_args_get(const struct mfs_args_source *s, const char *name)
{
	struct mfs_arg v = {.type = MFS_ARG_NONE};

	s->ops->get(s, name, &v);
	return v;
}

bool mfs_args_has(const struct mfs_args_source *s, const char *name)
{
	struct mfs_arg v = {.type = MFS_ARG_NONE};

	return s->ops->get(s, name, &v);
}

struct mfs_arg mfs_args_item(const struct mfs_args_source *s, struct mfs_arg of, uint32_t i)
{
	struct mfs_arg v = {.type = MFS_ARG_NONE};

	if (i < of.count)
		s->ops->item(s, &of, i, &v);
	return v;
}

bool mfs_arg_int(struct mfs_arg v, int64_t *ret)
{
	if (v.type != MFS_ARG_INT)
		return false;
	*ret = v.number;
	return true;
}

bool mfs_arg_bool(struct mfs_arg v, bool *ret)
{
	if (v.type != MFS_ARG_BOOL)
		return false;
	*ret = v.truth;
	return true;
}

bool mfs_arg_real(struct mfs_arg v, double *ret)
{
	if (v.type != MFS_ARG_INT && v.type != MFS_ARG_REAL)
		return false;
	*ret = v.type == MFS_ARG_INT ? (double)v.number : v.real;
	return true;
}

bool mfs_arg_text(struct mfs_arg v, const char **ret, size_t *ret_len)
{
	if (v.type != MFS_ARG_TEXT)
		return false;
	*ret = v.text;
	*ret_len = v.len;
	return true;
}

bool mfs_arg_is(struct mfs_arg v, const char *text)
{
	return v.type == MFS_ARG_TEXT && v.len == strlen(text) && !memcmp(v.text, text, v.len);
}

/* ---- a pickled Namespace ---- */

static struct mfs_arg value(const struct mfs_pickle *doc, mfs_value v)
{
	struct mfs_arg a = {
		.type = MFS_ARG_OTHER, .count = mfs_value_count(doc, v), .items = (uintptr_t)v};

	switch (mfs_value_type(doc, v)) {
	case MFS_V_NONE:
		a.type = MFS_ARG_NONE;
		break;
	case MFS_V_BOOL:
		a.type = MFS_ARG_BOOL;
		mfs_value_bool(doc, v, &a.truth);
		break;
	case MFS_V_INT:
		a.type = MFS_ARG_INT;
		mfs_value_int(doc, v, &a.number);
		break;
	case MFS_V_FLOAT:
		a.type = MFS_ARG_REAL;
		mfs_value_float(doc, v, &a.real);
		break;
	case MFS_V_STR:
		a.type = MFS_ARG_TEXT;
		mfs_value_str(doc, v, &a.text, &a.len);
		break;
	case MFS_V_LIST:
		a.type = MFS_ARG_LIST;
		break;
	case MFS_V_GLOBAL:
		a.type = MFS_ARG_CLASS;
		a.text = mfs_value_class(doc, v, &a.len);
		break;
	default:
		a.text = mfs_value_class(doc, v, &a.len);
		break;
	}
	return a;
}

static bool get_pickled(const struct mfs_args_source *s, const char *name, struct mfs_arg *ret)
{
	const struct mfs_pickle *doc = s->from;

	*ret = value(doc, mfs_value_attr(doc, s->args, name));
	return mfs_value_has(doc, mfs_value_state(doc, s->args), name);
}

static void item_pickled(const struct mfs_args_source *s, const struct mfs_arg *of, uint32_t i,
			 struct mfs_arg *ret)
{
	*ret = value(s->from, mfs_value_at(s->from, (mfs_value)of->items, i));
}

struct mfs_args_source mfs_args_of_pickle(const struct mfs_pickle *doc, mfs_value args)
{
	static const struct mfs_args_source_ops pickled = {get_pickled, item_pickled};

	return (struct mfs_args_source){&pickled, doc, args};
}
