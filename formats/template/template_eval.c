/* What an expression is worth. Source: jinja2/compiler.py, nodes.py, sandbox.py. */
#include "formats/template/template_i.h"

#include <math.h>

#include "formats/base/bytes.h"

typedef struct mfs_tpl_value value;

static value nothing(void)
{
	return mfs_tpl_undefined(mfs_tpl_none());
}

/* ---- names ---- */

/* A variable of the caller is made a value once. */
static value keep(struct mfs_tpl_render *r, value name, value v)
{
	struct mfs_tpl_variable *kept = mfs_tpl_alloc(r, 1, sizeof(*kept));
	struct mfs_tpl_scope *s = r->scope;

	while (s->parent)
		s = s->parent;
	if (kept) {
		*kept = (struct mfs_tpl_variable){name, v, s->variables};
		s->variables = kept;
	}
	return v;
}

static value lookup(struct mfs_tpl_render *r, value name)
{
	const struct mfs_tpl_variable *v;
	value found;
	json_t *json;

	for (const struct mfs_tpl_scope *s = r->scope; s; s = s->parent) {
		v = mfs_tpl_find_variable(r, s, name);
		/* In Jinja it has its last value, or is the text "missing". */
		if (v && s->left)
			return mfs_tpl_fail(r, -ENOTSUP,
					    "a macro uses '%.*s' of a block that has ended",
					    (int)name.len, name.text);
		if (v)
			return v->value;
	}
	if (r->rc)
		return nothing();
	json = json_object_getn(r->variables, name.text, name.len);
	if (json)
		return keep(r, name, mfs_tpl_from_json(r, json));
	return mfs_tpl_global(r, name, &found) ? found : mfs_tpl_undefined(name);
}

/* ---- obj.name and obj[key] ---- */

static bool is_integer(value v)
{
	return v.kind == MFS_TPL_INT || v.kind == MFS_TPL_BOOL;
}

static int64_t integer_of(value v)
{
	return v.kind == MFS_TPL_INT ? v.integer : v.kind == MFS_TPL_BOOL ? v.truth : 0;
}

static value undefined_parent(struct mfs_tpl_render *r, value v, value name)
{
	return mfs_tpl_fail(r, -EINVAL, "'%.*s' is undefined, and '%.*s' is asked of it",
			    (int)v.len, v.text, name.kind == MFS_TPL_TEXT ? (int)name.len : 1,
			    name.kind == MFS_TPL_TEXT ? name.text : "?");
}

static value list_item(const struct mfs_tpl_list *list, value key)
{
	int64_t i = integer_of(key);

	if (list->type >= MFS_TPL_IS_VIEW || !is_integer(key))
		return nothing();
	i += i < 0 ? (int64_t)list->count : 0;
	return i >= 0 && i < (int64_t)list->count ? list->at[i] : nothing();
}

static value text_item(struct mfs_tpl_render *r, value v, value key)
{
	int64_t i = integer_of(key);
	size_t from, to;

	if (!is_integer(key))
		return nothing();
	if (v.safe)
		return mfs_tpl_fail(r, -ENOTSUP, "an element of a text from the filter 'safe'");
	i += i < 0 ? mfs_tpl_length(r, v) : 0;
	if (i < 0 || !mfs_tpl_work(r, v.len))
		return nothing();
	from = mfs_tpl_offset(v.text, v.len, (size_t)i);
	if (from == v.len)
		return nothing();
	to = from + mfs_tpl_offset(v.text + from, v.len - from, 1);
	return mfs_tpl_text(v.text + from, to - from);
}

/* The element alone; *ret_has: there is one. */
static value item(struct mfs_tpl_render *r, value v, value key, bool *ret_has)
{
	value found = nothing(), *member;

	if (v.kind == MFS_TPL_LIST)
		found = list_item(v.list, key);
	else if (v.kind == MFS_TPL_TEXT)
		found = text_item(r, v, key);
	else if (v.kind == MFS_TPL_DICT && (member = mfs_tpl_dict_find(r, v.dict, key))) {
		*ret_has = true;
		return *member;
	}
	*ret_has = found.kind != MFS_TPL_UNDEFINED;
	return found;
}

