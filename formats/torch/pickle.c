#include "formats/torch/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/torch/pickle_index.h"

/* 16 bytes a node: the .metadata of a large run has some millions of them. */
struct node {
	uint8_t type;	  /* enum mfs_value_type */
	uint8_t capacity; /* LIST, SET, DICT: log2 of the slots behind items, 0: none yet */
	uint8_t form;	  /* enum mfs_value_form */
	uint32_t a;	  /* length of STR/BYTES/BIGINT; slots used of items; module of GLOBAL;
			   * callable of OBJECT; value of PERSID */
	union {
		int64_t i; /* INT, BOOL; offset in the stream of STR/BYTES/BIGINT */
		double f;
		mfs_value *items; /* LIST, TUPLE, SET; of DICT: key, value, key, value, ... */
		struct {
			uint32_t b; /* name of GLOBAL; args of OBJECT */
			uint32_t c; /* OBJECT: extra + 1; 0: none */
		} p;
	} u;
};

/* What BUILD, APPENDS and SETITEMS gave to an object; a list node and a dict node, or none. And the
 * keyword arguments of NEWOBJ_EX. */
struct extra {
	mfs_value state, items, pairs, kwargs;
};

/* Tables in blocks, so that growing copies nothing and pointers stay. */
#define BLOCK_SHIFT 12
#define BLOCK_LEN   (1u << BLOCK_SHIFT)

struct table {
	void **blocks;
	uint32_t count, block_count;
};

struct mfs_pickle {
	const uint8_t *bytes;
	size_t length; /* of the stream parsed */
	struct table nodes, extras;
	struct mfs_arena arena; /* children */
	struct mfs_pickle_indices *indices;
	mfs_value root;
};

enum { VALUE_NONE, VALUE_FALSE, VALUE_TRUE, VALUE_DISCARDED, VALUE_EMPTY_TUPLE, VALUE_INTS };
#define SHARED_INTS 256 /* one node each for 0..255 */

struct vm {
	struct mfs_pickle *doc;
	const char *name;
	const uint8_t *at, *end, *opcode;
	mfs_value *stack;
	uint32_t height, most_height;
	uint32_t *marks;
	uint32_t mark_count, most_marks;
	mfs_value *memo;
	uint64_t memo_count;  /* slots in use, the gap included */
	uint32_t memo_filled; /* elements that have a value, and be it none */
	/* Skipping a value: nothing is kept from its key until the dict's SETITEM(S). Memo slots made
	 * meanwhile are a gap in which every slot reads as discarded. */
	const char *discard_key;
	bool discarding, discarded;
	uint32_t discard_marks, discard_height;
	uint64_t gap_start, gap_len;
	struct mfs_error *err;
};

static int malformed(struct vm *vm, const char *what)
{
	return mfs_fail(vm->err, -EINVAL, "%s: malformed pickle at byte %zu: %s", vm->name,
			(size_t)(vm->opcode - vm->doc->bytes), what);
}

static int no_memory(struct vm *vm)
{
	return mfs_fail_nomem(vm->err);
}

/* ---- tables ---- */

static void *table_at(const struct table *t, uint32_t i, size_t size)
{
	return (char *)t->blocks[i >> BLOCK_SHIFT] + (size_t)(i & (BLOCK_LEN - 1)) * size;
}

static void *table_add(struct table *t, size_t size)
{
	if (t->count == UINT32_MAX)
		return NULL;
	if (t->count >> BLOCK_SHIFT == t->block_count) {
		if (mfs_grow(&t->blocks, t->block_count))
			return NULL;
		t->blocks[t->block_count] = calloc(BLOCK_LEN, size);
		if (!t->blocks[t->block_count])
			return NULL;
		t->block_count++;
	}
	return table_at(t, t->count++, size);
}

static void table_release(struct table *t)
{
	for (uint32_t i = 0; i < t->block_count; i++)
		free(t->blocks[i]);
	free(t->blocks);
}

static struct node *node_at(const struct mfs_pickle *doc, mfs_value v)
{
	return table_at(&doc->nodes, v < doc->nodes.count ? v : VALUE_NONE, sizeof(struct node));
}

static struct extra *extra_of(const struct mfs_pickle *doc, const struct node *object)
{
	return object->u.p.c ? table_at(&doc->extras, object->u.p.c - 1, sizeof(struct extra))
			     : NULL;
}

static struct extra *need_extra(struct mfs_pickle *doc, struct node *object)
{
	struct extra *x = extra_of(doc, object);

	if (!x) {
		x = table_add(&doc->extras, sizeof(*x));
		if (x)
			object->u.p.c = doc->extras.count;
	}
	return x;
}

/* ---- the machine's stack ---- */

static int push(struct vm *vm, mfs_value v)
{
	if (vm->height == vm->most_height) {
		if (mfs_grow(&vm->stack, vm->most_height))
			return no_memory(vm);
		vm->most_height++;
	}
	vm->stack[vm->height++] = v;
	return 0;
}

