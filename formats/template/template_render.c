/* Statements, and a rendering from its beginning to its end. Source: jinja2/compiler.py. */
#include "formats/template/template_i.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"

/* ---- failures, work, memory ---- */

struct mfs_tpl_value mfs_tpl_fail(struct mfs_tpl_render *r, int code, const char *fmt, ...)
{
	char what[480];
	va_list ap;

	if (!r->rc) {
		va_start(ap, fmt);
		vsnprintf(what, sizeof(what), fmt, ap);
		va_end(ap);
		r->rc = mfs_fail(r->err, code, "line %u: %s", r->line, what);
	}
	return mfs_tpl_undefined(mfs_tpl_none());
}

bool mfs_tpl_work(struct mfs_tpl_render *r, uint64_t bytes)
{
	const uint64_t cost = 1 + bytes / 64;

	if (r->rc)
		return false;
	if (cost > r->left) {
		mfs_tpl_fail(r, -ENOTSUP, "more work than a conversation needs");
		return false;
	}
	r->left -= cost;
	return true;
}

void *mfs_tpl_alloc(struct mfs_tpl_render *r, size_t count, size_t size)
{
	uint64_t bytes;
	void *p;

	if (r->rc || mfs_mul_overflows(count, size, &bytes) || !mfs_tpl_work(r, bytes))
		return NULL;
	if (bytes > MFS_TPL_MEMORY - mfs_min_u64(r->arena.total, MFS_TPL_MEMORY)) {
		mfs_tpl_fail(r, -ENOTSUP, "more memory than a conversation needs");
		return NULL;
	}
	p = mfs_arena_alloc(&r->arena, bytes ? bytes : 1);
	if (!p)
		mfs_tpl_fail(r, -ENOMEM, "out of memory");
	return p;
}

/* ---- scopes ---- */

/* Begins a scope within the one at hand. False: a failure, and there is nothing to leave. */
static bool enter(struct mfs_tpl_render *r)
{
	struct mfs_tpl_scope *scope;

	if (r->depth >= MFS_TPL_DEEP)
		mfs_tpl_fail(r, -ENOTSUP, "expressions and macros are too deep");
	scope = mfs_tpl_alloc(r, 1, sizeof(*scope));
	if (!scope)
		return false;
	scope->parent = r->scope;
	r->scope = scope;
	r->depth++;
	return true;
}

static void leave(struct mfs_tpl_render *r)
{
	r->scope->left = true;
	r->scope = r->scope->parent;
	r->depth--;
}

/* Runs statements in a scope of their own. */
static void run_inside(struct mfs_tpl_render *r, const struct mfs_tpl_node *body)
{
	if (!enter(r))
		return;
	mfs_tpl_run(r, body);
	leave(r);
}

/* Each name that is compared costs an eighth of an evaluation. */
struct mfs_tpl_variable *mfs_tpl_find_variable(struct mfs_tpl_render *r,
					       const struct mfs_tpl_scope *scope,
					       struct mfs_tpl_value name)
{
	struct mfs_tpl_variable *v = scope->variables;
	uint64_t bytes = 0;

	for (; v; v = v->next) {
		bytes += 8 + (v->name.len == name.len ? name.len : 0);
		if (v->name.len == name.len && !memcmp(v->name.text, name.text, name.len))
			break;
	}
	return mfs_tpl_work(r, bytes) ? v : NULL;
}

static void set(struct mfs_tpl_render *r, struct mfs_tpl_value name, struct mfs_tpl_value value)
{
	struct mfs_tpl_variable *v = mfs_tpl_find_variable(r, r->scope, name);

	if (!v) {
		v = mfs_tpl_alloc(r, 1, sizeof(*v));
		if (!v)
			return;
		v->name = name;
		v->next = r->scope->variables;
		r->scope->variables = v;
	}
	v->value = value;
}

static void set_attribute(struct mfs_tpl_render *r, const struct mfs_tpl_node *target,
			  struct mfs_tpl_value value)
{
	const struct mfs_tpl_value of = mfs_tpl_eval(r, target->a);