value mfs_tpl_get_item(struct mfs_tpl_render *r, value v, value key)
{
	bool has;
	value found;

	if (v.kind == MFS_TPL_UNDEFINED)
		return undefined_parent(r, v, key);
	found = item(r, v, key, &has);
	if (!has && key.kind == MFS_TPL_TEXT && !r->rc && !mfs_tpl_attribute(r, v, key, &found))
		return mfs_tpl_undefined(key);
	return found;
}

value mfs_tpl_get_attribute(struct mfs_tpl_render *r, value v, value name)
{
	bool has;
	value found;

	if (v.kind == MFS_TPL_UNDEFINED)
		return undefined_parent(r, v, name);
	if (mfs_tpl_attribute(r, v, name, &found))
		return found;
	found = item(r, v, name, &has);
	return has ? found : mfs_tpl_undefined(name);
}

/* ---- slices ---- */

struct slice {
	int64_t from, step, count;
};

static bool slice_part(struct mfs_tpl_render *r, const struct mfs_tpl_node *n, int64_t *ret)
{
	const value v = n ? mfs_tpl_eval(r, n) : mfs_tpl_none();

	if (r->rc || v.kind == MFS_TPL_NONE)
		return false;
	if (!is_integer(v)) {
		mfs_tpl_fail(r, -EINVAL, "a slice by a %s", mfs_tpl_type_name(v));
		return false;
	}
	*ret = integer_of(v);
	return true;
}

static int64_t clamp(int64_t i, int64_t len, int64_t low, int64_t high)
{
	i += i < 0 ? len : 0;
	return i < low ? low : i > high ? high : i;
}

/* PySlice_AdjustIndices() */
static struct slice slice_of(struct mfs_tpl_render *r, const struct mfs_tpl_node *n, int64_t len)
{
	struct slice s = {.step = 1};
	int64_t to;

	if (slice_part(r, n->d, &s.step) && (!s.step || s.step == INT64_MIN))
		mfs_tpl_fail(r, -EINVAL, "a slice by steps of %lld", (long long)s.step);
	if (s.step < 0) {
		s.from = slice_part(r, n->b, &s.from) ? clamp(s.from, len, -1, len - 1) : len - 1;
		to = slice_part(r, n->c, &to) ? clamp(to, len, -1, len - 1) : -1;
		s.count = to < s.from ? (s.from - to - 1) / -s.step + 1 : 0;
	} else {
		s.from = slice_part(r, n->b, &s.from) ? clamp(s.from, len, 0, len) : 0;
		to = slice_part(r, n->c, &to) ? clamp(to, len, 0, len) : len;
		s.count = s.from < to && !r->rc ? (to - s.from - 1) / s.step + 1 : 0;
	}
	return s;
}

static value slice_list(struct mfs_tpl_render *r, const struct mfs_tpl_list *list, struct slice s)
{
	value out;

	if (list->type >= MFS_TPL_IS_VIEW)
		return mfs_tpl_fail(r, -EINVAL, "a generator or a view of a dict has no slices");
	out = mfs_tpl_list(r, list->type, (size_t)s.count);
	for (int64_t i = 0; !r->rc && i < s.count; i++)
		out.list->at[i] = list->at[s.from + i * s.step];
	return out;
}

static value slice_text(struct mfs_tpl_render *r, value v, struct slice s)
{
	const size_t from = mfs_tpl_offset(v.text, v.len, (size_t)(s.from > 0 ? s.from : 0));
	struct mfs_buf out = {0};

	if (!mfs_tpl_work(r, v.len) || !s.count)
		return mfs_tpl_text(v.text, 0);
	if (s.step == 1)
		return mfs_tpl_text(v.text + from,
				    mfs_tpl_offset(v.text + from, v.len - from, (size_t)s.count));
	for (int64_t i = 0; i < s.count && mfs_tpl_work(r, v.len); i++) {
		const value c = text_item(r, v, mfs_tpl_int(s.from + i * s.step));

		mfs_buf_add(&out, c.text, c.len);
	}
	return mfs_tpl_take(r, &out);
}

static value slice(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	const value v = mfs_tpl_eval(r, n->a);

	if (v.kind != MFS_TPL_LIST && v.kind != MFS_TPL_TEXT)
		return mfs_tpl_fail(r, -EINVAL, "a %s has no slices", mfs_tpl_type_name(v));
	if (v.safe)
		return mfs_tpl_fail(r, -ENOTSUP, "a slice of a text from the filter 'safe'");
	if (v.kind == MFS_TPL_LIST)
		return slice_list(r, v.list, slice_of(r, n, (int64_t)v.list->count));
	return slice_text(r, v, slice_of(r, n, mfs_tpl_length(r, v)));
}