/* Entries above the last mark. */
static uint32_t available(const struct vm *vm)
{
	return vm->height - (vm->mark_count ? vm->marks[vm->mark_count - 1] : 0);
}

static int need(struct vm *vm, uint32_t count)
{
	return available(vm) < count ? malformed(vm, "stack underflow") : 0;
}

static mfs_value top(const struct vm *vm)
{
	return vm->stack[vm->height - 1];
}

static int pop_mark(struct vm *vm, const mfs_value **ret, uint32_t *ret_count)
{
	if (!vm->mark_count)
		return malformed(vm, "no mark on the stack");
	*ret_count = available(vm);
	vm->height -= *ret_count;
	vm->mark_count--;
	*ret = vm->stack ? vm->stack + vm->height : NULL;
	return 0;
}

static int take(struct vm *vm, size_t len, const uint8_t **ret)
{
	if ((size_t)(vm->end - vm->at) < len)
		return malformed(vm, "the stream ends inside an argument");
	*ret = vm->at;
	vm->at += len;
	return 0;
}

/* ---- making values ---- */

static int make_node(struct vm *vm, const struct node *value, mfs_value *ret)
{
	struct node *n;

	*ret = VALUE_DISCARDED;
	if (vm->discarding)
		return 0;
	n = table_add(&vm->doc->nodes, sizeof(*n));
	if (!n)
		return no_memory(vm);
	*n = *value;
	*ret = vm->doc->nodes.count - 1;
	return 0;
}

static int push_node(struct vm *vm, const struct node *value)
{
	mfs_value made;
	int rc = make_node(vm, value, &made);

	return rc ? rc : push(vm, made);
}

static int push_int(struct vm *vm, int64_t value)
{
	if (value >= 0 && value < SHARED_INTS)
		return push(vm, VALUE_INTS + (mfs_value)value);
	return push_node(vm, &(struct node){.type = MFS_V_INT, .u.i = value});
}

static void start_discarding(struct vm *vm, const uint8_t *text, size_t len)
{
	if (!vm->discard_key || vm->discarded || len != strlen(vm->discard_key) ||
	    memcmp(text, vm->discard_key, len))
		return;
	vm->discarding = vm->discarded = true;
	vm->discard_marks = vm->mark_count;
	vm->discard_height = vm->height;
	vm->gap_start = vm->memo_count;
}

static int push_text(struct vm *vm, enum mfs_value_type type, enum mfs_value_form form,
		     uint64_t len)
{
	const uint8_t *text;
	int rc;

	if (len > UINT32_MAX || len > (uint64_t)(vm->end - vm->at))
		return malformed(vm, "a string is longer than the stream");
	rc = take(vm, (size_t)len, &text);
	if (!rc)
		rc = push_node(vm, &(struct node){.type = type,
						  .form = form,
						  .a = (uint32_t)len,
						  .u.i = text - vm->doc->bytes});
	if (!rc && type == MFS_V_STR && !vm->discarding)
		start_discarding(vm, text, (size_t)len);
	return rc;
}

static int push_tuple(struct vm *vm, const mfs_value *items, uint32_t count)
{
	struct node n = {.type = MFS_V_TUPLE, .a = count};

	if (!count)
		return push(vm, VALUE_EMPTY_TUPLE);
	if (vm->discarding)
		return push(vm, VALUE_DISCARDED);
	n.u.items = mfs_arena_array(&vm->doc->arena, count, sizeof(*items));
	if (!n.u.items)
		return no_memory(vm);
	memcpy(n.u.items, items, count * sizeof(*items));
	return push_node(vm, &n);
}

static unsigned log2_slots(uint32_t count)
{
	unsigned log2 = 1;

	while (log2 < 31 && 1u << log2 < count)
		log2++;
	return log2;
}

/* Appends to the slots of a LIST, SET or DICT node. */
static int extend(struct vm *vm, struct node *n, const mfs_value *values, uint32_t more)
{
	uint32_t count = n->a;

	if (more > INT32_MAX - count)
		return malformed(vm, "a collection is too large");
	if (!n->capacity || count + more > 1u << n->capacity) {
		unsigned capacity = log2_slots(count + more);
		mfs_value *grown = mfs_arena_array(&vm->doc->arena, 1u << capacity, sizeof(*grown));

		if (!grown)
			return no_memory(vm);
		if (count)
			memcpy(grown, n->u.items, count * sizeof(*grown));
		n->u.items = grown;
		n->capacity = (uint8_t)capacity;
	}
	memcpy(n->u.items + count, values, more * sizeof(*values));
	n->a += more;
	return 0;
}

/* The list or dict node behind an object, made on first use. */
static int object_part(struct vm *vm, struct node *object, enum mfs_value_type type,
		       struct node **ret)
{
	struct extra *x = need_extra(vm->doc, object);
	mfs_value *part;
	int rc = 0;

	if (!x)
		return no_memory(vm);
	part = type == MFS_V_LIST ? &x->items : &x->pairs;
	if (!*part)
		rc = make_node(vm, &(struct node){.type = type}, part);
	if (!rc)
		*ret = node_at(vm->doc, *part);
	return rc;
}

