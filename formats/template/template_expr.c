/* Expressions as trees. Source: jinja2/parser.py, whose functions have the same names. */
#include "formats/template/template_i.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/array.h"

struct mfs_tpl_node *mfs_tpl_refuse(struct mfs_tpl_parser *p, int code, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	if (p->rc)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	p->rc = mfs_fail(p->err, code, "line %u: %s", p->at->line, what);
	return NULL;
}

struct mfs_tpl_node *mfs_tpl_node(struct mfs_tpl_parser *p, enum mfs_tpl_node_kind kind)
{
	struct mfs_tpl_node *n;

	if (p->arena->total > MFS_TPL_TREE)
		mfs_tpl_refuse(p, -ENOTSUP, "more parts than a template has");
	n = p->rc ? NULL : mfs_arena_alloc(p->arena, sizeof(*n));
	if (!n) {
		if (!p->rc)
			p->rc = mfs_fail_nomem(p->err);
		return NULL;
	}
	n->kind = kind;
	n->line = p->at->line;
	return n;
}

bool mfs_tpl_is(const struct mfs_tpl_parser *p, enum mfs_tpl_token_kind kind, const char *text)
{
	return p->at->kind == kind &&
	       (!text || (strlen(text) == p->at->len && !memcmp(text, p->at->text, p->at->len)));
}

static bool is_op(const struct mfs_tpl_parser *p, const char *text)
{
	return mfs_tpl_is(p, MFS_TPL_OPERATOR, text);
}

static bool is_name(const struct mfs_tpl_parser *p, const char *text)
{
	return mfs_tpl_is(p, MFS_TPL_NAME, text);
}

bool mfs_tpl_accept(struct mfs_tpl_parser *p, enum mfs_tpl_token_kind kind, const char *text)
{
	if (p->rc || !mfs_tpl_is(p, kind, text))
		return false;
	p->at++;
	return true;
}

static bool accept_op(struct mfs_tpl_parser *p, const char *text)
{
	return mfs_tpl_accept(p, MFS_TPL_OPERATOR, text);
}

static bool accept_name(struct mfs_tpl_parser *p, const char *text)
{
	return mfs_tpl_accept(p, MFS_TPL_NAME, text);
}

static void unexpected(struct mfs_tpl_parser *p, const char *wanted)
{
	if (p->at->kind == MFS_TPL_END)
		mfs_tpl_refuse(p, -EINVAL, "%s is missing at the end", wanted);
	else
		mfs_tpl_refuse(p, -EINVAL, "expected %s, found '%.*s'", wanted,
			       (int)(p->at->len < 40 ? p->at->len : 40), p->at->text);
}

void mfs_tpl_expect(struct mfs_tpl_parser *p, enum mfs_tpl_token_kind kind, const char *text)
{
	if (!p->rc && !mfs_tpl_accept(p, kind, text))
		unexpected(p, text ? text : kind == MFS_TPL_BLOCK_CLOSE ? "%}" : "}}");
}

struct mfs_tpl_value mfs_tpl_expect_name(struct mfs_tpl_parser *p)
{
	const struct mfs_tpl_token *t = p->at;

	if (!mfs_tpl_accept(p, MFS_TPL_NAME, NULL))
		unexpected(p, "a name");
	return mfs_tpl_text(t->text, t->len);
}

bool mfs_tpl_deeper(struct mfs_tpl_parser *p)
{
	if (++p->depth > MFS_TPL_NESTED)
		mfs_tpl_refuse(p, -ENOTSUP, "more than %d parts within each other", MFS_TPL_NESTED);
	return !p->rc;
}

static struct mfs_tpl_node *node_of(struct mfs_tpl_parser *p, enum mfs_tpl_node_kind kind,
				    struct mfs_tpl_node *a, struct mfs_tpl_node *b)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, kind);

	if (n) {
		n->a = a;
		n->b = b;
	}
	return n;
}

/* Appends to a list whose end is at *to, and moves the end on. n NULL: a failure. */
static struct mfs_tpl_node *append(struct mfs_tpl_node ***to, struct mfs_tpl_node *n)
{
	**to = n;
	if (n)
		*to = &n->next;
	return n;
}

/* ---- primaries ---- */

static struct mfs_tpl_node *constant(struct mfs_tpl_parser *p, struct mfs_tpl_value v)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_CONST);

	if (n)
		n->value = v;
	return n;
}

