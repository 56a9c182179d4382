#include "formats/torch/pickle_globals.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/torch/pickle.h"
#include "formats/torch/pickle_globals_i.h"

struct text {
	const char *s;
	size_t len;
};

/* A value: a text of the stream, or anything else (s is NULL). */
struct entry {
	struct text text;
	bool no_text; /* no str at all, whatever is called */
	bool mark;
	bool set; /* of the memo: the slot has been put */
};

#define MAX_FAR 64 /* slots beyond what was read; the unpickler takes them, nobody writes them */

struct far {
	uint64_t slot;
	struct entry entry;
};

struct entries {
	struct entry *list;
	size_t count, most;
};

struct walk {
	const uint8_t *bytes, *at, *end;
	struct entries stack, memo;
	struct far far[MAX_FAR];
	size_t far_count;
	size_t memoised;   /* slots that are set: the next MEMOIZE takes that number */
	uint64_t skipped;  /* bytes of arguments that nobody has looked at */
	uint64_t searched; /* bytes in which a line should have ended */
	bool registry;	   /* copyreg's registry was asked */
	mfs_pickle_found found;
	void *arg;
	struct mfs_error *err;
};

static int malformed(const struct walk *w, const char *what)
{
	return mfs_fail(w->err, -EINVAL, "byte %zu of the pickle: %s", (size_t)(w->at - w->bytes),
			what);
}

