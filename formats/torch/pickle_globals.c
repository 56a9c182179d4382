#include "formats/torch/pickle_globals.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch/pickle.h"

/* What an opcode is followed by. */
enum argument {
	ARG_BYTES, /* width bytes */
	ARG_SIZED, /* width bytes that count what follows */
	ARG_LINE,  /* a line */
	ARG_LINES, /* two lines */
};

/* What it does with the stack. */
enum effect {
	BAD,	/* no opcode */
	PUSH,	/* takes `takes` entries, and leaves one */
	TEXT,	/* leaves a text: its argument */
	QUOTED, /* the same in quotes */
	DROP,	/* takes `takes` entries, and leaves none */
	LIST,	/* takes all down to the mark, and leaves one */
	ADD,	/* takes all down to the mark */
	MARK,
	POP,
	DUP,
	NOTHING,
	GET,
	PUT,
	MEMOIZE,
	GLOBAL,
	INST,
	STACK_GLOBAL,
	UNKNOWN, /* an entry of copyreg's registry */
	STOP,
};

struct op {
	uint8_t effect, argument, width, takes;
};

static const struct op ops[256] = {
	['('] = {MARK, ARG_BYTES, 0, 0},
	['.'] = {STOP, ARG_BYTES, 0, 0},
	['0'] = {POP, ARG_BYTES, 0, 0},
	['1'] = {ADD, ARG_BYTES, 0, 0},
	['2'] = {DUP, ARG_BYTES, 0, 0},
	['F'] = {PUSH, ARG_LINE, 0, 0},
	['G'] = {PUSH, ARG_BYTES, 8, 0},
	['I'] = {PUSH, ARG_LINE, 0, 0},
	['J'] = {PUSH, ARG_BYTES, 4, 0},
	['K'] = {PUSH, ARG_BYTES, 1, 0},
	['L'] = {PUSH, ARG_LINE, 0, 0},
	['M'] = {PUSH, ARG_BYTES, 2, 0},
	['N'] = {PUSH, ARG_BYTES, 0, 0},
	['P'] = {PUSH, ARG_LINE, 0, 0},
	['Q'] = {PUSH, ARG_BYTES, 0, 1},
	['R'] = {PUSH, ARG_BYTES, 0, 2},
	['S'] = {QUOTED, ARG_LINE, 0, 0},
	['T'] = {TEXT, ARG_SIZED, 4, 0},
	['U'] = {TEXT, ARG_SIZED, 1, 0},
	['V'] = {TEXT, ARG_LINE, 0, 0},
	['X'] = {TEXT, ARG_SIZED, 4, 0},
	['a'] = {DROP, ARG_BYTES, 0, 1},
	['b'] = {DROP, ARG_BYTES, 0, 1},
	['c'] = {GLOBAL, ARG_LINES, 0, 0},
	['d'] = {LIST, ARG_BYTES, 0, 0},
	['e'] = {ADD, ARG_BYTES, 0, 0},
	['g'] = {GET, ARG_LINE, 0, 0},
	['h'] = {GET, ARG_BYTES, 1, 0},
	['i'] = {INST, ARG_LINES, 0, 0},
	['j'] = {GET, ARG_BYTES, 4, 0},
	['l'] = {LIST, ARG_BYTES, 0, 0},
	['o'] = {LIST, ARG_BYTES, 0, 0},
	['p'] = {PUT, ARG_LINE, 0, 0},
	['q'] = {PUT, ARG_BYTES, 1, 0},
	['r'] = {PUT, ARG_BYTES, 4, 0},
	['s'] = {DROP, ARG_BYTES, 0, 2},
	['t'] = {LIST, ARG_BYTES, 0, 0},
	['u'] = {ADD, ARG_BYTES, 0, 0},
	[')'] = {PUSH, ARG_BYTES, 0, 0},
	[']'] = {PUSH, ARG_BYTES, 0, 0},
	['}'] = {PUSH, ARG_BYTES, 0, 0},
	['B'] = {PUSH, ARG_SIZED, 4, 0},
	['C'] = {PUSH, ARG_SIZED, 1, 0},
	[0x80] = {NOTHING, ARG_BYTES, 1, 0},
	[0x81] = {PUSH, ARG_BYTES, 0, 2},
	[0x82] = {UNKNOWN, ARG_BYTES, 1, 0},
	[0x83] = {UNKNOWN, ARG_BYTES, 2, 0},
	[0x84] = {UNKNOWN, ARG_BYTES, 4, 0},
	[0x85] = {PUSH, ARG_BYTES, 0, 1},
	[0x86] = {PUSH, ARG_BYTES, 0, 2},
	[0x87] = {PUSH, ARG_BYTES, 0, 3},
	[0x88] = {PUSH, ARG_BYTES, 0, 0},
	[0x89] = {PUSH, ARG_BYTES, 0, 0},
	[0x8a] = {PUSH, ARG_SIZED, 1, 0},
	[0x8b] = {PUSH, ARG_SIZED, 4, 0},
	[0x8c] = {TEXT, ARG_SIZED, 1, 0},
	[0x8d] = {TEXT, ARG_SIZED, 8, 0},
	[0x8e] = {PUSH, ARG_SIZED, 8, 0},
	[0x8f] = {PUSH, ARG_BYTES, 0, 0},
	[0x90] = {ADD, ARG_BYTES, 0, 0},
	[0x91] = {LIST, ARG_BYTES, 0, 0},
	[0x92] = {PUSH, ARG_BYTES, 0, 3},
	[0x93] = {STACK_GLOBAL, ARG_BYTES, 0, 0},
	[0x94] = {MEMOIZE, ARG_BYTES, 0, 0},
	[0x95] = {NOTHING, ARG_BYTES, 8, 0},
	[0x96] = {PUSH, ARG_SIZED, 8, 0},
	[0x97] = {PUSH, ARG_BYTES, 0, 0},
	[0x98] = {NOTHING, ARG_BYTES, 0, 0},
};