static int add_items(struct vm *vm, mfs_value target, const mfs_value *items, uint32_t count)
{
	struct node *n = node_at(vm->doc, target);
	int rc = 0;

	if (n->type == MFS_V_DISCARDED || vm->discarding || !count)
		return 0;
	if (n->type == MFS_V_OBJECT)
		rc = object_part(vm, n, MFS_V_LIST, &n);
	else if (n->type != MFS_V_LIST && n->type != MFS_V_SET)
		return malformed(vm, "items are added to something that is not a list");
	return rc ? rc : extend(vm, n, items, count);
}

static int add_pairs(struct vm *vm, mfs_value target, const mfs_value *pairs, uint32_t count)
{
	struct node *n = node_at(vm->doc, target);
	int rc = 0;

	if (count % 2)
		return malformed(vm, "a key without a value");
	if (n->type == MFS_V_DISCARDED || vm->discarding || !count)
		return 0;
	if (n->type == MFS_V_OBJECT)
		rc = object_part(vm, n, MFS_V_DICT, &n);
	else if (n->type != MFS_V_DICT)
		return malformed(vm, "keys are set in something that is not a dict");
	return rc ? rc : extend(vm, n, pairs, count);
}

static int push_object(struct vm *vm, mfs_value callable, mfs_value args, enum mfs_value_form form)
{
	return push_node(
		vm, &(struct node){
			    .type = MFS_V_OBJECT, .form = form, .a = callable, .u.p = {args, 0}});
}

/* ---- memo ---- */

static int memo_put(struct vm *vm, uint64_t slot)
{
	uint64_t index;
	int rc = need(vm, 1);

	if (rc)
		return rc;
	/* A slot number costs bytes in the stream, so numbers beyond its length are nonsense. */
	if (slot > (uint64_t)(vm->end - vm->doc->bytes))
		return malformed(vm, "a memo slot beyond any possible count");
	if (vm->discarding && slot >= vm->gap_start) {
		vm->gap_len = mfs_max_u64(vm->gap_len, slot + 1 - vm->gap_start);
		vm->memo_count = mfs_max_u64(vm->memo_count, slot + 1);
		return 0;
	}
	if (vm->discarded && slot >= vm->gap_start && slot < vm->gap_start + vm->gap_len)
		return malformed(vm, "a memo slot is used twice");
	index = vm->discarded && slot >= vm->gap_start ? slot - vm->gap_len : slot;
	while (index >= vm->memo_filled) {
		if (mfs_grow(&vm->memo, vm->memo_filled))
			return no_memory(vm);
		vm->memo[vm->memo_filled++] = VALUE_NONE;
	}
	vm->memo[index] = top(vm);
	vm->memo_count = mfs_max_u64(vm->memo_count, slot + 1);
	return 0;
}

static int memo_get(struct vm *vm, uint64_t slot)
{
	uint64_t index = slot;

	if (slot >= vm->memo_count)
		return malformed(vm, "a memo slot that was never set");
	if (vm->discarded && slot >= vm->gap_start) {
		if (slot < vm->gap_start + vm->gap_len)
			return push(vm, VALUE_DISCARDED);
		index = slot - vm->gap_len;
	}
	return push(vm, index < vm->memo_filled ? vm->memo[index] : VALUE_NONE);
}

/* ---- opcodes; names as in pickletools.py ---- */

static int argument(struct vm *vm, unsigned bytes, uint64_t *ret)
{
	const uint8_t *p;
	int rc = take(vm, bytes, &p);

	if (rc)
		return rc;
	*ret = 0;
	for (unsigned i = 0; i < bytes; i++)
		*ret |= (uint64_t)p[i] << 8 * i;
	return 0;
}

static int op_proto(struct vm *vm)
{
	uint64_t version;
	int rc = argument(vm, 1, &version);

	if (!rc && (version < 2 || version > 5))
		return malformed(vm, "unknown protocol");
	return rc;
}

static int op_frame(struct vm *vm)
{
	uint64_t len;

	return argument(vm, 8, &len); /* content is inline; the length adds nothing */
}

static int op_none(struct vm *vm)
{
	return push(vm, VALUE_NONE);
}

static int op_true(struct vm *vm)
{
	return push(vm, VALUE_TRUE);
}

static int op_false(struct vm *vm)
{
	return push(vm, VALUE_FALSE);
}

static int op_binint(struct vm *vm)
{
	uint64_t v;
	int rc = argument(vm, 4, &v);

	return rc ? rc : push_int(vm, (int32_t)(uint32_t)v);
}

static int op_binint1(struct vm *vm)
{
	uint64_t v;
	int rc = argument(vm, 1, &v);

	return rc ? rc : push_int(vm, (int64_t)v);
}

static int op_binint2(struct vm *vm)
{
	uint64_t v;
	int rc = argument(vm, 2, &v);

	return rc ? rc : push_int(vm, (int64_t)v);
}