/* ---- arithmetic ---- */

static value overflow(struct mfs_tpl_render *r)
{
	return mfs_tpl_fail(r, -ENOTSUP, "a number of more than 64 bits");
}

static value integer_math(struct mfs_tpl_render *r, int64_t a, char op, int64_t b)
{
	int64_t result;

	switch (op) {
	case '+':
		return __builtin_add_overflow(a, b, &result) ? overflow(r) : mfs_tpl_int(result);
	case '-':
		return __builtin_sub_overflow(a, b, &result) ? overflow(r) : mfs_tpl_int(result);
	case '*':
		return __builtin_mul_overflow(a, b, &result) ? overflow(r) : mfs_tpl_int(result);
	default:
		if (!b)
			return mfs_tpl_fail(r, -EINVAL, "a division by zero");
		if (a == INT64_MIN)
			return overflow(r);
		/* Python rounds down. */
		result = a / b - (a % b && (a < 0) != (b < 0));
		return mfs_tpl_int(op == '%' ? a - result * b : result);
	}
}

static value real_math(struct mfs_tpl_render *r, double a, const char *op, double b)
{
	value v = {.kind = MFS_TPL_REAL};

	if (*op == '+')
		v.real = a + b;
	else if (*op == '-')
		v.real = a - b;
	else if (*op == '*')
		v.real = a * b;
	else if (b == 0)
		return mfs_tpl_fail(r, -EINVAL, "a division by zero");
	else if (op[0] == '/' && !op[1])
		v.real = a / b;
	else
		return mfs_tpl_fail(r, -ENOTSUP, "'%s' of floats is not known", op);
	return v;
}

static value repeat(struct mfs_tpl_render *r, value v, int64_t times)
{
	struct mfs_buf out = {0};

	if (v.safe)
		return mfs_tpl_fail(r, -ENOTSUP, "a text from the filter 'safe' is repeated");
	if (times > 0 && v.len && (uint64_t)times > MFS_TPL_MEMORY / v.len)
		return mfs_tpl_fail(r, -ENOTSUP, "more text than a conversation has");
	for (int64_t i = 0; i < times && v.len && mfs_tpl_work(r, v.len); i++)
		mfs_buf_add(&out, v.text, v.len);
	return mfs_tpl_take(r, &out);
}

static value join_texts(struct mfs_tpl_render *r, value a, value b)
{
	char *out;

	if (a.safe || b.safe)
		return mfs_tpl_fail(r, -ENOTSUP, "a text from the filter 'safe' is put together");
	out = mfs_tpl_alloc(r, a.len + b.len + 1, 1);
	if (!out || !mfs_tpl_work(r, a.len + b.len))
		return nothing();
	memcpy(out, a.text, a.len);
	memcpy(out + a.len, b.text, b.len);
	return mfs_tpl_text(out, a.len + b.len);
}

static value join_lists(struct mfs_tpl_render *r, const struct mfs_tpl_list *a,
			const struct mfs_tpl_list *b)
{
	value out;

	if (a->type != b->type || a->type > MFS_TPL_IS_TUPLE)
		return mfs_tpl_fail(r, -EINVAL, "lists of two kinds are put together");
	out = mfs_tpl_list(r, a->type, a->count + b->count);
	for (size_t i = 0; !r->rc && i < out.list->count; i++)
		out.list->at[i] = i < a->count ? a->at[i] : b->at[i - a->count];
	return out;
}

static value binary(struct mfs_tpl_render *r, value a, const char *op, value b)
{
	if (a.kind == MFS_TPL_UNDEFINED || b.kind == MFS_TPL_UNDEFINED) {
		const value u = a.kind == MFS_TPL_UNDEFINED ? a : b;

		return mfs_tpl_fail(r, -EINVAL, "'%.*s' is undefined", (int)u.len, u.text);
	}
	if (mfs_tpl_is_number(a) && mfs_tpl_is_number(b)) {
		if (a.kind == MFS_TPL_REAL || b.kind == MFS_TPL_REAL || !strcmp(op, "/"))
			return real_math(r, mfs_tpl_real_of(a), op, mfs_tpl_real_of(b));
		return integer_math(r, integer_of(a), *op, integer_of(b));
	}
	if (*op == '+' && a.kind == MFS_TPL_TEXT && b.kind == MFS_TPL_TEXT)
		return join_texts(r, a, b);
	if (*op == '+' && a.kind == MFS_TPL_LIST && b.kind == MFS_TPL_LIST)
		return join_lists(r, a.list, b.list);
	if (*op == '*' && a.kind == MFS_TPL_TEXT && b.kind == MFS_TPL_INT)
		return repeat(r, a, b.integer);
	if (*op == '%' && a.kind == MFS_TPL_TEXT)
		return mfs_tpl_fail(r, -ENOTSUP, "'%%' of texts is not known");
	return mfs_tpl_fail(r, *op == '*' ? -ENOTSUP : -EINVAL, "'%s' of a %s and a %s", op,
			    mfs_tpl_type_name(a), mfs_tpl_type_name(b));
}

