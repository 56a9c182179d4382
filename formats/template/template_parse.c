/* Statements as trees, and the template that they are. Source: jinja2/parser.py. */
#include "formats/template/template_i.h"

#include <stdlib.h>

#include "formats/base/array.h"

static struct mfs_tpl_node *parse_body(struct mfs_tpl_parser *p, const char *const *ends);

static bool at_name(const struct mfs_tpl_parser *p, const char *name)
{
	return mfs_tpl_is(p, MFS_TPL_NAME, name);
}

static bool accept_name(struct mfs_tpl_parser *p, const char *name)
{
	return mfs_tpl_accept(p, MFS_TPL_NAME, name);
}

static void close_block(struct mfs_tpl_parser *p)
{
	mfs_tpl_expect(p, MFS_TPL_BLOCK_CLOSE, NULL);
}

/* The body of a block, up to {% end %}. */
static struct mfs_tpl_node *parse_until(struct mfs_tpl_parser *p, const char *end)
{
	const char *const ends[] = {end, NULL};
	struct mfs_tpl_node *body;

	close_block(p);
	body = parse_body(p, ends);
	mfs_tpl_expect(p, MFS_TPL_NAME, end);
	return body;
}

static struct mfs_tpl_node *parse_if(struct mfs_tpl_parser *p)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct mfs_tpl_node *first = mfs_tpl_node(p, MFS_TPL_IF), *n = first;

	while (!p->rc) {
		n->a = mfs_tpl_parse_tuple(p, false);
		close_block(p);
		n->b = parse_body(p, ends);
		if (!accept_name(p, "elif"))
			break;
		n->c = mfs_tpl_node(p, MFS_TPL_IF);
		n = n->c;
	}
	if (p->rc)
		return NULL;
	if (accept_name(p, "else"))
		n->c = parse_until(p, "endif");
	else
		mfs_tpl_expect(p, MFS_TPL_NAME, "endif");
	return first;
}

static struct mfs_tpl_node *parse_for(struct mfs_tpl_parser *p)
{
	static const char *const ends[] = {"else", "endfor", NULL};
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_FOR);

	if (!n)
		return NULL;
	n->a = mfs_tpl_parse_target(p, false);
	mfs_tpl_expect(p, MFS_TPL_NAME, "in");
	n->b = mfs_tpl_parse_tuple(p, false);
	if (accept_name(p, "if"))
		n->e = mfs_tpl_parse_expression(p);
	if (at_name(p, "recursive"))
		return mfs_tpl_refuse(p, -ENOTSUP, "loops that are recursive are not known");
	close_block(p);
	p->loops++;
	n->c = parse_body(p, ends);
	p->loops--;
	if (accept_name(p, "else"))
		n->d = parse_until(p, "endfor");
	else
		mfs_tpl_expect(p, MFS_TPL_NAME, "endfor");
	return n;
}

/* A block whose text goes elsewhere: no loop around it can be left from within. */
static struct mfs_tpl_node *parse_captured(struct mfs_tpl_parser *p, const char *end)
{
	const unsigned loops = p->loops;
	struct mfs_tpl_node *body;

	p->loops = 0;
	p->captures++;
	body = parse_until(p, end);
	p->captures--;
	p->loops = loops;
	return body;
}

static struct mfs_tpl_node *parse_set(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_SET);

	if (!n)
		return NULL;
	n->a = mfs_tpl_parse_target(p, true);
	if (mfs_tpl_accept(p, MFS_TPL_OPERATOR, "=")) {
		n->b = mfs_tpl_parse_tuple(p, true);
		return n;
	}
	n->kind = MFS_TPL_CAPTURE;
	if (mfs_tpl_accept(p, MFS_TPL_OPERATOR, "|"))
		n->c = mfs_tpl_parse_filters(p);
	n->b = parse_captured(p, "endset");
	return n;
}