/* Two's complement, little-endian, of any length. */
static int push_long(struct vm *vm, uint64_t len)
{
	const uint8_t *p;
	uint64_t v = 0;
	int rc;

	if (len > (uint64_t)(vm->end - vm->at))
		return malformed(vm, "an integer is longer than the stream");
	rc = take(vm, (size_t)len, &p);
	if (rc)
		return rc;
	if (len > UINT32_MAX)
		return malformed(vm, "an integer of more than 4 GiB");
	if (len > 8)
		return push_node(vm, &(struct node){.type = MFS_V_BIGINT,
						    .a = (uint32_t)len,
						    .u.i = p - vm->doc->bytes});
	for (uint64_t i = 0; i < len; i++)
		v |= (uint64_t)p[i] << 8 * i;
	if (len && len < 8 && p[len - 1] & 0x80)
		v |= ~0ull << 8 * len;
	return push_int(vm, (int64_t)v);
}

static int op_long1(struct vm *vm)
{
	uint64_t len;
	int rc = argument(vm, 1, &len);

	return rc ? rc : push_long(vm, len);
}

static int op_long4(struct vm *vm)
{
	uint64_t len;
	int rc = argument(vm, 4, &len);

	return rc ? rc : push_long(vm, len);
}

static int op_binfloat(struct vm *vm)
{
	const uint8_t *p;
	uint64_t bits = 0;
	double f;
	int rc = take(vm, 8, &p);

	if (rc)
		return rc;
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | p[i]; /* the one big-endian number of the format */
	memcpy(&f, &bits, sizeof(f));
	return push_node(vm, &(struct node){.type = MFS_V_FLOAT, .u.f = f});
}

static int text_op(struct vm *vm, unsigned length_bytes, enum mfs_value_type type)
{
	uint64_t len;
	int rc = argument(vm, length_bytes, &len);

	return rc ? rc : push_text(vm, type, MFS_FORM_PLAIN, len);
}

static int op_text1(struct vm *vm)
{
	return text_op(vm, 1, MFS_V_STR);
}

static int op_text4(struct vm *vm)
{
	return text_op(vm, 4, MFS_V_STR);
}

static int op_text8(struct vm *vm)
{
	return text_op(vm, 8, MFS_V_STR);
}

static int op_bytes1(struct vm *vm)
{
	return text_op(vm, 1, MFS_V_BYTES);
}

static int op_bytes4(struct vm *vm)
{
	return text_op(vm, 4, MFS_V_BYTES);
}

static int op_bytes8(struct vm *vm)
{
	return text_op(vm, 8, MFS_V_BYTES);
}

static int op_bytearray8(struct vm *vm)
{
	uint64_t len;
	int rc = argument(vm, 8, &len);

	return rc ? rc : push_text(vm, MFS_V_BYTES, MFS_FORM_BYTEARRAY, len);
}

static int op_empty_dict(struct vm *vm)
{
	return push_node(vm, &(struct node){.type = MFS_V_DICT});
}

static int op_empty_list(struct vm *vm)
{
	return push_node(vm, &(struct node){.type = MFS_V_LIST});
}

static int op_empty_set(struct vm *vm)
{
	return push_node(vm, &(struct node){.type = MFS_V_SET});
}

static int op_empty_tuple(struct vm *vm)
{
	return push(vm, VALUE_EMPTY_TUPLE);
}

static int op_mark(struct vm *vm)
{
	if (vm->mark_count == vm->most_marks) {
		if (mfs_grow(&vm->marks, vm->most_marks))
			return no_memory(vm);
		vm->most_marks++;
	}
	vm->marks[vm->mark_count++] = vm->height;
	return 0;
}

static int tuple_of(struct vm *vm, uint32_t count)
{
	int rc = need(vm, count);

	if (rc)
		return rc;
	vm->height -= count;
	return push_tuple(vm, vm->stack + vm->height, count);
}

static int op_tuple1(struct vm *vm)
{
	return tuple_of(vm, 1);
}

static int op_tuple2(struct vm *vm)
{
	return tuple_of(vm, 2);
}

static int op_tuple3(struct vm *vm)
{
	return tuple_of(vm, 3);
}

static int op_tuple(struct vm *vm)
{
	const mfs_value *items;
	uint32_t count;
	int rc = pop_mark(vm, &items, &count);

	return rc ? rc : push_tuple(vm, items, count);
}

/* LIST, DICT, FROZENSET: a new collection of what lies above the mark. */
static int collect(struct vm *vm, enum mfs_value_type type, enum mfs_value_form form)
{
	const mfs_value *items;
	uint32_t count;
	mfs_value made;
	int rc = pop_mark(vm, &items, &count);

	/* The items still lie above the top: they are taken before the result is pushed. */
	if (!rc)
		rc = make_node(vm, &(struct node){.type = type, .form = form}, &made);
	if (!rc)
		rc = type == MFS_V_DICT ? add_pairs(vm, made, items, count)
					: add_items(vm, made, items, count);
	return rc ? rc : push(vm, made);
}