	if (of.kind != MFS_TPL_NAMESPACE)
		mfs_tpl_fail(r, -EINVAL, "an attribute of what is no namespace is set");
	else if (r->conditions)
		mfs_tpl_fail(r, -ENOTSUP, "a loop's condition sets an attribute");
	else
		mfs_tpl_dict_set(r, of.dict, target->value, value);
}

void mfs_tpl_assign(struct mfs_tpl_render *r, const struct mfs_tpl_node *target,
		    struct mfs_tpl_value value)
{
	const struct mfs_tpl_list *list;
	const struct mfs_tpl_node *n;
	size_t i = 0;

	if (r->rc)
		return;
	if (target->kind == MFS_TPL_VARIABLE) {
		set(r, target->value, value);
		return;
	}
	if (target->kind == MFS_TPL_ATTRIBUTE) {
		set_attribute(r, target, value);
		return;
	}
	list = mfs_tpl_iterate(r, value);
	for (n = target->a; n && i < list->count; n = n->next)
		mfs_tpl_assign(r, n, list->at[i++]);
	if (!r->rc && (n || i < list->count))
		mfs_tpl_fail(r, -EINVAL, "%zu values for another number of names", list->count);
}

/* ---- statements ---- */

static void write_value(struct mfs_tpl_render *r, struct mfs_tpl_value v)
{
	if (!r->rc)
		mfs_tpl_print(r, v, false, r->out);
	if (r->out->failed)
		mfs_tpl_fail(r, -ENOMEM, "out of memory");
}

/* Runs statements whose text goes into a value, in a scope of their own. */
static struct mfs_tpl_value captured(struct mfs_tpl_render *r, const struct mfs_tpl_node *body)
{
	struct mfs_buf text = {0}, *out = r->out;

	r->out = &text;
	run_inside(r, body);
	r->out = out;
	return mfs_tpl_take(r, &text);
}

/* The filters of a block: the first one has the block's text. */
static struct mfs_tpl_node filtered(const struct mfs_tpl_node *n, struct mfs_tpl_node *text)
{
	struct mfs_tpl_node copy = *n;

	copy.a = n->a ? n->a : text;
	return copy;
}

static void run_capture(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	struct mfs_tpl_value v = captured(r, n->b);
	struct mfs_tpl_node text = {.kind = MFS_TPL_CONST, .line = n->line, .value = v}, first;

	if (n->c && n->c->a) {
		mfs_tpl_fail(r, -ENOTSUP, "several filters of a block");
		return;
	}
	if (n->c) {
		first = filtered(n->c, &text);
		v = mfs_tpl_eval(r, &first);
	}
	if (n->a)
		mfs_tpl_assign(r, n->a, v);
	else
		write_value(r, v);
}

/* What a loop goes through. */
struct loop_source {
	const struct mfs_tpl_list *all;
	const struct mfs_tpl_list *kept; /* those for which its condition holds */
	bool *holds;			 /* for each of all; NULL: it has no condition */
	size_t at;			 /* of all: the next one to come */
};

static bool condition_holds(struct mfs_tpl_render *r, const struct mfs_tpl_node *n,
			    struct mfs_tpl_value element)
{
	bool holds;

	if (!enter(r))
		return false;
	r->conditions++;
	mfs_tpl_assign(r, n->a, element);
	holds = mfs_tpl_truth(r, mfs_tpl_eval(r, n->e));
	r->conditions--;
	leave(r);
	return holds;
}

/* `loop` needs all elements at the beginning. */
static void begin_loop(struct mfs_tpl_render *r, const struct mfs_tpl_node *n,
		       struct loop_source *source)
{
	const struct mfs_tpl_list *all = mfs_tpl_iterate(r, mfs_tpl_eval(r, n->b));
	struct mfs_tpl_list *kept;

	*source = (struct loop_source){.all = all, .kept = all};
	if (!n->e || r->rc)
		return;
	kept = mfs_tpl_list(r, MFS_TPL_IS_LIST, all->count).list;
	source->holds = mfs_tpl_alloc(r, all->count, sizeof(*source->holds));
	if (!source->holds)
		return;
	kept->count = 0;
	for (size_t i = 0; i < all->count && !r->rc; i++) {
		source->holds[i] = condition_holds(r, n, all->at[i]);
		if (source->holds[i])
			kept->at[kept->count++] = all->at[i];
	}
	source->kept = kept;
}