struct text {
	const char *s;
	size_t len;
};

/* A value: a text of the stream, or anything else (s is NULL). */
struct entry {
	struct text text;
	bool mark;
	bool set; /* of the memo: the slot has been put */
};

struct entries {
	struct entry *list;
	size_t count, most;
};

struct walk {
	const uint8_t *bytes, *at, *end;
	struct entries stack, memo;
	size_t memoised; /* slots that are set: the next MEMOIZE takes that number */
	mfs_pickle_found found;
	void *arg;
	struct mfs_error *err;
};

static int malformed(const struct walk *w, const char *what)
{
	return mfs_fail(w->err, -EINVAL, "byte %zu of the pickle: %s", (size_t)(w->at - w->bytes),
			what);
}

static int ends_early(const struct walk *w)
{
	return mfs_fail(w->err, -ENODATA, "it ends before its STOP");
}

/* ---- entries ---- */

static int reserve(struct walk *w, struct entries *e, size_t count)
{
	const size_t most = count > 2 * e->most ? count : 2 * e->most;
	struct entry *list;

	if (count <= e->most)
		return 0;
	list = calloc(most, sizeof(*list)); /* slots that are never put cost no memory */
	if (!list)
		return mfs_fail_nomem(w->err);
	if (e->most)
		memcpy(list, e->list, e->most * sizeof(*list));
	free(e->list);
	e->list = list;
	e->most = most;
	return 0;
}

static int push(struct walk *w, struct entry e)
{
	int rc;

	if (w->stack.count == MFS_PICKLE_MAX_DEPTH)
		return malformed(w, "the stack is too deep");
	rc = reserve(w, &w->stack, w->stack.count + 1);

	if (!rc)
		w->stack.list[w->stack.count++] = e;
	return rc;
}

static int push_text(struct walk *w, struct text t)
{
	return push(w, (struct entry){.text = t});
}

static int push_other(struct walk *w)
{
	return push(w, (struct entry){.text = {NULL, 0}});
}

/* Entries may be taken down to the nearest mark. */
static int drop(struct walk *w, size_t count)
{
	for (; count; count--) {
		if (!w->stack.count || w->stack.list[w->stack.count - 1].mark)
			return malformed(w, "the stack has too few entries");
		w->stack.count--;
	}
	return 0;
}

static int drop_to_mark(struct walk *w)
{
	while (w->stack.count && !w->stack.list[w->stack.count - 1].mark)
		w->stack.count--;
	if (!w->stack.count)
		return malformed(w, "there is no mark");
	w->stack.count--;
	return 0;
}