static int op_list(struct vm *vm)
{
	return collect(vm, MFS_V_LIST, MFS_FORM_PLAIN);
}

static int op_dict(struct vm *vm)
{
	return collect(vm, MFS_V_DICT, MFS_FORM_PLAIN);
}

static int op_frozenset(struct vm *vm)
{
	return collect(vm, MFS_V_SET, MFS_FORM_FROZENSET);
}

static int op_append(struct vm *vm)
{
	int rc = need(vm, 2);

	if (rc)
		return rc;
	vm->height--;
	return add_items(vm, top(vm), vm->stack + vm->height, 1);
}

static int op_appends(struct vm *vm)
{
	const mfs_value *items;
	uint32_t count;
	int rc = pop_mark(vm, &items, &count);

	if (!rc)
		rc = need(vm, 1);
	return rc ? rc : add_items(vm, top(vm), items, count);
}

static int op_setitem(struct vm *vm)
{
	int rc = need(vm, 3);

	if (rc)
		return rc;
	vm->height -= 2;
	if (vm->discarding && vm->mark_count == vm->discard_marks &&
	    vm->height < vm->discard_height)
		vm->discarding = false;
	return add_pairs(vm, top(vm), vm->stack + vm->height, 2);
}

static int op_setitems(struct vm *vm)
{
	const mfs_value *pairs;
	uint32_t count;
	int rc = pop_mark(vm, &pairs, &count);

	if (!rc)
		rc = need(vm, 1);
	if (rc)
		return rc;
	if (vm->discarding && vm->mark_count < vm->discard_marks)
		vm->discarding = false;
	return add_pairs(vm, top(vm), pairs, count);
}

static int op_put1(struct vm *vm)
{
	uint64_t slot;
	int rc = argument(vm, 1, &slot);

	return rc ? rc : memo_put(vm, slot);
}

static int op_put4(struct vm *vm)
{
	uint64_t slot;
	int rc = argument(vm, 4, &slot);

	return rc ? rc : memo_put(vm, slot);
}

static int op_memoize(struct vm *vm)
{
	return memo_put(vm, vm->memo_count);
}

static int op_get1(struct vm *vm)
{
	uint64_t slot;
	int rc = argument(vm, 1, &slot);

	return rc ? rc : memo_get(vm, slot);
}

static int op_get4(struct vm *vm)
{
	uint64_t slot;
	int rc = argument(vm, 4, &slot);

	return rc ? rc : memo_get(vm, slot);
}

static int op_pop(struct vm *vm)
{
	if (available(vm))
		vm->height--;
	else if (vm->mark_count)
		vm->mark_count--;
	else
		return malformed(vm, "stack underflow");
	return 0;
}

static int op_pop_mark(struct vm *vm)
{
	const mfs_value *items;
	uint32_t count;

	return pop_mark(vm, &items, &count);
}

static int op_dup(struct vm *vm)
{
	int rc = need(vm, 1);

	return rc ? rc : push(vm, top(vm));
}

/* "module\nname\n" */
static int op_global(struct vm *vm)
{
	struct node n = {.type = MFS_V_GLOBAL};
	mfs_value part[2] = {VALUE_NONE, VALUE_NONE};

	for (int i = 0; i < 2; i++) {
		const uint8_t *newline = memchr(vm->at, '\n', (size_t)(vm->end - vm->at));
		int rc;

		if (!newline)
			return malformed(vm, "a class name without its end");
		rc = push_text(vm, MFS_V_STR, MFS_FORM_PLAIN, (uint64_t)(newline - vm->at));
		if (rc)
			return rc;
		part[i] = vm->stack[--vm->height];
		vm->at = newline + 1;
	}
	n.a = part[0];
	n.u.p.b = part[1];
	return push_node(vm, &n);
}

static int op_stack_global(struct vm *vm)
{
	struct node n = {.type = MFS_V_GLOBAL};
	int rc = need(vm, 2);

	if (rc)
		return rc;
	vm->height -= 2;
	n.a = vm->stack[vm->height];
	n.u.p.b = vm->stack[vm->height + 1];
	return push_node(vm, &n);
}

/* REDUCE calls the callable, NEWOBJ the callable's __new__. */
static int make_object(struct vm *vm, enum mfs_value_form form)
{
	int rc = need(vm, 2);

	if (rc)
		return rc;
	vm->height -= 2;
	return push_object(vm, vm->stack[vm->height], vm->stack[vm->height + 1], form);
}

static int op_reduce(struct vm *vm)
{
	return make_object(vm, MFS_FORM_PLAIN);
}

static int op_newobj(struct vm *vm)
{
	return make_object(vm, MFS_FORM_NEWOBJ);
}

static int op_newobj_ex(struct vm *vm)
{
	struct extra *x;
	mfs_value kwargs;
	int rc = need(vm, 3);

	if (rc)
		return rc;
	kwargs = vm->stack[--vm->height];
	rc = make_object(vm, MFS_FORM_NEWOBJ);
	if (rc || vm->discarding)
		return rc;
	x = need_extra(vm->doc, node_at(vm->doc, top(vm)));
	if (!x)
		return no_memory(vm);
	x->kwargs = kwargs;
	return 0;
}