static struct mfs_tpl_node *parse_name(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n;

	if (accept_name(p, "true") || accept_name(p, "True"))
		return constant(p, mfs_tpl_bool(true));
	if (accept_name(p, "false") || accept_name(p, "False"))
		return constant(p, mfs_tpl_bool(false));
	if (accept_name(p, "none") || accept_name(p, "None"))
		return constant(p, mfs_tpl_none());
	n = mfs_tpl_node(p, MFS_TPL_VARIABLE);
	if (n)
		n->value = mfs_tpl_expect_name(p);
	return n;
}

/* Texts next to each other are one. */
static struct mfs_tpl_node *parse_texts(struct mfs_tpl_parser *p)
{
	const struct mfs_tpl_token *first = p->at;
	size_t len = 0, at = 0;
	char *text;

	for (; p->at->kind == MFS_TPL_STRING; p->at++)
		len += p->at->len;
	text = mfs_arena_alloc(p->arena, len + 1);
	if (!text) {
		p->rc = mfs_fail_nomem(p->err);
		return NULL;
	}
	for (; first->kind == MFS_TPL_STRING; at += first++->len)
		memcpy(text + at, first->text, first->len);
	return constant(p, mfs_tpl_text(text, len));
}

static struct mfs_tpl_node *parse_number(struct mfs_tpl_parser *p)
{
	const bool real = p->at->kind == MFS_TPL_FLOAT;
	struct mfs_tpl_value v = {.kind = real ? MFS_TPL_REAL : MFS_TPL_INT};

	/* Tokens end where the template has another character. */
	if (real)
		v.real = strtod(p->at->text, NULL);
	else
		v.integer = strtoll(p->at->text, NULL, 10);
	p->at++;
	return constant(p, v);
}

static struct mfs_tpl_node *parse_list(struct mfs_tpl_parser *p, const char *close, bool dict)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, dict ? MFS_TPL_DICT_OF : MFS_TPL_LIST_OF), **to;

	if (!n)
		return NULL;
	to = &n->a;
	while (!p->rc && !accept_op(p, close)) {
		struct mfs_tpl_node *item;

		if (n->a) {
			mfs_tpl_expect(p, MFS_TPL_OPERATOR, ",");
			if (accept_op(p, close))
				break;
		}
		item = node_of(p, MFS_TPL_OPERAND, mfs_tpl_parse_expression(p), NULL);
		if (dict && !p->rc) {
			mfs_tpl_expect(p, MFS_TPL_OPERATOR, ":");
			item->b = mfs_tpl_parse_expression(p);
		}
		append(&to, item);
	}
	return p->rc ? NULL : n;
}

static struct mfs_tpl_node *parse_primary(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n;

	if (p->rc)
		return NULL;
	switch (p->at->kind) {
	case MFS_TPL_NAME:
		return parse_name(p);
	case MFS_TPL_STRING:
		return parse_texts(p);
	case MFS_TPL_INTEGER:
	case MFS_TPL_FLOAT:
		return parse_number(p);
	default:
		break;
	}
	if (accept_op(p, "(")) {
		if (accept_op(p, ")"))
			return mfs_tpl_node(p, MFS_TPL_TUPLE_OF);
		n = mfs_tpl_parse_tuple(p, true);
		mfs_tpl_expect(p, MFS_TPL_OPERATOR, ")");
		return n;
	}
	if (accept_op(p, "["))
		return parse_list(p, "]", false);
	if (accept_op(p, "{"))
		return parse_list(p, "}", true);
	unexpected(p, "an expression");
	return NULL;
}

/* ---- what follows a primary ---- */

static bool ends_slice(const struct mfs_tpl_parser *p)
{
	return is_op(p, ":") || is_op(p, "]") || is_op(p, ",");
}

static struct mfs_tpl_node *parse_subscript(struct mfs_tpl_parser *p, struct mfs_tpl_node *of)
{
	struct mfs_tpl_node *n = node_of(p, MFS_TPL_ITEM, of, NULL), **part;