/* The unpickler may go on where this walk does not. */
static int beyond(const struct walk *w, const char *what)
{
	return mfs_fail(w->err, -ENOTSUP, "byte %zu of the pickle: %s", (size_t)(w->at - w->bytes),
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
		return beyond(w, "the stack has more than a million entries");
	rc = reserve(w, &w->stack, w->stack.count + 1);

	if (!rc)
		w->stack.list[w->stack.count++] = e;
	return rc;
}

static int push_text(struct walk *w, struct text t)
{
	return push(w, (struct entry){.text = t});
}

/* What a call returns, or a value that is no text. */
static int push_other(struct walk *w, bool no_text)
{
	return push(w, (struct entry){.no_text = no_text});
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

static struct far *find_far(struct walk *w, uint64_t slot)
{
	for (size_t i = 0; i < w->far_count; i++)
		if (w->far[i].slot == slot)
			return &w->far[i];
	return NULL;
}

static int put_far(struct walk *w, uint64_t slot, struct entry e)
{
	struct far *far = find_far(w, slot);

	if (!far && w->far_count == MAX_FAR)
		return beyond(w, "too many slots of the memo are out of range");
	if (!far) {
		far = &w->far[w->far_count++];
		w->memoised++;
	}
	*far = (struct far){slot, e};
	return 0;
}

static int put(struct walk *w, uint64_t slot)
{
	struct entry e;
	int rc = top(w, &e);

	/* Each slot took a byte of what was read, at least. */
	if (!rc && slot >= (size_t)(w->at - w->bytes))
		return put_far(w, slot, e);
	if (!rc)
		rc = reserve(w, &w->memo, slot + 1);
	if (rc)
		return rc;
	w->memoised += !w->memo.list[slot].set && !find_far(w, slot);
	w->memo.list[slot] = e;
	w->memo.list[slot].set = true;
	return 0;
}

/* ---- arguments ---- */

static int take_line(struct walk *w, struct text *ret)
{
	const uint8_t *end = memchr(w->at, '\n', (size_t)(w->end - w->at));

	if (!end) {
		w->searched = (uint64_t)(w->end - w->at);
		return ends_early(w);
	}
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

static int take_argument(struct walk *w, const struct mfs_pickle_opcode *op,
			 struct argument_of *ret)
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
	w->skipped += ret->number;
	w->at += ret->number;
	return 0;
}

/* True for what Python's int() may take, and this walk does not: "+1", "1_0", "0000000001". */
static bool may_be_int(struct text t)
{
	bool digit = false;

	for (size_t i = 0; i < t.len; i++) {
		if (!t.s[i] || !strchr("0123456789_+- \t\r\f\v", t.s[i]))
			return false;
		digit |= t.s[i] >= '0' && t.s[i] <= '9';
	}
	return digit;
}

/* The slot of GET and PUT: a number, or a line with one. */
static int slot_of(const struct walk *w, const struct mfs_pickle_opcode *op,
		   const struct argument_of *a, uint64_t *ret)
{
	const struct text t = a->text;
	size_t digits = 0;

	*ret = a->number;
	if (op->argument != ARG_LINE)
		return 0;
	for (; digits < t.len && t.s[digits] >= '0' && t.s[digits] <= '9' && digits < 9; digits++)
		*ret = *ret * 10 + (uint64_t)(t.s[digits] - '0');
	if (t.len && digits == t.len)
		return 0;
	return may_be_int(t) ? beyond(w, "a slot of the memo has no plain number")
			     : malformed(w, "a slot of the memo is no number");
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

static bool is_word(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.';
}

/* Letters, digits, underscores and dots, or what is no ASCII: the parts of a module's name and of
 * an attribute's. An import of anything else fails. */
static bool can_be_imported(struct text t)
{
	const uint8_t *s = (const uint8_t *)t.s;
	size_t len = 1;

	for (size_t i = 0; s && i < t.len && len; i += len)
		len = is_word(s[i]) ? 1 : s[i] < 0x80 ? 0 : character(s + i, t.len - i);
	return len;
}

/* torch's unpicklers return these by their name, whatever module is asked for, and import nothing
 * (torch/serialization.py, UnpicklerWrapper.find_class). */
static bool is_storage(struct text t)
{
	static const char *const types[] = {
		"BFloat16", "Bool",	"Byte",	    "Char",   "ComplexDouble", "ComplexFloat",
		"Double",   "Float",	"Half",	    "Int",    "Long",	       "QInt32",
		"QInt8",    "QUInt2x4", "QUInt4x2", "QUInt8", "Short",
	};
	static const char end[] = "Storage";
	const size_t end_len = sizeof(end) - 1;

	if (!t.s || t.len <= end_len || memcmp(t.s + t.len - end_len, end, end_len))
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++)
		if (strlen(types[i]) == t.len - end_len && !memcmp(types[i], t.s, t.len - end_len))
			return true;
	return false;
}

static int found(const struct walk *w, struct text module, struct text name)
{
	const bool known = module.s && name.s;

	if (!can_be_imported(name) || (!can_be_imported(module) && !is_storage(name)))
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
	if (module.no_text || name.no_text)
		return malformed(w, "what it imports is no text");
	rc = found(w, module.text, name.text);
	return rc ? rc : push_other(w, false);
}

static int get(struct walk *w, uint64_t slot)
{
	const struct far *far;

	if (slot < w->memo.most && w->memo.list[slot].set)
		return push(w, w->memo.list[slot]);
	far = find_far(w, slot);
	return far ? push(w, far->entry) : malformed(w, "a slot of the memo is empty");
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

	return rc ? rc : push_other(w, false);
}

static int apply_memo(struct walk *w, const struct mfs_pickle_opcode *op,
		      const struct argument_of *a)
{
	uint64_t slot = w->memoised;
	int rc = op->effect == MEMOIZE ? 0 : slot_of(w, op, a, &slot);

	if (rc)
		return rc;
	return op->effect == GET ? get(w, slot) : put(w, slot);
}

static int apply(struct walk *w, const struct mfs_pickle_opcode *op, const struct argument_of *a)
{
	struct entry e;
	int rc = 0;

	switch ((enum effect)op->effect) {
	case PUSH:
	case DROP:
		rc = drop(w, op->takes);
		return rc || op->effect == DROP ? rc : push_other(w, op->no_text);
	case TEXT:
		return push_text(w, op->argument == ARG_LINE ? plain(a->text) : a->text);
	case QUOTED:
		return push_text(w, plain(unquoted(a->text)));
	case LIST:
	case ADD:
		rc = drop_to_mark(w);
		return rc || op->effect == ADD ? rc : push_other(w, op->no_text);
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
		w->registry = true;
		return push_other(w, false);
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
	const struct mfs_pickle_opcode *op;
	int rc = 0;

	do {
		struct argument_of a = {.number = 0};

		if (w->at == w->end)
			return ends_early(w);
		op = &mfs_pickle_opcodes[*w->at++];
		rc = take_argument(w, op, &a);
		if (!rc)
			rc = apply(w, op, &a);
	} while (!rc && op->effect != STOP);
	return rc;
}

int mfs_pickle_walk(const void *bytes, size_t len, mfs_pickle_found found, void *arg,
		    struct mfs_pickle_walked *ret, struct mfs_error *err)
{
	struct walk w = {.bytes = bytes,
			 .at = bytes,
			 .end = (const uint8_t *)bytes + len,
			 .found = found,
			 .arg = arg,
			 .err = err};
	int rc = run(&w);

	*ret = (struct mfs_pickle_walked){.end = (size_t)(w.at - w.bytes)};
	ret->seen = ret->end - w.skipped + w.searched;
	/* A number that nobody has registered ends the unpickler: bytes that are no pickle have
	 * such numbers often, and hardly ever an end. */
	if (!rc && w.registry)
		found(arg, NULL, 0, NULL, 0);
	free(w.stack.list);
	free(w.memo.list);
	return rc;
}

int mfs_pickle_globals(const void *bytes, size_t len, mfs_pickle_found found, void *arg,
		       size_t *ret_len, struct mfs_error *err)
{
	struct mfs_pickle_walked walked;
	int rc = mfs_pickle_walk(bytes, len, found, arg, &walked, err);

	*ret_len = walked.end;
	return rc;
}