static int op_build(struct vm *vm)
{
	struct extra *x;
	struct node *n;
	mfs_value state;
	int rc = need(vm, 2);

	if (rc)
		return rc;
	state = vm->stack[--vm->height];
	n = node_at(vm->doc, top(vm));
	if (n->type == MFS_V_DISCARDED || vm->discarding)
		return 0;
	if (n->type != MFS_V_OBJECT)
		return malformed(vm, "a state is set in something that is not an object");
	x = need_extra(vm->doc, n);
	if (!x)
		return no_memory(vm);
	x->state = state;
	return 0;
}

static int op_binpersid(struct vm *vm)
{
	int rc = need(vm, 1);

	if (rc)
		return rc;
	vm->height--;
	return push_node(vm, &(struct node){.type = MFS_V_PERSID, .a = vm->stack[vm->height]});
}

static int (*const opcodes[256])(struct vm *vm) = {
	[0x80] = op_proto,     [0x95] = op_frame,	 ['N'] = op_none,
	[0x88] = op_true,      [0x89] = op_false,	 ['J'] = op_binint,
	['K'] = op_binint1,    ['M'] = op_binint2,	 [0x8a] = op_long1,
	[0x8b] = op_long4,     ['G'] = op_binfloat,	 ['X'] = op_text4,
	[0x8c] = op_text1,     [0x8d] = op_text8,	 ['U'] = op_text1,
	['T'] = op_text4,      ['C'] = op_bytes1,	 ['B'] = op_bytes4,
	[0x8e] = op_bytes8,    [0x96] = op_bytearray8,	 ['}'] = op_empty_dict,
	[']'] = op_empty_list, [0x8f] = op_empty_set,	 [')'] = op_empty_tuple,
	['('] = op_mark,       ['t'] = op_tuple,	 [0x85] = op_tuple1,
	[0x86] = op_tuple2,    [0x87] = op_tuple3,	 ['l'] = op_list,
	['d'] = op_dict,       [0x91] = op_frozenset,	 ['a'] = op_append,
	['e'] = op_appends,    [0x90] = op_appends,	 ['s'] = op_setitem,
	['u'] = op_setitems,   ['q'] = op_put1,		 ['r'] = op_put4,
	[0x94] = op_memoize,   ['h'] = op_get1,		 ['j'] = op_get4,
	['0'] = op_pop,	       ['1'] = op_pop_mark,	 ['2'] = op_dup,
	['c'] = op_global,     [0x93] = op_stack_global, ['R'] = op_reduce,
	[0x81] = op_newobj,    [0x92] = op_newobj_ex,	 ['b'] = op_build,
	['Q'] = op_binpersid,
};

/* ---- running ---- */

static int make_shared(struct mfs_pickle *doc)
{
	static const struct node fixed[VALUE_INTS] = {
		[VALUE_NONE] = {.type = MFS_V_NONE},
		[VALUE_FALSE] = {.type = MFS_V_BOOL},
		[VALUE_TRUE] = {.type = MFS_V_BOOL, .u.i = 1},
		[VALUE_DISCARDED] = {.type = MFS_V_DISCARDED},
		[VALUE_EMPTY_TUPLE] = {.type = MFS_V_TUPLE},
	};

	for (uint32_t i = 0; i < VALUE_INTS + SHARED_INTS; i++) {
		struct node *n = table_add(&doc->nodes, sizeof(*n));

		if (!n)
			return -ENOMEM;
		*n = i < VALUE_INTS ? fixed[i]
				    : (struct node){.type = MFS_V_INT, .u.i = i - VALUE_INTS};
	}
	return 0;
}

static int run(struct vm *vm)
{
	while (vm->at < vm->end) {
		uint8_t op = *(vm->opcode = vm->at++);
		int rc;

		if (op == '.') {
			if (vm->height != 1 || vm->mark_count)
				return malformed(vm, "not exactly one value at its end");
			vm->doc->root = vm->stack[0];
			vm->doc->length = (size_t)(vm->at - vm->doc->bytes);
			return 0;
		}
		if (!opcodes[op])
			return mfs_fail(vm->err, -EINVAL,
					"%s: pickle opcode 0x%02x at byte %zu is not supported",
					vm->name, op, (size_t)(vm->opcode - vm->doc->bytes));
		rc = opcodes[op](vm);
		if (rc)
			return rc;
		if (vm->height > MFS_PICKLE_MAX_DEPTH || vm->mark_count > MFS_PICKLE_MAX_DEPTH)
			return malformed(vm, "the stack grows without end");
	}
	vm->opcode = vm->end;
	return malformed(vm, "it ends without STOP");
}