static value sign(struct mfs_tpl_render *r, value v, bool minus)
{
	if (!mfs_tpl_is_number(v))
		return mfs_tpl_fail(r, -EINVAL, "a sign of a %s", mfs_tpl_type_name(v));
	if (v.kind == MFS_TPL_REAL) {
		v.real = minus ? -v.real : v.real;
		return v;
	}
	return integer_math(r, 0, minus ? '-' : '+', integer_of(v));
}

/* ---- comparisons ---- */

static bool holds(struct mfs_tpl_render *r, value a, const char *op, value b)
{
	const bool equals = !strcmp(op, "==") || !strcmp(op, "!=");
	int order;

	if (equals)
		return mfs_tpl_equal(r, a, b) == (*op == '=');
	if (*op == 'i')
		return mfs_tpl_contains(r, b, a);
	if (*op == '!')
		return !mfs_tpl_contains(r, b, a);
	order = mfs_tpl_order(r, a, b);
	return *op == '<' ? order < 0 || (op[1] && !order) : order > 0 || (op[1] && !order);
}

static value compare(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	value a = mfs_tpl_eval(r, n->a);

	for (const struct mfs_tpl_node *o = n->b; o && !r->rc; o = o->next) {
		const value b = mfs_tpl_eval(r, o->a);

		if (!holds(r, a, o->op, b))
			return mfs_tpl_bool(false);
		a = b;
	}
	return mfs_tpl_bool(true);
}

/* ---- calls ---- */

