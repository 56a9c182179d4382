#include "formats/torch/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/torch/pickle_memo_i.h"
#include "formats/torch/pickle_op.h"
#include "formats/torch/pickle_tree_i.h"

/* Skipping a value: nothing is kept from its key until the SETITEM(S) of the dict. */
struct skip {
	const char *key; /* NULL: nothing is skipped */
	size_t key_len;
	bool now, done;
	uint32_t marks, height; /* of the stack, when the key had been pushed */
};

struct machine {
	struct mfs_pickle *doc;
	const char *name;
	const uint8_t *at, *end;

	const uint8_t *opcode; /* the one that runs, */
	const struct op *op;   /* its row of the table, */
	uint64_t argument;     /* and the number after it */

	mfs_value *stack;
	uint32_t height, most_height;
	uint32_t *marks; /* heights of the stack */
	uint32_t mark_count, most_marks;
	struct mfs_memo memo;
	struct skip skip;
	struct mfs_error *err;
};

/* What an opcode reads, and what it does. Members that its function does not need are 0. */
struct op {
	int (*run)(struct machine *m);
	uint8_t width; /* of its argument, a little-endian number: 0, 1, 2, 4 or 8 bytes */
	uint8_t count; /* values that it takes from the stack; 0: all above the topmost mark */
	uint8_t type;  /* enum mfs_value_type of what it makes */
	uint8_t form;  /* enum mfs_pickled_kind of what it makes */
	uint8_t value; /* node that every document has */
};

static int malformed(struct machine *m, const char *what)
{
	return mfs_fail(m->err, -EINVAL, "%s: malformed pickle at byte %zu: %s", m->name,
			(size_t)(m->opcode - m->doc->bytes), what);
}

static uint64_t bytes_left(const struct machine *m)
{
	return (uint64_t)(m->end - m->at);
}

/* ---- the stack ---- */

/* Room for one more than the most entries that the stack, or the marks, have had. */
static int grow(struct machine *m, uint32_t **entries, uint32_t *most)
{
	if (*most == MFS_PICKLE_MAX_DEPTH)
		return malformed(m, "the stack grows without end");
	if (mfs_grow(entries, *most))
		return mfs_fail_nomem(m->err);
	++*most;
	return 0;
}

static inline int push(struct machine *m, mfs_value v)
{
	int rc = m->height == m->most_height ? grow(m, &m->stack, &m->most_height) : 0;

	if (!rc)
		m->stack[m->height++] = v;
	return rc;
}

