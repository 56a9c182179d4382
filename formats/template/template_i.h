/* What the files of this folder share: tokens, trees, values, and a rendering in progress. */
#ifndef MFS_TEMPLATE_TEMPLATE_I_H
#define MFS_TEMPLATE_TEMPLATE_I_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/template/template.h"

#define MFS_TPL_NESTED 100	    /* statements and expressions within each other */
#define MFS_TPL_TREE   (32u << 20)  /* bytes of a template that is parsed */
#define MFS_TPL_DEEP   400	    /* evaluations within each other */
#define MFS_TPL_WORK   (16u << 20)  /* evaluations, and each 64 bytes that one handles */
#define MFS_TPL_MEMORY (256u << 20) /* bytes of a rendering */

/* ---- tokens ---- */

enum mfs_tpl_token_kind {
	MFS_TPL_END,
	MFS_TPL_DATA,	     /* text between tags */
	MFS_TPL_PRINT_OPEN,  /* {{ */
	MFS_TPL_PRINT_CLOSE, /* }} */
	MFS_TPL_BLOCK_OPEN,  /* {% */
	MFS_TPL_BLOCK_CLOSE, /* %} */
	MFS_TPL_NAME,
	MFS_TPL_STRING, /* escapes are decoded */
	MFS_TPL_INTEGER,
	MFS_TPL_FLOAT,
	MFS_TPL_OPERATOR, /* text: one or two characters */
};

struct mfs_tpl_token {
	enum mfs_tpl_token_kind kind;
	uint32_t line;
	const char *text;
	size_t len;
};

/* Cuts a template into tokens, with blocks trimmed as transformers does. The last one is
 * MFS_TPL_END. */
int mfs_tpl_lex(const char *text, size_t len, struct mfs_arena *arena, struct mfs_tpl_token **ret,
		struct mfs_error *err);

/* ---- values ---- */

enum mfs_tpl_kind {
	MFS_TPL_UNDEFINED, /* text: the name that nothing has, for messages */
	MFS_TPL_NONE,
	MFS_TPL_BOOL,
	MFS_TPL_INT,
	MFS_TPL_REAL,
	MFS_TPL_TEXT,
	MFS_TPL_LIST,
	MFS_TPL_DICT,
	MFS_TPL_NAMESPACE,
	MFS_TPL_LOOP,
	MFS_TPL_CALLABLE,
};

/* What Python has in a list's place. */
enum mfs_tpl_list_type {
	MFS_TPL_IS_LIST,
	MFS_TPL_IS_TUPLE,
	MFS_TPL_IS_RANGE,
	MFS_TPL_IS_VIEW,      /* of a dict: has a length, and no element by number */
	MFS_TPL_IS_GENERATOR, /* can be gone through once */
};

struct mfs_tpl_list;
struct mfs_tpl_dict;
struct mfs_tpl_loop;
struct mfs_tpl_callable;

struct mfs_tpl_value {
	enum mfs_tpl_kind kind;
	bool safe; /* a text that went through the filter `safe`: it can be printed alone */
	union {
		bool truth;
		int64_t integer;
		double real;
		struct {
			const char *text;
			size_t len;
		};
		struct mfs_tpl_list *list;
		struct mfs_tpl_dict *dict; /* and of a namespace */
		struct mfs_tpl_loop *loop;
		struct mfs_tpl_callable *callable;
	};
};

struct mfs_tpl_list {
	enum mfs_tpl_list_type type;
	bool spent; /* a generator that somebody has gone through */
	struct mfs_tpl_value *at;
	size_t count;
};

struct mfs_tpl_pair {
	struct mfs_tpl_value key, value;
};

/* In the order in which keys came. */
struct mfs_tpl_dict {
	struct mfs_tpl_pair *at;
	size_t count, room;
};

struct mfs_tpl_loop {
	const struct mfs_tpl_list *list;
	size_t index;
};

struct mfs_tpl_render;
struct mfs_tpl_args;
typedef struct mfs_tpl_value mfs_tpl_function(struct mfs_tpl_render *r, struct mfs_tpl_value self,
					      const struct mfs_tpl_args *args);

struct mfs_tpl_callable {
	const char *name;
	mfs_tpl_function *function; /* NULL: a macro, or one that is not known */
	struct mfs_tpl_value self;
	bool method; /* it has at most so many arguments, and none by name */
	size_t most;
	const struct mfs_tpl_node *macro;
	struct mfs_tpl_scope *scope; /* a macro's */
};

/* ---- trees ---- */