static size_t count_of(const struct mfs_tpl_node *list)
{
	size_t n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

static bool eval_args(struct mfs_tpl_render *r, const struct mfs_tpl_node *list,
		      struct mfs_tpl_args *ret)
{
	const size_t count = count_of(list);
	value *at = mfs_tpl_alloc(r, count, sizeof(*at));
	struct mfs_tpl_pair *named = mfs_tpl_alloc(r, count, sizeof(*named));

	*ret = (struct mfs_tpl_args){.at = at, .named = named};
	for (; list && !r->rc; list = list->next)
		if (list->kind == MFS_TPL_KEYWORD)
			named[ret->named_count++] =
				(struct mfs_tpl_pair){list->value, mfs_tpl_eval(r, list->a)};
		else
			at[ret->count++] = mfs_tpl_eval(r, list->a);
	return !r->rc;
}

value mfs_tpl_call(struct mfs_tpl_render *r, value callee, const struct mfs_tpl_args *args)
{
	if (callee.kind == MFS_TPL_UNDEFINED)
		return mfs_tpl_fail(r, -EINVAL, "'%.*s' is undefined, and is called",
				    (int)callee.len, callee.text);
	if (callee.kind != MFS_TPL_CALLABLE)
		return mfs_tpl_fail(r, -EINVAL, "a %s is called", mfs_tpl_type_name(callee));
	if (callee.callable->macro)
		return mfs_tpl_call_macro(r, callee.callable, args);
	if (!callee.callable->function)
		return mfs_tpl_fail(r, -ENOTSUP, "the function '%s' is not known",
				    callee.callable->name);
	if (callee.callable->method &&
	    !mfs_tpl_check_args(r, callee.callable->name, args, callee.callable->most, NULL))
		return nothing();
	return callee.callable->function(r, callee.callable->self, args);
}

static value call(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	const value callee = mfs_tpl_eval(r, n->a);
	struct mfs_tpl_args args;

	return eval_args(r, n->b, &args) ? mfs_tpl_call(r, callee, &args) : nothing();
}

static value apply(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	const value v = mfs_tpl_eval(r, n->a);
	struct mfs_tpl_args args;

	if (!eval_args(r, n->b, &args))
		return nothing();
	if (n->kind == MFS_TPL_TEST)
		return mfs_tpl_bool(mfs_tpl_test(r, n->value, v, &args));
	return mfs_tpl_filter(r, n->value, v, &args);
}

/* ---- all of it ---- */

static value list_of(struct mfs_tpl_render *r, const struct mfs_tpl_node *n,
		     enum mfs_tpl_list_type type)
{
	value out = mfs_tpl_list(r, type, count_of(n->a));
	size_t i = 0;

	for (const struct mfs_tpl_node *at = n->a; at && !r->rc; at = at->next)
		out.list->at[i++] = mfs_tpl_eval(r, at->a);
	return out;
}

static value dict_of(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	value out = {.kind = MFS_TPL_DICT, .dict = mfs_tpl_alloc(r, 1, sizeof(*out.dict))};

	for (const struct mfs_tpl_node *at = n->a; at && !r->rc; at = at->next) {
		const value key = mfs_tpl_eval(r, at->a);

		mfs_tpl_dict_set(r, out.dict, key, mfs_tpl_eval(r, at->b));
	}
	return out;
}

static value concat(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	struct mfs_buf out = {0};

	for (const struct mfs_tpl_node *at = n->a; at && !r->rc; at = at->next) {
		mfs_tpl_print(r, mfs_tpl_eval(r, at->a), false, &out);
	}
	return mfs_tpl_take(r, &out);
}

static value eval_operator(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	value a;

	switch (n->kind) {
	case MFS_TPL_CONDITION:
		if (mfs_tpl_truth(r, mfs_tpl_eval(r, n->b)))
			return mfs_tpl_eval(r, n->a);
		return n->c ? mfs_tpl_eval(r, n->c) : nothing();
	case MFS_TPL_OR:
		a = mfs_tpl_eval(r, n->a);
		return mfs_tpl_truth(r, a) ? a : mfs_tpl_eval(r, n->b);
	case MFS_TPL_AND:
		a = mfs_tpl_eval(r, n->a);
		return mfs_tpl_truth(r, a) ? mfs_tpl_eval(r, n->b) : a;
	case MFS_TPL_NOT:
		return mfs_tpl_bool(!mfs_tpl_truth(r, mfs_tpl_eval(r, n->a)));
	case MFS_TPL_COMPARE:
		return compare(r, n);
	case MFS_TPL_MINUS:
		return sign(r, mfs_tpl_eval(r, n->a), true);
	case MFS_TPL_PLUS:
		return sign(r, mfs_tpl_eval(r, n->a), false);
	case MFS_TPL_CONCAT:
		return concat(r, n);
	default:
		a = mfs_tpl_eval(r, n->a);
		return binary(r, a, n->op, mfs_tpl_eval(r, n->b));
	}
}

static value eval(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	value a;

	switch (n->kind) {
	case MFS_TPL_CONST:
		return n->value;
	case MFS_TPL_VARIABLE:
		return lookup(r, n->value);
	case MFS_TPL_LIST_OF:
		return list_of(r, n, MFS_TPL_IS_LIST);
	case MFS_TPL_TUPLE_OF:
		return list_of(r, n, MFS_TPL_IS_TUPLE);
	case MFS_TPL_DICT_OF:
		return dict_of(r, n);
	case MFS_TPL_ATTRIBUTE:
		a = mfs_tpl_eval(r, n->a);
		return r->rc ? a : mfs_tpl_get_attribute(r, a, n->value);
	case MFS_TPL_ITEM:
		a = mfs_tpl_eval(r, n->a);
		return mfs_tpl_get_item(r, a, mfs_tpl_eval(r, n->b));
	case MFS_TPL_SLICE:
		return slice(r, n);
	case MFS_TPL_CALL:
		return call(r, n);
	case MFS_TPL_FILTER:
	case MFS_TPL_TEST:
		return apply(r, n);
	default:
		return eval_operator(r, n);
	}
}

value mfs_tpl_eval(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	value v = nothing();

	if (!mfs_tpl_work(r, 0))
		return v;
	if (r->depth >= MFS_TPL_DEEP)
		return mfs_tpl_fail(r, -ENOTSUP, "expressions and macros are too deep");
	r->depth++;
	r->line = n->line;
	v = eval(r, n);
	r->depth--;
	return r->rc ? nothing() : v;
}