int mfs_pickle_parse(const void *bytes, size_t len, const char *name,
		     const struct mfs_pickle_options *opt, struct mfs_pickle **ret,
		     struct mfs_error *err)
{
	struct mfs_pickle *doc = calloc(1, sizeof(*doc));
	struct vm vm = {.doc = doc,
			.name = name,
			.at = bytes,
			.opcode = bytes,
			.end = (const uint8_t *)bytes + len,
			.discard_key = opt ? opt->discard_key : NULL,
			.err = err};
	int rc;

	if (!doc)
		return mfs_fail_nomem(err);
	doc->bytes = bytes;
	doc->indices = mfs_pickle_indices_new();
	rc = !doc->indices || make_shared(doc) ? mfs_fail_nomem(err) : run(&vm);
	free(vm.stack);
	free(vm.marks);
	free(vm.memo);
	if (rc) {
		mfs_pickle_free(doc);
		return rc;
	}
	*ret = doc;
	return 0;
}

void mfs_pickle_free(struct mfs_pickle *doc)
{
	if (!doc)
		return;
	table_release(&doc->nodes);
	table_release(&doc->extras);
	mfs_arena_release(&doc->arena);
	mfs_pickle_indices_free(doc->indices);
	free(doc);
}

/* ---- looking at values ---- */

mfs_value mfs_pickle_root(const struct mfs_pickle *doc)
{
	return doc->root;
}

size_t mfs_pickle_length(const struct mfs_pickle *doc)
{
	return doc->length;
}

enum mfs_value_type mfs_value_type(const struct mfs_pickle *doc, mfs_value v)
{
	return (enum mfs_value_type)node_at(doc, v)->type;
}

enum mfs_value_form mfs_value_form(const struct mfs_pickle *doc, mfs_value v)
{
	return (enum mfs_value_form)node_at(doc, v)->form;
}

bool mfs_value_is_none(const struct mfs_pickle *doc, mfs_value v)
{
	return mfs_value_type(doc, v) == MFS_V_NONE;
}

bool mfs_value_int(const struct mfs_pickle *doc, mfs_value v, int64_t *ret)
{
	const struct node *n = node_at(doc, v);

	if (n->type != MFS_V_INT)
		return false;
	*ret = n->u.i;
	return true;
}

bool mfs_value_bool(const struct mfs_pickle *doc, mfs_value v, bool *ret)
{
	const struct node *n = node_at(doc, v);

	if (n->type != MFS_V_BOOL)
		return false;
	*ret = n->u.i;
	return true;
}

bool mfs_value_float(const struct mfs_pickle *doc, mfs_value v, double *ret)
{
	const struct node *n = node_at(doc, v);

	if (n->type == MFS_V_FLOAT)
		*ret = n->u.f;
	else if (n->type == MFS_V_INT)
		*ret = (double)n->u.i;
	else
		return false;
	return true;
}

static const uint8_t *value_text(const struct mfs_pickle *doc, mfs_value v,
				 enum mfs_value_type type, size_t *ret_len)
{
	const struct node *n = node_at(doc, v);

	if (n->type != type)
		return NULL;
	*ret_len = n->a;
	return doc->bytes + n->u.i;
}

bool mfs_value_str(const struct mfs_pickle *doc, mfs_value v, const char **ret, size_t *ret_len)
{
	const uint8_t *text = value_text(doc, v, MFS_V_STR, ret_len);

	if (text)
		*ret = (const char *)text;
	return text;
}

bool mfs_value_bytes(const struct mfs_pickle *doc, mfs_value v, const uint8_t **ret,
		     size_t *ret_len)
{
	const uint8_t *bytes = value_text(doc, v, MFS_V_BYTES, ret_len);

	if (bytes)
		*ret = bytes;
	return bytes;
}

bool mfs_value_bigint(const struct mfs_pickle *doc, mfs_value v, const uint8_t **ret,
		      size_t *ret_len)
{
	const uint8_t *bytes = value_text(doc, v, MFS_V_BIGINT, ret_len);

	if (bytes)
		*ret = bytes;
	return bytes;
}

bool mfs_value_is_str(const struct mfs_pickle *doc, mfs_value v, const char *text)
{
	const char *s;
	size_t len;

	return mfs_value_str(doc, v, &s, &len) && len == strlen(text) && !memcmp(s, text, len);
}

/* The node that holds v's items (a LIST, TUPLE or SET) or pairs (a DICT): v's own, or behind an object. */
static const struct node *items_of(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);
	const struct extra *x = n->type == MFS_V_OBJECT ? extra_of(doc, n) : NULL;

	if (x)
		n = node_at(doc, x->items);
	return n->type == MFS_V_LIST || n->type == MFS_V_TUPLE || n->type == MFS_V_SET
		       ? n
		       : node_at(doc, VALUE_EMPTY_TUPLE);
}

static const struct node *pairs_of(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);
	const struct extra *x = n->type == MFS_V_OBJECT ? extra_of(doc, n) : NULL;

	if (x)
		n = node_at(doc, x->pairs);
	return n->type == MFS_V_DICT ? n : node_at(doc, VALUE_EMPTY_TUPLE);
}

uint32_t mfs_value_count(const struct mfs_pickle *doc, mfs_value v)
{
	return items_of(doc, v)->a;
}