enum mfs_tpl_node_kind {
	/* expressions */
	MFS_TPL_CONST,	   /* value */
	MFS_TPL_VARIABLE,  /* value: its name */
	MFS_TPL_LIST_OF,   /* a: elements */
	MFS_TPL_TUPLE_OF,  /* a: elements */
	MFS_TPL_DICT_OF,   /* a: keys; b of each: its value */
	MFS_TPL_ATTRIBUTE, /* a; value: the name */
	MFS_TPL_ITEM,	   /* a, b */
	MFS_TPL_SLICE,	   /* a; b, c, d: start, stop, step, or NULL */
	MFS_TPL_CALL,	   /* a; b: arguments */
	MFS_TPL_KEYWORD,   /* an argument: value: its name, a */
	MFS_TPL_FILTER,	   /* a (NULL: what a block has written); value: its name; b: arguments */
	MFS_TPL_TEST,	   /* the same */
	MFS_TPL_CONDITION, /* a if b else c (NULL: undefined) */
	MFS_TPL_OR,
	MFS_TPL_AND,
	MFS_TPL_NOT,
	MFS_TPL_COMPARE, /* a; b: MFS_TPL_OPERAND */
	MFS_TPL_OPERAND, /* op, a */
	MFS_TPL_BINARY,	 /* op, a, b */
	MFS_TPL_MINUS,
	MFS_TPL_PLUS,
	MFS_TPL_CONCAT, /* a: terms */
	/* statements */
	MFS_TPL_WRITE,	    /* value: text */
	MFS_TPL_PRINT,	    /* a */
	MFS_TPL_IF,	    /* a; b: body; c: else */
	MFS_TPL_FOR,	    /* a: target; b: of what; c: body; d: else; e: only if */
	MFS_TPL_SET,	    /* a: target; b */
	MFS_TPL_CAPTURE,    /* a: target; b: body; c: filters of what it writes, or NULL */
	MFS_TPL_WITH,	    /* a: MFS_TPL_SET; b: body */
	MFS_TPL_MACRO,	    /* value: name; a: parameters, b of each: default; c: body */
	MFS_TPL_GENERATION, /* a: body */
	MFS_TPL_BREAK,
	MFS_TPL_CONTINUE,
};

struct mfs_tpl_node {
	enum mfs_tpl_node_kind kind;
	uint32_t line;
	char op[4];
	struct mfs_tpl_value value;
	struct mfs_tpl_node *next; /* in a list of nodes */
	struct mfs_tpl_node *a, *b, *c, *d, *e;
};

struct mfs_template {
	struct mfs_arena arena;
	struct mfs_tpl_node *body;
	bool marks_answers;
};

struct mfs_tpl_parser {
	struct mfs_arena *arena;
	const struct mfs_tpl_token *at;
	struct mfs_error *err;
	int rc; /* the first failure; what is parsed after it is nothing */
	unsigned depth;
	unsigned loops;	   /* `break` and `continue` are allowed in so many */
	unsigned captures; /* macros and blocks whose text goes elsewhere */
	bool marks_answers;
};