/* Entries above the topmost mark. */
static uint32_t available(const struct machine *m)
{
	return m->height - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

static int need(struct machine *m, uint32_t count)
{
	return available(m) < count ? malformed(m, "stack underflow") : 0;
}

static mfs_value top(const struct machine *m)
{
	return m->stack[m->height - 1];
}

/* Takes the op's values from the stack. They stay where they are until something is pushed. */
static int take(struct machine *m, const mfs_value **ret, uint32_t *ret_count)
{
	uint32_t count = m->op->count;
	int rc = 0;

	if (count) {
		rc = need(m, count);
	} else if (m->mark_count) {
		count = available(m);
		m->mark_count--;
	} else {
		rc = malformed(m, "no mark on the stack");
	}
	if (rc)
		return rc;
	m->height -= count;
	*ret = m->stack ? m->stack + m->height : NULL;
	*ret_count = count;
	return 0;
}

/* ---- making values ---- */

static inline int make_node(struct machine *m, struct mfs_pickle_node node, mfs_value *ret)
{
	*ret = MFS_VALUE_DISCARDED;
	if (m->skip.now || !mfs_pickle_add_node(m->doc, node, ret))
		return 0;
	return mfs_fail_nomem(m->err);
}

static int push_node(struct machine *m, struct mfs_pickle_node node)
{
	mfs_value made;
	int rc = make_node(m, node, &made);

	return rc ? rc : push(m, made);
}

static int push_int(struct machine *m, int64_t value)
{
	if (value >= 0 && value < MFS_PICKLE_SHARED_INTS)
		return push(m, MFS_VALUE_INTS + (mfs_value)value);
	return push_node(m, (struct mfs_pickle_node){.type = MFS_V_INT, .u.i = value});
}

static void start_skipping(struct machine *m, const uint8_t *text, size_t len)
{
	struct skip *s = &m->skip;

	if (!s->key || s->done || len != s->key_len || memcmp(text, s->key, len))
		return;
	s->now = s->done = true;
	s->marks = m->mark_count;
	s->height = m->height;
	m->memo.gap_start = m->memo.count;
}

/* The next len bytes of the stream. */
static int push_text(struct machine *m, enum mfs_value_type type, enum mfs_pickled_kind form,
		     uint64_t len)
{
	const uint8_t *text = m->at;
	int rc;

	if (len > UINT32_MAX || len > bytes_left(m))
		return malformed(m, "a string is longer than the stream");
	m->at += len;
	rc = push_node(m, (struct mfs_pickle_node){.type = type,
						   .form = form,
						   .a = (uint32_t)len,
						   .u.i = text - m->doc->bytes});
	if (!rc && type == MFS_V_STR && !m->skip.now)
		start_skipping(m, text, (size_t)len);
	return rc;
}

/* Adds values to a collection: items (part: MFS_V_LIST), or keys and values (part: MFS_V_DICT). */
static int add(struct machine *m, mfs_value target, enum mfs_value_type part,
	       const mfs_value *values, uint32_t count)
{
	struct mfs_pickle_node *n = mfs_pickle_node(m->doc, target);
	const bool set = part == MFS_V_LIST && n->type == MFS_V_SET;
	int rc;

	if (part == MFS_V_DICT && count % 2)
		return malformed(m, "a key without a value");
	if (n->type == MFS_V_DISCARDED || m->skip.now || !count)
		return 0;
	if (n->type == MFS_V_OBJECT)
		n = mfs_pickle_part(m->doc, n, part);
	else if (n->type != part && !set)
		return malformed(m, part == MFS_V_DICT
					    ? "keys are set in something that is not a dict"
					    : "items are added to something that is not a list");
	rc = n ? mfs_pickle_extend(m->doc, n, values, count) : -ENOMEM;
	if (rc == -EOVERFLOW)
		return malformed(m, "a collection is too large");
	return rc ? mfs_fail_nomem(m->err) : 0;
}

static int memo_put(struct machine *m, uint64_t slot)
{
	int rc = need(m, 1);

	if (rc)
		return rc;
	/* A slot number costs bytes in the stream, so numbers beyond its length are nonsense. */
	if (slot > (uint64_t)(m->end - m->doc->bytes))
		return malformed(m, "a memo slot beyond any possible count");
	rc = mfs_memo_put(&m->memo, slot, top(m), m->skip.now);
	if (rc == -EEXIST)
		return malformed(m, "a memo slot is used twice");
	return rc ? mfs_fail_nomem(m->err) : 0;
}

/* ---- what opcodes do ---- */

static int op_proto(struct machine *m)
{
	return m->argument < 2 || m->argument > 5 ? malformed(m, "unknown protocol") : 0;
}

/* What a frame holds follows it, and its length adds nothing. */
static int op_frame(struct machine *m)
{
	(void)m;
	return 0;
}

static int op_shared(struct machine *m)
{
	return push(m, m->op->value);
}

static int op_int(struct machine *m)
{
	return push_int(m, (int64_t)m->argument);
}

static int op_int32(struct machine *m)
{
	return push_int(m, (int32_t)(uint32_t)m->argument);
}

/* Two's complement, little-endian, of any length. */
static int op_long(struct machine *m)
{
	const uint64_t len = m->argument;
	const uint8_t *p = m->at;
	uint64_t v = 0;

	if (len > bytes_left(m))
		return malformed(m, "an integer is longer than the stream");
	m->at += len;
	if (len > 8)
		return push_node(m, (struct mfs_pickle_node){.type = MFS_V_BIGINT,
							     .a = (uint32_t)len,
							     .u.i = p - m->doc->bytes});
	for (uint64_t i = 0; i < len; i++)
		v |= (uint64_t)p[i] << 8 * i;
	if (len && len < 8 && p[len - 1] & 0x80)
		v |= ~0ull << 8 * len;
	return push_int(m, (int64_t)v);
}

static int op_float(struct machine *m)
{
	const uint64_t bits = __builtin_bswap64(m->argument); /* the one big-endian number */
	struct mfs_pickle_node n = {.type = MFS_V_FLOAT};

	memcpy(&n.u.f, &bits, sizeof(bits));
	return push_node(m, n);
}

static int op_text(struct machine *m)
{
	return push_text(m, m->op->type, m->op->form, m->argument);
}

static int op_empty(struct machine *m)
{
	return push_node(m, (struct mfs_pickle_node){.type = m->op->type});
}

static int op_mark(struct machine *m)
{
	int rc = m->mark_count == m->most_marks ? grow(m, &m->marks, &m->most_marks) : 0;

	if (!rc)
		m->marks[m->mark_count++] = m->height;
	return rc;
}

static int op_tuple(struct machine *m)
{
	struct mfs_pickle_node n = {.type = MFS_V_TUPLE};
	const mfs_value *items;
	int rc = take(m, &items, &n.a);

	if (rc)
		return rc;
	if (!n.a)
		return push(m, MFS_VALUE_EMPTY_TUPLE);
	if (m->skip.now)
		return push(m, MFS_VALUE_DISCARDED);
	n.u.items = mfs_arena_array(&m->doc->arena, n.a, sizeof(*items));
	if (!n.u.items)
		return mfs_fail_nomem(m->err);
	memcpy(n.u.items, items, n.a * sizeof(*items));
	return push_node(m, n);
}

/* A new list, dict or frozenset of what lies above the mark. */
static int op_collect(struct machine *m)
{
	const struct mfs_pickle_node n = {.type = m->op->type, .form = m->op->form};
	const mfs_value *items;
	uint32_t count;
	mfs_value made;
	int rc = take(m, &items, &count);

	if (!rc)
		rc = make_node(m, n, &made);
	if (!rc)
		rc = add(m, made, n.type == MFS_V_DICT ? MFS_V_DICT : MFS_V_LIST, items, count);
	return rc ? rc : push(m, made);
}

static int op_append(struct machine *m)
{
	const mfs_value *items;
	uint32_t count;
	int rc = take(m, &items, &count);

	if (!rc)
		rc = need(m, 1);
	return rc ? rc : add(m, top(m), MFS_V_LIST, items, count);
}

static bool is_skipped_value_set(const struct machine *m)
{
	const struct skip *s = &m->skip;

	return m->op->count ? m->mark_count == s->marks && m->height < s->height
			    : m->mark_count < s->marks;
}

static int op_setitem(struct machine *m)
{
	const mfs_value *pairs;
	uint32_t count;
	int rc = take(m, &pairs, &count);

	if (!rc)
		rc = need(m, 1);
	if (rc)
		return rc;
	if (m->skip.now && is_skipped_value_set(m))
		m->skip.now = false;
	return add(m, top(m), MFS_V_DICT, pairs, count);
}

static int op_put(struct machine *m)
{
	return memo_put(m, m->argument);
}

static int op_memoize(struct machine *m)
{
	return memo_put(m, m->memo.count);
}

static int op_get(struct machine *m)
{
	if (m->argument >= m->memo.count)
		return malformed(m, "a memo slot that was never set");
	return push(m, mfs_memo_get(&m->memo, m->argument));
}

static int op_pop(struct machine *m)
{
	if (available(m))
		m->height--;
	else if (m->mark_count)
		m->mark_count--;
	else
		return malformed(m, "stack underflow");
	return 0;
}

static int op_pop_mark(struct machine *m)
{
	const mfs_value *items;
	uint32_t count;

	return take(m, &items, &count);
}

static int op_dup(struct machine *m)
{
	int rc = need(m, 1);

	return rc ? rc : push(m, top(m));
}

/* "module\nname\n" */
static int op_global(struct machine *m)
{
	mfs_value part[2];

	for (int i = 0; i < 2; i++) {
		const uint8_t *newline = memchr(m->at, '\n', (size_t)bytes_left(m));
		int rc;

		if (!newline)
			return malformed(m, "a class name without its end");
		rc = push_text(m, MFS_V_STR, MFS_FORM_PLAIN, (uint64_t)(newline - m->at));
		if (rc)
			return rc;
		part[i] = m->stack[--m->height];
		m->at = newline + 1;
	}
	return push_node(
		m, (struct mfs_pickle_node){.type = MFS_V_GLOBAL, .a = part[0], .u.p.b = part[1]});
}

/* A node that refers to one or two others. */
static int op_node(struct machine *m)
{
	struct mfs_pickle_node n = {.type = m->op->type, .form = m->op->form};
	const mfs_value *parts;
	uint32_t count;
	int rc = take(m, &parts, &count);

	if (rc)
		return rc;
	n.a = parts[0];
	if (count > 1)
		n.u.p.b = parts[1];
	return push_node(m, n);
}

static int op_newobj_ex(struct machine *m)
{
	struct mfs_pickle_extra *x;
	mfs_value kwargs;
	int rc = need(m, 3);

	if (rc)
		return rc;
	kwargs = m->stack[--m->height];
	rc = op_node(m);
	if (rc || m->skip.now)
		return rc;
	x = mfs_pickle_need_extra(m->doc, mfs_pickle_node(m->doc, top(m)));
	if (!x)
		return mfs_fail_nomem(m->err);
	x->kwargs = kwargs;
	return 0;
}

static int op_build(struct machine *m)
{
	struct mfs_pickle_extra *x;
	struct mfs_pickle_node *n;
	mfs_value state;
	int rc = need(m, 2);

	if (rc)
		return rc;
	state = m->stack[--m->height];
	n = mfs_pickle_node(m->doc, top(m));
	if (n->type == MFS_V_DISCARDED || m->skip.now)
		return 0;
	if (n->type != MFS_V_OBJECT)
		return malformed(m, "a state is set in something that is not an object");
	x = mfs_pickle_need_extra(m->doc, n);
	if (!x)
		return mfs_fail_nomem(m->err);
	x->state = state;
	return 0;
}

/* STOP is not here: it ends run(). */
static const struct op ops[256] = {
	[MFS_OP_PROTO] = {.run = op_proto, .width = 1},
	[MFS_OP_FRAME] = {.run = op_frame, .width = 8},

	[MFS_OP_NONE] = {.run = op_shared, .value = MFS_VALUE_NONE},
	[MFS_OP_NEWTRUE] = {.run = op_shared, .value = MFS_VALUE_TRUE},
	[MFS_OP_NEWFALSE] = {.run = op_shared, .value = MFS_VALUE_FALSE},
	[MFS_OP_EMPTY_TUPLE] = {.run = op_shared, .value = MFS_VALUE_EMPTY_TUPLE},
	[MFS_OP_BININT1] = {.run = op_int, .width = 1},
	[MFS_OP_BININT2] = {.run = op_int, .width = 2},
	[MFS_OP_BININT] = {.run = op_int32, .width = 4},
	[MFS_OP_LONG1] = {.run = op_long, .width = 1},
	[MFS_OP_LONG4] = {.run = op_long, .width = 4},
	[MFS_OP_BINFLOAT] = {.run = op_float, .width = 8},

	[MFS_OP_SHORT_BINSTRING] = {.run = op_text, .width = 1, .type = MFS_V_STR},
	[MFS_OP_BINSTRING] = {.run = op_text, .width = 4, .type = MFS_V_STR},
	[MFS_OP_SHORT_BINUNICODE] = {.run = op_text, .width = 1, .type = MFS_V_STR},
	[MFS_OP_BINUNICODE] = {.run = op_text, .width = 4, .type = MFS_V_STR},
	[MFS_OP_BINUNICODE8] = {.run = op_text, .width = 8, .type = MFS_V_STR},
	[MFS_OP_SHORT_BINBYTES] = {.run = op_text, .width = 1, .type = MFS_V_BYTES},
	[MFS_OP_BINBYTES] = {.run = op_text, .width = 4, .type = MFS_V_BYTES},
	[MFS_OP_BINBYTES8] = {.run = op_text, .width = 8, .type = MFS_V_BYTES},
	[MFS_OP_BYTEARRAY8] = {.run = op_text,
			       .width = 8,
			       .type = MFS_V_BYTES,
			       .form = MFS_FORM_BYTEARRAY},

	[MFS_OP_EMPTY_LIST] = {.run = op_empty, .type = MFS_V_LIST},
	[MFS_OP_EMPTY_DICT] = {.run = op_empty, .type = MFS_V_DICT},
	[MFS_OP_EMPTY_SET] = {.run = op_empty, .type = MFS_V_SET},
	[MFS_OP_MARK] = {.run = op_mark},
	[MFS_OP_TUPLE] = {.run = op_tuple},
	[MFS_OP_TUPLE1] = {.run = op_tuple, .count = 1},
	[MFS_OP_TUPLE2] = {.run = op_tuple, .count = 2},
	[MFS_OP_TUPLE3] = {.run = op_tuple, .count = 3},
	[MFS_OP_LIST] = {.run = op_collect, .type = MFS_V_LIST},
	[MFS_OP_DICT] = {.run = op_collect, .type = MFS_V_DICT},
	[MFS_OP_FROZENSET] = {.run = op_collect, .type = MFS_V_SET, .form = MFS_FORM_FROZENSET},
	[MFS_OP_APPEND] = {.run = op_append, .count = 1},
	[MFS_OP_APPENDS] = {.run = op_append},
	[MFS_OP_ADDITEMS] = {.run = op_append},
	[MFS_OP_SETITEM] = {.run = op_setitem, .count = 2},
	[MFS_OP_SETITEMS] = {.run = op_setitem},

	[MFS_OP_BINPUT] = {.run = op_put, .width = 1},
	[MFS_OP_LONG_BINPUT] = {.run = op_put, .width = 4},
	[MFS_OP_MEMOIZE] = {.run = op_memoize},
	[MFS_OP_BINGET] = {.run = op_get, .width = 1},
	[MFS_OP_LONG_BINGET] = {.run = op_get, .width = 4},
	[MFS_OP_POP] = {.run = op_pop},
	[MFS_OP_POP_MARK] = {.run = op_pop_mark},
	[MFS_OP_DUP] = {.run = op_dup},

	[MFS_OP_GLOBAL] = {.run = op_global},
	[MFS_OP_STACK_GLOBAL] = {.run = op_node, .count = 2, .type = MFS_V_GLOBAL},
	[MFS_OP_BINPERSID] = {.run = op_node, .count = 1, .type = MFS_V_PERSID},
	[MFS_OP_REDUCE] = {.run = op_node, .count = 2, .type = MFS_V_OBJECT},
	[MFS_OP_NEWOBJ] = {.run = op_node,
			   .count = 2,
			   .type = MFS_V_OBJECT,
			   .form = MFS_FORM_NEWOBJ},
	[MFS_OP_NEWOBJ_EX] = {.run = op_newobj_ex,
			      .count = 2,
			      .type = MFS_V_OBJECT,
			      .form = MFS_FORM_NEWOBJ},
	[MFS_OP_BUILD] = {.run = op_build},
};

/* ---- running ---- */

/* Eight bytes are loaded at once, wherever the stream has them. */
static int read_argument(struct machine *m, unsigned width)
{
	uint64_t loaded = 0;

	if (bytes_left(m) >= sizeof(loaded)) {
		loaded = mfs_le64(m->at) & UINT64_MAX >> (64 - 8 * width);
	} else if (bytes_left(m) >= width) {
		for (unsigned i = 0; i < width; i++)
			loaded |= (uint64_t)m->at[i] << 8 * i;
	} else {
		return malformed(m, "the stream ends inside an argument");
	}
	m->argument = loaded;
	m->at += width;
	return 0;
}

static int stop(struct machine *m)
{
	if (m->height != 1 || m->mark_count)
		return malformed(m, "not exactly one value at its end");
	m->doc->root = m->stack[0];
	m->doc->length = (size_t)(m->at - m->doc->bytes);
	return 0;
}

static int run(struct machine *m)
{
	while (m->at < m->end) {
		uint8_t code = *(m->opcode = m->at++);
		int rc;

		if (code == MFS_OP_STOP)
			return stop(m);
		m->op = &ops[code];
		if (!m->op->run)
			return mfs_fail(m->err, -EINVAL,
					"%s: pickle opcode 0x%02x at byte %zu is not supported",
					m->name, code, (size_t)(m->opcode - m->doc->bytes));
		rc = m->op->width ? read_argument(m, m->op->width) : 0;
		if (!rc)
			rc = m->op->run(m);
		if (rc)
			return rc;
	}
	m->opcode = m->end;
	return malformed(m, "it ends without STOP");
}

int mfs_pickle_parse(const void *bytes, size_t len, const char *name,
		     const struct mfs_pickle_options *opt, struct mfs_pickle **ret,
		     struct mfs_error *err)
{
	struct mfs_pickle *doc = mfs_pickle_new(bytes);
	struct machine m = {.doc = doc,
			    .name = name,
			    .at = bytes,
			    .opcode = bytes,
			    .end = (const uint8_t *)bytes + len,
			    .memo.gap_start = MFS_MEMO_GAP_NONE,
			    .skip.key = opt ? opt->discard_key : NULL,
			    .err = err};
	int rc;

	if (!doc)
		return mfs_fail_nomem(err);
	if (m.skip.key)
		m.skip.key_len = strlen(m.skip.key);
	rc = run(&m);
	free(m.stack);
	free(m.marks);
	free(m.memo.values);
	if (rc) {
		mfs_pickle_free(doc);
		return rc;
	}
	*ret = doc;
	return 0;
}
