/* Tests: `a is defined`. Source: jinja2/tests.py. */
#include "formats/template/template_i.h"

#include "formats/base/array.h"

typedef struct mfs_tpl_value value;

enum test {
	IS_BOOLEAN,
	IS_CALLABLE,
	IS_DEFINED,
	IS_EQUAL,
	IS_EVEN,
	IS_FALSE,
	IS_FLOAT,
	IS_GREATER,
	IS_GREATER_OR_EQUAL,
	IS_IN,
	IS_INTEGER,
	IS_ITERABLE,
	IS_LESS,
	IS_LESS_OR_EQUAL,
	IS_MAPPING,
	IS_NONE,
	IS_NOT_EQUAL,
	IS_NUMBER,
	IS_ODD,
	IS_SEQUENCE,
	IS_STRING,
	IS_TRUE,
	IS_UNDEFINED,
};

static const struct {
	const char *name;
	enum test test;
	size_t args;
} tests[] = {
	{"boolean", IS_BOOLEAN, 0},
	{"callable", IS_CALLABLE, 0},
	{"defined", IS_DEFINED, 0},
	{"eq", IS_EQUAL, 1},
	{"equalto", IS_EQUAL, 1},
	{"even", IS_EVEN, 0},
	{"false", IS_FALSE, 0},
	{"float", IS_FLOAT, 0},
	{"ge", IS_GREATER_OR_EQUAL, 1},
	{"greaterthan", IS_GREATER, 1},
	{"gt", IS_GREATER, 1},
	{"in", IS_IN, 1},
	{"integer", IS_INTEGER, 0},
	{"iterable", IS_ITERABLE, 0},
	{"le", IS_LESS_OR_EQUAL, 1},
	{"lessthan", IS_LESS, 1},
	{"lt", IS_LESS, 1},
	{"mapping", IS_MAPPING, 0},
	{"ne", IS_NOT_EQUAL, 1},
	{"none", IS_NONE, 0},
	{"number", IS_NUMBER, 0},
	{"odd", IS_ODD, 0},
	{"sequence", IS_SEQUENCE, 0},
	{"string", IS_STRING, 0},
	{"true", IS_TRUE, 0},
	{"undefined", IS_UNDEFINED, 0},
};

/* MFS_ARRAY_SIZE(tests): there is none. */
static size_t find(value name)
{
	size_t i = 0;

	while (i < MFS_ARRAY_SIZE(tests) && !mfs_tpl_text_is(name, tests[i].name))
		i++;
	return i;
}

bool mfs_tpl_has_test(value name)
{
	return find(name) < MFS_ARRAY_SIZE(tests);
}

/* What has a length and elements by number: a namespace and a loop have none. */
static bool is_sequence(value v)
{
	return v.kind == MFS_TPL_TEXT || v.kind == MFS_TPL_DICT || v.kind == MFS_TPL_UNDEFINED ||
	       (v.kind == MFS_TPL_LIST && v.list->type < MFS_TPL_IS_VIEW);
}

static bool odd(struct mfs_tpl_render *r, value v)
{
	if (v.kind != MFS_TPL_INT)
		mfs_tpl_fail(r, -ENOTSUP, "whether a %s is odd", mfs_tpl_type_name(v));
	return v.integer & 1;
}

static bool compares(struct mfs_tpl_render *r, enum test test, value v, value other)
{
	switch (test) {
	case IS_EQUAL:
		return mfs_tpl_equal(r, v, other);
	case IS_NOT_EQUAL:
		return !mfs_tpl_equal(r, v, other);
	case IS_GREATER:
		return mfs_tpl_order(r, v, other) > 0;
	case IS_GREATER_OR_EQUAL:
		return mfs_tpl_order(r, v, other) >= 0;
	case IS_LESS:
		return mfs_tpl_order(r, v, other) < 0;
	case IS_LESS_OR_EQUAL:
		return mfs_tpl_order(r, v, other) <= 0;
	default:
		return mfs_tpl_contains(r, other, v);
	}
}

static bool is(struct mfs_tpl_render *r, enum test test, value v)
{
	switch (test) {
	case IS_BOOLEAN:
		return v.kind == MFS_TPL_BOOL;
	case IS_CALLABLE:
		/* In Jinja they are, by methods that fail or are not known here. */
		if (v.kind == MFS_TPL_UNDEFINED || v.kind == MFS_TPL_LOOP)
			mfs_tpl_fail(r, -ENOTSUP, "whether a %s is callable", mfs_tpl_type_name(v));
		return v.kind == MFS_TPL_CALLABLE;
	case IS_DEFINED:
		return v.kind != MFS_TPL_UNDEFINED;
	case IS_EVEN:
		return !odd(r, v);
	case IS_FALSE:
		return v.kind == MFS_TPL_BOOL && !v.truth;
	case IS_FLOAT:
		return v.kind == MFS_TPL_REAL;
	case IS_INTEGER:
		return v.kind == MFS_TPL_INT;
	case IS_ITERABLE:
		return is_sequence(v) || v.kind == MFS_TPL_LIST || v.kind == MFS_TPL_LOOP;
	case IS_MAPPING:
		return v.kind == MFS_TPL_DICT;
	case IS_NONE:
		return v.kind == MFS_TPL_NONE;
	case IS_NUMBER:
		return mfs_tpl_is_number(v);
	case IS_ODD:
		return odd(r, v);
	case IS_SEQUENCE:
		return is_sequence(v);
	case IS_STRING:
		return v.kind == MFS_TPL_TEXT;
	case IS_TRUE:
		return v.kind == MFS_TPL_BOOL && v.truth;
	default:
		return v.kind == MFS_TPL_UNDEFINED;
	}
}

bool mfs_tpl_test(struct mfs_tpl_render *r, value name, value v, const struct mfs_tpl_args *args)
{
	const size_t i = find(name);

	if (i == MFS_ARRAY_SIZE(tests))
		mfs_tpl_fail(r, -ENOTSUP, "a test is not known");
	else if (args->count != tests[i].args || args->named_count)
		mfs_tpl_fail(r, -EINVAL, "the test '%s' has %zu arguments: it takes %zu",
			     tests[i].name, args->count, tests[i].args);
	if (r->rc)
		return false;
	return tests[i].args ? compares(r, tests[i].test, v, args->at[0]) : is(r, tests[i].test, v);
}