static int top(struct walk *w, struct entry *ret)
{
	if (!w->stack.count || w->stack.list[w->stack.count - 1].mark)
		return malformed(w, "the stack has too few entries");
	*ret = w->stack.list[w->stack.count - 1];
	return 0;
}

static int put(struct walk *w, uint64_t slot)
{
	struct entry e;
	int rc = top(w, &e);

	/* Each slot took a byte of what was read, at least. */
	if (!rc && slot >= (size_t)(w->at - w->bytes))
		rc = malformed(w, "a slot of the memo is out of range");
	if (!rc)
		rc = reserve(w, &w->memo, slot + 1);
	if (rc)
		return rc;
	w->memoised += !w->memo.list[slot].set;
	w->memo.list[slot] = (struct entry){.text = e.text, .set = true};
	return 0;
}

/* ---- arguments ---- */

static int take_line(struct walk *w, struct text *ret)
{
	const uint8_t *end = memchr(w->at, '\n', (size_t)(w->end - w->at));

	if (!end)
		return ends_early(w);
	*ret = (struct text){(const char *)w->at, (size_t)(end - w->at)};
	w->at = end + 1;
	return 0;
}

static int take_number(struct walk *w, unsigned width, uint64_t *ret)
{
	*ret = 0;
	if ((size_t)(w->end - w->at) < width)
		return ends_early(w);
	for (unsigned i = 0; i < width; i++)
		*ret |= (uint64_t)w->at[i] << (8 * i);
	w->at += width;
	return 0;
}

struct argument_of {
	struct text text, second;
	uint64_t number;
};

static int take_argument(struct walk *w, const struct op *op, struct argument_of *ret)
{
	int rc = 0;

	if (op->argument == ARG_LINE || op->argument == ARG_LINES)
		rc = take_line(w, &ret->text);
	if (op->argument == ARG_LINES)
		return rc ? rc : take_line(w, &ret->second);
	if (op->argument == ARG_LINE)
		return rc;
	rc = take_number(w, op->width, &ret->number);
	if (rc || op->argument == ARG_BYTES)
		return rc;
	if (ret->number > (size_t)(w->end - w->at))
		return ends_early(w);
	ret->text = (struct text){(const char *)w->at, ret->number};
	w->at += ret->number;
	return 0;
}

/* The slot of GET and PUT: a number, or a line with one. */
static int slot_of(const struct walk *w, const struct op *op, const struct argument_of *a,
		   uint64_t *ret)
{
	*ret = a->number;
	if (op->argument != ARG_LINE)
		return 0;
	if (!a->text.len || a->text.len > 9)
		return malformed(w, "a slot of the memo is no number");
	for (size_t i = 0; i < a->text.len; i++) {
		if (a->text.s[i] < '0' || a->text.s[i] > '9')
			return malformed(w, "a slot of the memo is no number");
		*ret = *ret * 10 + (uint64_t)(a->text.s[i] - '0');
	}
	return 0;
}

/* 'os' of STRING. What has an escape in it is a text that does not stand in the stream. */
static struct text unquoted(struct text t)
{
	const bool quoted =
		t.len >= 2 && (t.s[0] == '\'' || t.s[0] == '"') && t.s[t.len - 1] == t.s[0];

	return quoted ? (struct text){t.s + 1, t.len - 2} : (struct text){NULL, 0};
}

static struct text plain(struct text t)
{
	return t.s && memchr(t.s, '\\', t.len) ? (struct text){NULL, 0} : t;
}

/* ---- opcodes ---- */