static struct mfs_tpl_node *parse_with(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_WITH), **to;

	if (!n)
		return NULL;
	to = &n->a;
	while (!p->rc && p->at->kind != MFS_TPL_BLOCK_CLOSE) {
		if (n->a)
			mfs_tpl_expect(p, MFS_TPL_OPERATOR, ",");
		*to = mfs_tpl_node(p, MFS_TPL_SET);
		if (!*to)
			return NULL;
		(*to)->a = mfs_tpl_parse_target(p, false);
		mfs_tpl_expect(p, MFS_TPL_OPERATOR, "=");
		(*to)->b = mfs_tpl_parse_expression(p);
		to = &(*to)->next;
	}
	n->b = parse_until(p, "endwith");
	return n;
}

static struct mfs_tpl_node *parse_macro(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_MACRO), **to;
	bool defaults = false;

	if (!n)
		return NULL;
	n->value = mfs_tpl_expect_name(p);
	mfs_tpl_expect(p, MFS_TPL_OPERATOR, "(");
	to = &n->a;
	while (!p->rc && !mfs_tpl_accept(p, MFS_TPL_OPERATOR, ")")) {
		if (n->a)
			mfs_tpl_expect(p, MFS_TPL_OPERATOR, ",");
		*to = mfs_tpl_node(p, MFS_TPL_VARIABLE);
		if (!*to)
			return NULL;
		(*to)->value = mfs_tpl_expect_name(p);
		if (mfs_tpl_accept(p, MFS_TPL_OPERATOR, "=")) {
			(*to)->b = mfs_tpl_parse_expression(p);
			defaults = true;
		} else if (defaults) {
			return mfs_tpl_refuse(p, -EINVAL,
					      "a parameter without a default after one with");
		}
		to = &(*to)->next;
	}
	n->c = parse_captured(p, "endmacro");
	return n;
}

/* transformers finds out where a generation block lies by what has been written before it, which
 * is something else where its text goes into a variable. */
static struct mfs_tpl_node *parse_generation(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_GENERATION);
	const unsigned loops = p->loops;

	if (p->captures)
		return mfs_tpl_refuse(p, -ENOTSUP,
				      "a generation block within a macro or a 'set' block");
	if (!n)
		return NULL;
	p->marks_answers = true;
	p->loops = 0;
	p->captures++;
	n->a = parse_until(p, "endgeneration");
	p->captures--;
	p->loops = loops;
	return n;
}

static struct mfs_tpl_node *parse_filter_block(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_CAPTURE);

	if (!n)
		return NULL;
	n->c = mfs_tpl_parse_filters(p);
	n->b = parse_captured(p, "endfilter");
	return n;
}

static struct mfs_tpl_node *parse_jump(struct mfs_tpl_parser *p, enum mfs_tpl_node_kind kind)
{
	if (!p->loops)
		return mfs_tpl_refuse(p, -EINVAL, "'%s' outside of a loop",
				      kind == MFS_TPL_BREAK ? "break" : "continue");
	return mfs_tpl_node(p, kind);
}

static struct mfs_tpl_node *parse_break(struct mfs_tpl_parser *p)
{
	return parse_jump(p, MFS_TPL_BREAK);
}

static struct mfs_tpl_node *parse_continue(struct mfs_tpl_parser *p)
{
	return parse_jump(p, MFS_TPL_CONTINUE);
}

static struct mfs_tpl_node *parse_statement(struct mfs_tpl_parser *p)
{
	static const struct {
		const char *name;
		struct mfs_tpl_node *(*parse)(struct mfs_tpl_parser *p);
	} statements[] = {
		{"if", parse_if},
		{"for", parse_for},
		{"set", parse_set},
		{"with", parse_with},
		{"macro", parse_macro},
		{"generation", parse_generation},
		{"filter", parse_filter_block},
		{"break", parse_break},
		{"continue", parse_continue},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(statements); i++)
		if (accept_name(p, statements[i].name)) {
			struct mfs_tpl_node *n = statements[i].parse(p);

			close_block(p);
			return n;
		}
	return mfs_tpl_refuse(p, -ENOTSUP, "the statement '%.*s' is not known", (int)p->at->len,
			      p->at->text);
}