/* Jinja evaluates a condition when it comes to the element: the answers up to the next turn have to
 * be those of the beginning. */
static void ask_again(struct mfs_tpl_render *r, const struct mfs_tpl_node *n,
		      struct loop_source *source)
{
	bool turn = false;

	while (source->holds && source->at < source->all->count && !turn && !r->rc) {
		const size_t i = source->at++;

		turn = source->holds[i];
		if (condition_holds(r, n, source->all->at[i]) != turn)
			mfs_tpl_fail(r, -ENOTSUP,
				     "a loop's condition depends on what the loop sets");
	}
}

static void run_once(struct mfs_tpl_render *r, const struct mfs_tpl_node *n,
		     struct mfs_tpl_loop *loop)
{
	const struct mfs_tpl_value as_value = {.kind = MFS_TPL_LOOP, .loop = loop};

	if (!enter(r))
		return;
	set(r, mfs_tpl_texts("loop"), as_value);
	mfs_tpl_assign(r, n->a, loop->list->at[loop->index]);
	mfs_tpl_run(r, n->c);
	leave(r);
}

/* `else` runs unless the body has reached its end once. */
static void run_for(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	struct mfs_tpl_loop *loop = mfs_tpl_alloc(r, 1, sizeof(*loop));
	struct loop_source source;
	bool ended = false;

	if (!loop)
		return;
	begin_loop(r, n, &source);
	loop->list = source.kept;
	for (; r->flow != MFS_TPL_BROKEN && !r->rc; loop->index++) {
		r->flow = MFS_TPL_ON;
		ask_again(r, n, &source);
		if (loop->index >= loop->list->count || r->rc)
			break;
		run_once(r, n, loop);
		ended |= r->flow == MFS_TPL_ON;
	}
	r->flow = MFS_TPL_ON;
	if (!ended && n->d && !r->rc)
		run_inside(r, n->d);
}

static void run_with(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	struct mfs_tpl_scope *inner;

	if (!enter(r))
		return;
	inner = r->scope;
	/* Values are those outside. */
	for (const struct mfs_tpl_node *s = n->a; s && !r->rc; s = s->next) {
		struct mfs_tpl_value v;

		r->scope = inner->parent;
		v = mfs_tpl_eval(r, s->b);
		r->scope = inner;
		mfs_tpl_assign(r, s->a, v);
	}
	mfs_tpl_run(r, n->b);
	leave(r);
}

static void run_macro(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	struct mfs_tpl_callable *macro = mfs_tpl_alloc(r, 1, sizeof(*macro));

	if (!macro)
		return;
	*macro = (struct mfs_tpl_callable){.name = "a macro", .macro = n, .scope = r->scope};
	set(r, n->value, (struct mfs_tpl_value){.kind = MFS_TPL_CALLABLE, .callable = macro});
}

static bool named_argument(struct mfs_tpl_render *r, const struct mfs_tpl_args *args,
			   struct mfs_tpl_value name, struct mfs_tpl_value *ret)
{
	for (size_t i = 0; i < args->named_count && mfs_tpl_work(r, name.len); i++)
		if (args->named[i].key.len == name.len &&
		    !memcmp(args->named[i].key.text, name.text, name.len)) {
			*ret = args->named[i].value;
			return true;
		}
	return false;
}

static void bind(struct mfs_tpl_render *r, const struct mfs_tpl_node *parameters,
		 const struct mfs_tpl_args *args)
{
	size_t i = 0, named = 0;

	for (const struct mfs_tpl_node *p = parameters; p && !r->rc; p = p->next, i++) {
		struct mfs_tpl_value v;
		const bool given = named_argument(r, args, p->value, &v);

		named += given;
		if (i < args->count && given)
			mfs_tpl_fail(r, -EINVAL, "a macro has two values for '%.*s'",
				     (int)p->value.len, p->value.text);
		else if (i < args->count)
			v = args->at[i];
		else if (!given)
			v = p->b ? mfs_tpl_eval(r, p->b) : mfs_tpl_undefined(p->value);
		set(r, p->value, v);
	}
	if (!r->rc && (i < args->count || named < args->named_count))
		mfs_tpl_fail(r, -EINVAL, "a macro has an argument that it has no name for");
}