/* Bytes of the character that begins here; 0: it is none of UTF-8. */
static size_t character(const uint8_t *s, size_t left)
{
	const size_t len = *s < 0x80   ? 1
			   : *s < 0xc2 ? 0
			   : *s < 0xe0 ? 2
			   : *s < 0xf0 ? 3
			   : *s < 0xf5 ? 4
				       : 0;

	for (size_t i = 1; i < len; i++)
		if (i >= left || (s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

/* No module and no attribute has control characters or is no UTF-8: an import of it fails. */
static bool can_be_imported(struct text t)
{
	const uint8_t *s = (const uint8_t *)t.s;
	size_t len = 1;

	for (size_t i = 0; s && i < t.len && len; i += len)
		len = s[i] < ' ' || s[i] == 0x7f ? 0 : character(s + i, t.len - i);
	return len;
}

static int found(const struct walk *w, struct text module, struct text name)
{
	const bool known = module.s && name.s;

	if (!can_be_imported(module) || !can_be_imported(name))
		return malformed(w, "what it imports is no name");
	w->found(w->arg, known ? module.s : NULL, known ? module.len : 0, known ? name.s : NULL,
		 known ? name.len : 0);
	return 0;
}

static int stack_global(struct walk *w)
{
	struct entry module, name;
	int rc = top(w, &name);

	if (!rc)
		rc = drop(w, 1);
	if (!rc)
		rc = top(w, &module);
	if (!rc)
		rc = drop(w, 1);
	if (rc)
		return rc;
	rc = found(w, module.text, name.text);
	return rc ? rc : push_other(w);
}

static int get(struct walk *w, uint64_t slot)
{
	if (slot >= w->memo.most || !w->memo.list[slot].set)
		return malformed(w, "a slot of the memo is empty");
	return push(w, w->memo.list[slot]);
}

static int pop(struct walk *w)
{
	if (!w->stack.count)
		return malformed(w, "the stack has too few entries");
	w->stack.count--;
	return 0;
}

static int import(struct walk *w, const struct argument_of *a)
{
	const int rc = found(w, a->text, a->second);

	return rc ? rc : push_other(w);
}

static int apply_memo(struct walk *w, const struct op *op, const struct argument_of *a)
{
	uint64_t slot = w->memoised;
	int rc = op->effect == MEMOIZE ? 0 : slot_of(w, op, a, &slot);

	if (rc)
		return rc;
	return op->effect == GET ? get(w, slot) : put(w, slot);
}

static int apply(struct walk *w, const struct op *op, const struct argument_of *a)
{
	struct entry e;
	int rc = 0;

	switch ((enum effect)op->effect) {
	case PUSH:
	case DROP:
		rc = drop(w, op->takes);
		return rc || op->effect == DROP ? rc : push_other(w);
	case TEXT:
		return push_text(w, op->argument == ARG_LINE ? plain(a->text) : a->text);
	case QUOTED:
		return push_text(w, plain(unquoted(a->text)));
	case LIST:
	case ADD:
		rc = drop_to_mark(w);
		return rc || op->effect == ADD ? rc : push_other(w);
	case MARK:
		return push(w, (struct entry){.mark = true});
	case POP:
		return pop(w);
	case DUP:
		rc = top(w, &e);
		return rc ? rc : push(w, e);
	case GET:
	case PUT:
	case MEMOIZE:
		return apply_memo(w, op, a);
	case GLOBAL:
		return import(w, a);
	case INST:
		rc = drop_to_mark(w);
		return rc ? rc : import(w, a);
	case STACK_GLOBAL:
		return stack_global(w);
	case UNKNOWN:
		rc = found(w, (struct text){NULL, 0}, (struct text){NULL, 0});
		return rc ? rc : push_other(w);
	case STOP:
		return top(w, &e);
	case NOTHING:
		return 0;
	case BAD:
		break;
	}
	w->at--;
	return malformed(w, "it is no opcode of protocols 0 to 5");
}

static int run(struct walk *w)
{
	const struct op *op;
	int rc = 0;

	do {
		struct argument_of a = {.number = 0};

		if (w->at == w->end)
			return ends_early(w);
		op = &ops[*w->at++];
		rc = take_argument(w, op, &a);
		if (!rc)
			rc = apply(w, op, &a);
	} while (!rc && op->effect != STOP);
	return rc;
}

int mfs_pickle_globals(const void *bytes, size_t len, mfs_pickle_found found, void *arg,
		       size_t *ret_len, struct mfs_error *err)
{
	struct walk w = {.bytes = bytes,
			 .at = bytes,
			 .end = (const uint8_t *)bytes + len,
			 .found = found,
			 .arg = arg,
			 .err = err};
	int rc = run(&w);

	*ret_len = (size_t)(w.at - w.bytes);
	free(w.stack.list);
	free(w.memo.list);
	return rc;
}