static bool at_end(const struct mfs_tpl_parser *p, const char *const *ends)
{
	for (; ends && *ends; ends++)
		if (at_name(p, *ends))
			return true;
	return false;
}

static struct mfs_tpl_node *parse_data(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_WRITE);

	if (n)
		n->value = mfs_tpl_text(p->at->text, p->at->len);
	p->at++;
	return n;
}

static struct mfs_tpl_node *parse_print(struct mfs_tpl_parser *p)
{
	struct mfs_tpl_node *n = mfs_tpl_node(p, MFS_TPL_PRINT);

	if (n)
		n->a = mfs_tpl_parse_tuple(p, true);
	mfs_tpl_expect(p, MFS_TPL_PRINT_CLOSE, NULL);
	return n;
}

/* Up to a block that one of these names begins, which is at hand then; ends NULL: to the end of the
 * template. */
static struct mfs_tpl_node *parse_body(struct mfs_tpl_parser *p, const char *const *ends)
{
	struct mfs_tpl_node *list = NULL, **to = &list;

	if (!mfs_tpl_deeper(p))
		return NULL;
	while (!p->rc && p->at->kind != MFS_TPL_END) {
		if (p->at->kind == MFS_TPL_DATA) {
			*to = parse_data(p);
		} else if (mfs_tpl_accept(p, MFS_TPL_PRINT_OPEN, NULL)) {
			*to = parse_print(p);
		} else {
			p->at++;
			if (at_end(p, ends))
				break;
			*to = parse_statement(p);
		}
		if (*to)
			to = &(*to)->next;
	}
	p->depth--;
	if (!p->rc && ends && p->at->kind == MFS_TPL_END)
		mfs_tpl_refuse(p, -EINVAL, "'%s' is missing at the end", *ends);
	return list;
}

/* Length of the UTF-8 character at a byte; 0: it is none. */
static size_t utf8_at(const unsigned char *s, size_t left)
{
	const size_t len = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;

	if (*s > 0xf4 || !len || len > left)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

static int check_text(const char *text, size_t len, struct mfs_error *err)
{
	for (size_t i = 0, n; i < len; i += n) {
		n = text[i] ? utf8_at((const unsigned char *)text + i, len - i) : 0;
		if (!n)
			return mfs_fail(err, -EINVAL, "byte %zu is no UTF-8", i);
	}
	return 0;
}

int mfs_template_parse(const char *text, size_t len, struct mfs_template **ret,
		       struct mfs_error *err)
{
	struct mfs_template *t;
	struct mfs_tpl_token *tokens = NULL;
	struct mfs_tpl_parser p = {.err = err};

	if (len > MFS_TEMPLATE_LARGEST)
		return mfs_fail(err, -ENOTSUP, "it has %zu bytes, more than the limit of %u", len,
				MFS_TEMPLATE_LARGEST);
	t = calloc(1, sizeof(*t));
	if (!t)
		return mfs_fail_nomem(err);
	p.arena = &t->arena;
	p.rc = check_text(text, len, err);
	if (!p.rc)
		p.rc = mfs_tpl_lex(text, len, &t->arena, &tokens, err);
	if (!p.rc) {
		p.at = tokens;
		t->body = parse_body(&p, NULL);
		t->marks_answers = p.marks_answers;
	}
	free(tokens);
	if (p.rc) {
		mfs_template_free(t);
		return p.rc;
	}
	*ret = t;
	return 0;
}

void mfs_template_free(struct mfs_template *t)
{
	if (!t)
		return;
	mfs_arena_release(&t->arena);
	free(t);
}

bool mfs_template_marks_answers(const struct mfs_template *t)
{
	return t->marks_answers;
}