mfs_value mfs_value_at(const struct mfs_pickle *doc, mfs_value v, uint32_t i)
{
	const struct node *n = items_of(doc, v);

	return i < n->a ? n->u.items[i] : VALUE_NONE;
}

uint32_t mfs_value_pairs(const struct mfs_pickle *doc, mfs_value v)
{
	return pairs_of(doc, v)->a / 2;
}

mfs_value mfs_value_key(const struct mfs_pickle *doc, mfs_value v, uint32_t i)
{
	const struct node *n = pairs_of(doc, v);

	return i < n->a / 2 ? n->u.items[2 * i] : VALUE_NONE;
}

mfs_value mfs_value_item(const struct mfs_pickle *doc, mfs_value v, uint32_t i)
{
	const struct node *n = pairs_of(doc, v);

	return i < n->a / 2 ? n->u.items[2 * i + 1] : VALUE_NONE;
}

/* Position of a key, counted from the end: a key set twice keeps its last value. */
static bool find_key(const struct mfs_pickle *doc, mfs_value v, const char *key, mfs_value *ret)
{
	const struct node *n = pairs_of(doc, v);
	const bool is_long = n->a / 2 > MFS_PICKLE_LONG;
	uint32_t pair = 0;
	int rc = is_long ? mfs_pickle_index_find(doc->indices, doc, v, key, &pair) : -ENOMEM;

	if (!rc)
		*ret = n->u.items[2 * pair + 1];
	if (rc != -ENOMEM)
		return !rc;
	for (uint32_t i = n->a / 2; i-- > 0;) {
		if (!mfs_value_is_str(doc, n->u.items[2 * i], key))
			continue;
		*ret = n->u.items[2 * i + 1];
		return true;
	}
	return false;
}

mfs_value mfs_value_get(const struct mfs_pickle *doc, mfs_value v, const char *key)
{
	mfs_value item = VALUE_NONE;

	find_key(doc, v, key, &item);
	return item;
}

bool mfs_value_has(const struct mfs_pickle *doc, mfs_value v, const char *key)
{
	mfs_value item;

	return find_key(doc, v, key, &item);
}

mfs_value mfs_value_callable(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);

	return n->type == MFS_V_OBJECT ? n->a : VALUE_NONE;
}

mfs_value mfs_value_args(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);

	return n->type == MFS_V_OBJECT ? n->u.p.b : VALUE_NONE;
}

mfs_value mfs_value_kwargs(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);
	const struct extra *x = n->type == MFS_V_OBJECT ? extra_of(doc, n) : NULL;

	return x ? x->kwargs : VALUE_NONE;
}

mfs_value mfs_value_state(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);
	const struct extra *x = n->type == MFS_V_OBJECT ? extra_of(doc, n) : NULL;

	return x ? x->state : VALUE_NONE;
}

mfs_value mfs_value_persid(const struct mfs_pickle *doc, mfs_value v)
{
	const struct node *n = node_at(doc, v);

	return n->type == MFS_V_PERSID ? n->a : VALUE_NONE;
}

mfs_value mfs_value_attr(const struct mfs_pickle *doc, mfs_value v, const char *name)
{
	mfs_value state = mfs_value_state(doc, v);

	if (mfs_value_type(doc, state) == MFS_V_TUPLE)
		state = mfs_value_at(doc, state, 0); /* (dict, slots) */
	return mfs_value_get(doc, state, name);
}

bool mfs_value_is_global(const struct mfs_pickle *doc, mfs_value v, const char *module,
			 const char *name)
{
	const struct node *n = node_at(doc, v);

	return n->type == MFS_V_GLOBAL && mfs_value_is_str(doc, n->a, module) &&
	       mfs_value_is_str(doc, n->u.p.b, name);
}

bool mfs_value_global(const struct mfs_pickle *doc, mfs_value v, const char **ret_module,
		      size_t *ret_module_len, const char **ret_name, size_t *ret_name_len)
{
	const struct node *n = node_at(doc, v);

	return n->type == MFS_V_GLOBAL && mfs_value_str(doc, n->a, ret_module, ret_module_len) &&
	       mfs_value_str(doc, n->u.p.b, ret_name, ret_name_len);
}

const char *mfs_value_class(const struct mfs_pickle *doc, mfs_value v, size_t *ret_len)
{
	const struct node *n = node_at(doc, v);
	const char *text = "";
	size_t len = 0;

	if (n->type == MFS_V_OBJECT)
		n = node_at(doc, n->a);
	if (n->type == MFS_V_GLOBAL)
		mfs_value_str(doc, n->u.p.b, &text, &len);
	*ret_len = len;
	return text;
}

bool mfs_value_is_object_of(const struct mfs_pickle *doc, mfs_value v, const char *class_name)
{
	size_t len;
	const char *text = mfs_value_class(doc, v, &len);

	return mfs_value_type(doc, v) == MFS_V_OBJECT && len == strlen(class_name) &&
	       !memcmp(text, class_name, len);
}