struct mfs_tpl_value mfs_tpl_call_macro(struct mfs_tpl_render *r,
					const struct mfs_tpl_callable *macro,
					const struct mfs_tpl_args *args)
{
	struct mfs_buf text = {0}, *out = r->out;
	struct mfs_tpl_scope *caller = r->scope;

	r->out = &text;
	r->scope = macro->scope;
	if (enter(r)) {
		bind(r, macro->macro->a, args);
		mfs_tpl_run(r, macro->macro->c);
		leave(r);
	}
	r->scope = caller;
	r->out = out;
	return mfs_tpl_take(r, &text);
}

static void run_generation(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	struct mfs_template_span span = {.from = r->ret->text.len};

	run_inside(r, n->a);
	span.to = r->ret->text.len;
	if (mfs_grow(&r->ret->spans, r->ret->span_count)) {
		mfs_tpl_fail(r, -ENOMEM, "out of memory");
		return;
	}
	r->ret->spans[r->ret->span_count++] = span;
}

static void run_if(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	if (mfs_tpl_truth(r, mfs_tpl_eval(r, n->a)))
		mfs_tpl_run(r, n->b);
	else
		mfs_tpl_run(r, n->c);
}

static void run_one(struct mfs_tpl_render *r, const struct mfs_tpl_node *n)
{
	switch (n->kind) {
	case MFS_TPL_WRITE:
		write_value(r, n->value);
		break;
	case MFS_TPL_PRINT:
		write_value(r, mfs_tpl_eval(r, n->a));
		break;
	case MFS_TPL_IF:
		run_if(r, n);
		break;
	case MFS_TPL_FOR:
		run_for(r, n);
		break;
	case MFS_TPL_SET:
		mfs_tpl_assign(r, n->a, mfs_tpl_eval(r, n->b));
		break;
	case MFS_TPL_CAPTURE:
		run_capture(r, n);
		break;
	case MFS_TPL_WITH:
		run_with(r, n);
		break;
	case MFS_TPL_MACRO:
		run_macro(r, n);
		break;
	case MFS_TPL_GENERATION:
		run_generation(r, n);
		break;
	default:
		r->flow = n->kind == MFS_TPL_BREAK ? MFS_TPL_BROKEN : MFS_TPL_CONTINUED;
	}
}

void mfs_tpl_run(struct mfs_tpl_render *r, const struct mfs_tpl_node *list)
{
	if (r->depth >= MFS_TPL_DEEP)
		mfs_tpl_fail(r, -ENOTSUP, "expressions and macros are too deep");
	r->depth++;
	for (; list && r->flow == MFS_TPL_ON && mfs_tpl_work(r, 0); list = list->next) {
		r->line = list->line;
		run_one(r, list);
	}
	r->depth--;
}

void mfs_template_text_release(struct mfs_template_text *t)
{
	mfs_buf_release(&t->text);
	free(t->spans);
	*t = (struct mfs_template_text){0};
}

int mfs_template_render(const struct mfs_template *t, json_t *variables, time_t now,
			const char *const *needed, struct mfs_template_text *ret,
			struct mfs_error *err)
{
	struct mfs_tpl_scope scope = {0};
	struct mfs_tpl_render r = {.left = MFS_TPL_WORK,
				   .err = err,
				   .now = now,
				   .needed = needed,
				   .variables = variables,
				   .scope = &scope,
				   .ret = ret};

	*ret = (struct mfs_template_text){0};
	r.out = &ret->text;
	mfs_tpl_run(&r, t->body);
	mfs_arena_release(&r.arena);
	if (r.rc)
		mfs_template_text_release(ret);
	return r.rc;
}