	if (!n)
		return NULL;
	n->b = is_op(p, ":") ? NULL : mfs_tpl_parse_expression(p);
	part = &n->c;
	while (accept_op(p, ":")) {
		n->kind = MFS_TPL_SLICE;
		if (!part)
			return mfs_tpl_refuse(p, -EINVAL, "a slice has more than three parts");
		*part = ends_slice(p) ? NULL : mfs_tpl_parse_expression(p);
		part = part == &n->c ? &n->d : NULL;
	}
	if (is_op(p, ","))
		return mfs_tpl_refuse(p, -ENOTSUP, "a tuple in brackets after a value");
	mfs_tpl_expect(p, MFS_TPL_OPERATOR, "]");
	return n;
}

static struct mfs_tpl_node *parse_dot(struct mfs_tpl_parser *p, struct mfs_tpl_node *of)
{
	struct mfs_tpl_node *n;

	if (p->at->kind == MFS_TPL_INTEGER) {
		n = node_of(p, MFS_TPL_ITEM, of, NULL);
		if (n)
			n->b = parse_number(p);
		return n;
	}
	n = node_of(p, MFS_TPL_ATTRIBUTE, of, NULL);
	if (n)
		n->value = mfs_tpl_expect_name(p);
	return n;
}

static struct mfs_tpl_node *parse_args(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *list = NULL, **to = &list, *n, *last = NULL;

	mfs_tpl_expect(p, MFS_TPL_OPERATOR, "(");
	while (!p->rc && !accept_op(p, ")")) {
		if (list) {
			mfs_tpl_expect(p, MFS_TPL_OPERATOR, ",");
			if (accept_op(p, ")"))
				break;
		}
		if (is_op(p, "*") || is_op(p, "**"))
			return mfs_tpl_refuse(p, -ENOTSUP, "arguments out of a list ('%.*s')",
					      (int)p->at->len, p->at->text);
		if (p->at->kind == MFS_TPL_NAME && p->at[1].kind == MFS_TPL_OPERATOR &&
		    p->at[1].len == 1 && *p->at[1].text == '=') {
			n = mfs_tpl_node(p, MFS_TPL_KEYWORD);
			if (!n)
				return NULL;
			n->value = mfs_tpl_expect_name(p);
			p->at++;
			n->a = mfs_tpl_parse_expression(p);
		} else {
			if (last && last->kind == MFS_TPL_KEYWORD)
				return mfs_tpl_refuse(p, -EINVAL,
						      "an argument without a name after one with");
			n = node_of(p, MFS_TPL_OPERAND, mfs_tpl_parse_expression(p), NULL);
		}
		last = append(&to, n);
	}
	return p->rc ? NULL : list;
}

static struct mfs_tpl_node *parse_call(struct mfs_tpl_parser *p, struct mfs_tpl_node *of)
{
	struct mfs_tpl_node *args = parse_args(p);

	return node_of(p, MFS_TPL_CALL, of, args);
}

static struct mfs_tpl_node *parse_postfix(struct mfs_tpl_parser *p, struct mfs_tpl_node *n)
{
	while (!p->rc) {
		if (accept_op(p, "."))
			n = parse_dot(p, n);
		else if (accept_op(p, "["))
			n = parse_subscript(p, n);
		else if (is_op(p, "("))
			n = parse_call(p, n);
		else
			break;
	}
	return n;
}

static struct mfs_tpl_node *parse_filter(struct mfs_tpl_parser *p, struct mfs_tpl_node *of)
{
	struct mfs_tpl_node *n = node_of(p, MFS_TPL_FILTER, of, NULL);

	if (!n)
		return NULL;
	n->value = mfs_tpl_expect_name(p);
	if (!p->rc && !mfs_tpl_has_filter(n->value)) {
		p->at--;
		return mfs_tpl_refuse(p, -ENOTSUP, "the filter '%.*s' is not known",
				      (int)n->value.len, n->value.text);
	}
	if (is_op(p, "("))
		n->b = parse_args(p);
	return n;
}

struct mfs_tpl_node *mfs_tpl_parse_filters(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_filter(p, NULL);

	while (accept_op(p, "|"))
		n = parse_filter(p, n);
	return n;
}

/* An argument of a test without brackets. */
static bool test_has_argument(const struct mfs_tpl_parser *p)
{
	switch (p->at->kind) {
	case MFS_TPL_NAME:
		return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
	case MFS_TPL_STRING:
	case MFS_TPL_INTEGER:
	case MFS_TPL_FLOAT:
		return true;
	default:
		return is_op(p, "[") || is_op(p, "{");
	}
}