/* Sets p->rc, unless there has been a failure. Returns NULL. */
struct mfs_tpl_node *mfs_tpl_refuse(struct mfs_tpl_parser *p, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
struct mfs_tpl_node *mfs_tpl_node(struct mfs_tpl_parser *p, enum mfs_tpl_node_kind kind);
bool mfs_tpl_is(const struct mfs_tpl_parser *p, enum mfs_tpl_token_kind kind, const char *text);
/* Steps over a token if it is the next one. */
bool mfs_tpl_accept(struct mfs_tpl_parser *p, enum mfs_tpl_token_kind kind, const char *text);
void mfs_tpl_expect(struct mfs_tpl_parser *p, enum mfs_tpl_token_kind kind, const char *text);
/* A name as a value. */
struct mfs_tpl_value mfs_tpl_expect_name(struct mfs_tpl_parser *p);
/* Counts a level of nesting; false: there are too many. p->depth goes down again by the caller. */
bool mfs_tpl_deeper(struct mfs_tpl_parser *p);

/* jinja2/parser.py: parse_expression; parse_tuple, whose names alone are targets. */
struct mfs_tpl_node *mfs_tpl_parse_expression(struct mfs_tpl_parser *p);
struct mfs_tpl_node *mfs_tpl_parse_tuple(struct mfs_tpl_parser *p, bool condition);
struct mfs_tpl_node *mfs_tpl_parse_target(struct mfs_tpl_parser *p, bool attributes);
/* Filters of what a block writes, the first of which has no '|'. */
struct mfs_tpl_node *mfs_tpl_parse_filters(struct mfs_tpl_parser *p);

/* ---- rendering ---- */

struct mfs_tpl_variable {
	struct mfs_tpl_value name, value;
	struct mfs_tpl_variable *next;
};

/* Of the rendering's memory: a macro keeps the scope that it is defined in. */
struct mfs_tpl_scope {
	struct mfs_tpl_scope *parent;
	struct mfs_tpl_variable *variables;
	bool left; /* its block has ended */
};

enum mfs_tpl_flow { MFS_TPL_ON, MFS_TPL_BROKEN, MFS_TPL_CONTINUED };

struct mfs_tpl_render {
	struct mfs_arena arena;
	uint64_t left; /* work */
	unsigned depth;
	int rc; /* the first failure; what is evaluated after it is undefined */
	struct mfs_error *err;
	uint32_t line; /* of the statement or expression at hand */
	time_t now;
	const char *const *needed; /* NULL: nothing is */
	json_t *variables;
	struct mfs_tpl_scope *scope;
	struct mfs_buf *out; /* what is written now goes here */
	struct mfs_template_text *ret;
	enum mfs_tpl_flow flow;
	unsigned conditions; /* of loops, within each other, that are evaluated now */
};

struct mfs_tpl_args {
	const struct mfs_tpl_value *at; /* by place */
	size_t count;
	const struct mfs_tpl_pair *named;
	size_t named_count;
};

/* Fails a rendering with a sentence that has the line. Returns an undefined value. */
struct mfs_tpl_value mfs_tpl_fail(struct mfs_tpl_render *r, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Counts work; false: there has been a failure, or there is too much. */
bool mfs_tpl_work(struct mfs_tpl_render *r, uint64_t bytes);
/* Memory of the rendering; NULL: a failure. */
void *mfs_tpl_alloc(struct mfs_tpl_render *r, size_t count, size_t size);

struct mfs_tpl_value mfs_tpl_eval(struct mfs_tpl_render *r, const struct mfs_tpl_node *n);
struct mfs_tpl_value mfs_tpl_call(struct mfs_tpl_render *r, struct mfs_tpl_value callee,
				  const struct mfs_tpl_args *args);
struct mfs_tpl_value mfs_tpl_call_macro(struct mfs_tpl_render *r,
					const struct mfs_tpl_callable *macro,
					const struct mfs_tpl_args *args);
void mfs_tpl_run(struct mfs_tpl_render *r, const struct mfs_tpl_node *list);
/* Sets a name, or the names of a tuple. */
void mfs_tpl_assign(struct mfs_tpl_render *r, const struct mfs_tpl_node *target,
		    struct mfs_tpl_value value);
/* The variable of a scope, without those around it; NULL: it has none. Counts work. */
struct mfs_tpl_variable *mfs_tpl_find_variable(struct mfs_tpl_render *r,
					       const struct mfs_tpl_scope *scope,
					       struct mfs_tpl_value name);

/* ---- values (template_value.c) ---- */

struct mfs_tpl_value mfs_tpl_bool(bool truth);
struct mfs_tpl_value mfs_tpl_int(int64_t integer);
struct mfs_tpl_value mfs_tpl_text(const char *text, size_t len);
struct mfs_tpl_value mfs_tpl_texts(const char *text); /* with a NUL */
struct mfs_tpl_value mfs_tpl_undefined(struct mfs_tpl_value name);
struct mfs_tpl_value mfs_tpl_none(void);
struct mfs_tpl_value mfs_tpl_list(struct mfs_tpl_render *r, enum mfs_tpl_list_type type,
				  size_t count);
struct mfs_tpl_value mfs_tpl_from_json(struct mfs_tpl_render *r, json_t *json);
/* Copies what a buffer has to the rendering's memory, and releases the buffer. */
struct mfs_tpl_value mfs_tpl_take(struct mfs_tpl_render *r, struct mfs_buf *b);
const char *mfs_tpl_type_name(struct mfs_tpl_value v);
bool mfs_tpl_text_is(struct mfs_tpl_value v, const char *what);
bool mfs_tpl_is_number(struct mfs_tpl_value v); /* or a truth value */
double mfs_tpl_real_of(struct mfs_tpl_value v);
bool mfs_tpl_truth(struct mfs_tpl_render *r, struct mfs_tpl_value v);
bool mfs_tpl_equal(struct mfs_tpl_render *r, struct mfs_tpl_value a, struct mfs_tpl_value b);
bool mfs_tpl_contains(struct mfs_tpl_render *r, struct mfs_tpl_value in, struct mfs_tpl_value what);
/* -1, 0 or 1; fails where Python has no order. */
int mfs_tpl_order(struct mfs_tpl_render *r, struct mfs_tpl_value a, struct mfs_tpl_value b);
/* len(). */
int64_t mfs_tpl_length(struct mfs_tpl_render *r, struct mfs_tpl_value v);
/* iter(): a list of what Python goes through. A generator is spent after it. */
const struct mfs_tpl_list *mfs_tpl_iterate(struct mfs_tpl_render *r, struct mfs_tpl_value v);
struct mfs_tpl_value *mfs_tpl_dict_find(struct mfs_tpl_render *r, const struct mfs_tpl_dict *d,
					struct mfs_tpl_value key);
void mfs_tpl_dict_set(struct mfs_tpl_render *r, struct mfs_tpl_dict *d, struct mfs_tpl_value key,
		      struct mfs_tpl_value value);

/* ---- texts (template_text.c) ---- */

/* The code point at *at, which moves on. */
uint32_t mfs_tpl_next_char(const char **at, const char *end);
bool mfs_tpl_is_space(uint32_t c); /* str.isspace() */
size_t mfs_tpl_chars(const char *text, size_t len);
/* Bytes before so many characters. */
size_t mfs_tpl_offset(const char *text, size_t len, size_t chars);
enum mfs_tpl_side { MFS_TPL_LEFT = 1, MFS_TPL_RIGHT = 2, MFS_TPL_BOTH = 3 };
/* str.strip(chars); an undefined or none `chars`: white space. */
struct mfs_tpl_value mfs_tpl_strip(struct mfs_tpl_render *r, struct mfs_tpl_value text,
				   struct mfs_tpl_value chars, enum mfs_tpl_side side);
struct mfs_tpl_value mfs_tpl_replace(struct mfs_tpl_render *r, struct mfs_tpl_value text,
				     struct mfs_tpl_value from, struct mfs_tpl_value to,
				     int64_t most);
enum mfs_tpl_case { MFS_TPL_UPPER, MFS_TPL_LOWER, MFS_TPL_CAPITALIZE, MFS_TPL_TITLE };
/* ASCII alone; anything else is refused. */
struct mfs_tpl_value mfs_tpl_change_case(struct mfs_tpl_render *r, struct mfs_tpl_value text,
					 enum mfs_tpl_case to);
/* str(). */
struct mfs_tpl_value mfs_tpl_str(struct mfs_tpl_render *r, struct mfs_tpl_value v);
/* Appends str() of it, or repr(). */
void mfs_tpl_print(struct mfs_tpl_render *r, struct mfs_tpl_value v, bool quoted,
		   struct mfs_buf *out);

struct mfs_tpl_json_style {
	bool ascii, sort_keys;
	const char *indent;	/* NULL: all in one line */
	const char *item, *key; /* separators */
};
/* json.dumps(). */
void mfs_tpl_to_json(struct mfs_tpl_render *r, struct mfs_tpl_value v,
		     const struct mfs_tpl_json_style *style, struct mfs_buf *out);

/* ---- names that a template can call ---- */

/* An attribute of a value as `a.b` finds it: a method, or what Python has. False: there is none. */
bool mfs_tpl_attribute(struct mfs_tpl_render *r, struct mfs_tpl_value v, struct mfs_tpl_value name,
		       struct mfs_tpl_value *ret);
bool mfs_tpl_global(struct mfs_tpl_render *r, struct mfs_tpl_value name, struct mfs_tpl_value *ret);
struct mfs_tpl_value mfs_tpl_filter(struct mfs_tpl_render *r, struct mfs_tpl_value name,
				    struct mfs_tpl_value v, const struct mfs_tpl_args *args);
bool mfs_tpl_test(struct mfs_tpl_render *r, struct mfs_tpl_value name, struct mfs_tpl_value v,
		  const struct mfs_tpl_args *args);
/* Whether a filter or a test of this name is known. */
bool mfs_tpl_has_filter(struct mfs_tpl_value name);
bool mfs_tpl_has_test(struct mfs_tpl_value name);
/* obj.name and obj[key], as Jinja's sandbox finds them. */
struct mfs_tpl_value mfs_tpl_get_attribute(struct mfs_tpl_render *r, struct mfs_tpl_value v,
					   struct mfs_tpl_value name);
struct mfs_tpl_value mfs_tpl_get_item(struct mfs_tpl_render *r, struct mfs_tpl_value v,
				      struct mfs_tpl_value key);

/* ---- arguments ---- */

/* The argument of a place or a name. False: it is not given. */
bool mfs_tpl_arg(const struct mfs_tpl_args *args, size_t place, const char *name,
		 struct mfs_tpl_value *ret);
/* Fails unless arguments are at most so many by place, and named as one of the list (NULL at its
 * end). */
bool mfs_tpl_check_args(struct mfs_tpl_render *r, const char *what, const struct mfs_tpl_args *args,
			size_t most, const char *const *names);

#endif