static struct mfs_tpl_node *parse_test(struct mfs_tpl_parser *p, struct mfs_tpl_node *of)
{
	const bool negated = accept_name(p, "not");
	struct mfs_tpl_node *n = node_of(p, MFS_TPL_TEST, of, NULL);

	if (!n)
		return NULL;
	n->value = mfs_tpl_expect_name(p);
	if (!p->rc && !mfs_tpl_has_test(n->value)) {
		p->at--;
		return mfs_tpl_refuse(p, -ENOTSUP, "the test '%.*s' is not known",
				      (int)n->value.len, n->value.text);
	}
	if (is_op(p, "("))
		n->b = parse_args(p);
	else if (is_name(p, "is"))
		return mfs_tpl_refuse(p, -EINVAL, "tests follow each other");
	else if (test_has_argument(p))
		n->b = node_of(p, MFS_TPL_OPERAND, parse_postfix(p, parse_primary(p)), NULL);
	return negated ? node_of(p, MFS_TPL_NOT, n, NULL) : n;
}

static struct mfs_tpl_node *parse_filter_expr(struct mfs_tpl_parser *p, struct mfs_tpl_node *n)
{
	while (!p->rc) {
		if (accept_op(p, "|"))
			n = parse_filter(p, n);
		else if (accept_name(p, "is"))
			n = parse_test(p, n);
		else if (is_op(p, "("))
			n = parse_call(p, n);
		else
			break;
	}
	return n;
}

/* ---- operators, from those that bind most ---- */

static struct mfs_tpl_node *parse_unary(struct mfs_tpl_parser *p, bool filters)
{
	struct mfs_tpl_node *n;

	if (!mfs_tpl_deeper(p))
		return NULL;
	if (accept_op(p, "-"))
		n = node_of(p, MFS_TPL_MINUS, parse_unary(p, false), NULL);
	else if (accept_op(p, "+"))
		n = node_of(p, MFS_TPL_PLUS, parse_unary(p, false), NULL);
	else
		n = parse_primary(p);
	n = parse_postfix(p, n);
	if (filters)
		n = parse_filter_expr(p, n);
	p->depth--;
	return n;
}

static struct mfs_tpl_node *binary(struct mfs_tpl_parser *p, struct mfs_tpl_node *a,
				   const struct mfs_tpl_token *op, struct mfs_tpl_node *b)
{
	struct mfs_tpl_node *n = node_of(p, MFS_TPL_BINARY, a, b);

	if (n)
		memcpy(n->op, op->text, op->len);
	return n;
}

static struct mfs_tpl_node *parse_math2(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_unary(p, true);

	while (!p->rc && (is_op(p, "*") || is_op(p, "/") || is_op(p, "//") || is_op(p, "%"))) {
		const struct mfs_tpl_token *op = p->at++;

		n = binary(p, n, op, parse_unary(p, true));
	}
	if (is_op(p, "**"))
		return mfs_tpl_refuse(p, -ENOTSUP, "the operator '**' is not known");
	return n;
}

static struct mfs_tpl_node *parse_concat(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_math2(p), *all, **to;

	if (!is_op(p, "~"))
		return n;
	all = mfs_tpl_node(p, MFS_TPL_CONCAT);
	if (!all)
		return NULL;
	to = &all->a;
	append(&to, node_of(p, MFS_TPL_OPERAND, n, NULL));
	while (accept_op(p, "~"))
		append(&to, node_of(p, MFS_TPL_OPERAND, parse_math2(p), NULL));
	return all;
}

static struct mfs_tpl_node *parse_math1(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_concat(p);

	while (!p->rc && (is_op(p, "+") || is_op(p, "-"))) {
		const struct mfs_tpl_token *op = p->at++;

		n = binary(p, n, op, parse_concat(p));
	}
	return n;
}

/* The comparison that comes next, as its operator's text. */
static const char *accept_comparison(struct mfs_tpl_parser *p)
{
	static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ops); i++)
		if (accept_op(p, ops[i]))
			return ops[i];
	if (accept_name(p, "in"))
		return "in";
	if (!p->rc && is_name(p, "not") && p->at[1].kind == MFS_TPL_NAME && p->at[1].len == 2 &&
	    !memcmp(p->at[1].text, "in", 2)) {
		p->at += 2;
		return "!in";
	}
	return NULL;
}

static struct mfs_tpl_node *parse_compare(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_math1(p), *all = NULL, *operand, **to = NULL;
	const char *op;

	while ((op = accept_comparison(p))) {
		if (!all) {
			all = node_of(p, MFS_TPL_COMPARE, n, NULL);
			to = all ? &all->b : NULL;
		}
		operand = node_of(p, MFS_TPL_OPERAND, parse_math1(p), NULL);
		if (!all || !operand)
			return NULL;
		memcpy(operand->op, op, strlen(op));
		append(&to, operand);
	}
	return all ? all : n;
}

static struct mfs_tpl_node *parse_not(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = NULL;

	if (!accept_name(p, "not"))
		return parse_compare(p);
	if (mfs_tpl_deeper(p))
		n = node_of(p, MFS_TPL_NOT, parse_not(p), NULL);
	p->depth--;
	return n;
}

static struct mfs_tpl_node *parse_and(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_not(p);

	while (accept_name(p, "and"))
		n = node_of(p, MFS_TPL_AND, n, parse_not(p));
	return n;
}

static struct mfs_tpl_node *parse_or(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = parse_and(p);

	while (accept_name(p, "or"))
		n = node_of(p, MFS_TPL_OR, n, parse_and(p));
	return n;
}

struct mfs_tpl_node *mfs_tpl_parse_expression(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = NULL, *condition;

	if (mfs_tpl_deeper(p))
		n = parse_or(p);
	while (accept_name(p, "if")) {
		condition = node_of(p, MFS_TPL_CONDITION, n, parse_or(p));
		if (condition && accept_name(p, "else"))
			condition->c = mfs_tpl_parse_expression(p);
		n = condition;
	}
	p->depth--;
	return p->rc ? NULL : n;
}

/* ---- tuples and targets ---- */

static bool ends_tuple(const struct mfs_tpl_parser *p)
{
	return p->at->kind == MFS_TPL_PRINT_CLOSE || p->at->kind == MFS_TPL_BLOCK_CLOSE ||
	       is_op(p, ")") || is_name(p, "in");
}

struct mfs_tpl_node *mfs_tpl_parse_tuple(struct mfs_tpl_parser *p, bool condition)
{
	struct mfs_tpl_node *n = condition ? mfs_tpl_parse_expression(p) : parse_or(p), *all, **to;

	if (!is_op(p, ","))
		return n;
	all = mfs_tpl_node(p, MFS_TPL_TUPLE_OF);
	if (!all)
		return NULL;
	to = &all->a;
	append(&to, node_of(p, MFS_TPL_OPERAND, n, NULL));
	while (accept_op(p, ",") && !ends_tuple(p))
		append(&to, node_of(p, MFS_TPL_OPERAND,
				    condition ? mfs_tpl_parse_expression(p) : parse_or(p), NULL));
	return all;
}

static struct mfs_tpl_node *parse_one_target(struct mfs_tpl_parser *p, bool attributes)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_VARIABLE), *of;
	static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(constants); i++)
		if (is_name(p, constants[i]))
			return mfs_tpl_refuse(p, -EINVAL, "'%s' cannot be set", constants[i]);
	if (!n)
		return NULL;
	n->value = mfs_tpl_expect_name(p);
	if (!attributes || !accept_op(p, "."))
		return n;
	of = n;
	n = node_of(p, MFS_TPL_ATTRIBUTE, of, NULL);
	if (n)
		n->value = mfs_tpl_expect_name(p);
	return n;
}

struct mfs_tpl_node *mfs_tpl_parse_target(struct mfs_tpl_parser *p, bool attributes)
{
	struct mfs_tpl_node *n, *all, **to;
	const bool brackets = accept_op(p, "(");

	n = parse_one_target(p, attributes);
	if (is_op(p, ",")) {
		all = node_of(p, MFS_TPL_TUPLE_OF, n, NULL);
		if (!all)
			return NULL;
		to = &n->next;
		while (accept_op(p, ",") && !ends_tuple(p) && !is_op(p, "="))
			append(&to, parse_one_target(p, attributes));
		n = all;
	}
	if (brackets)
		mfs_tpl_expect(p, MFS_TPL_OPERATOR, ")");
	return n;
}
