#include "formats/torch/pickle_write.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/uthash.h"
#include "formats/torch/pickle_write_i.h"

#define NOT_YET UINT32_MAX

/* An entry of the memo. Its key is what protocol 2 writes for the value. */
struct mfs_pickle_memo {
	UT_hash_handle hh;
	uint32_t slot;
	char key[];
};

/* ---- the stream ---- */

static bool stopped(const struct mfs_pickle_writer *w)
{
	return w->failure.code || w->out->failed;
}

/* The first refusal stands; what follows is not written. */
#define refuse(w, code, ...)                                                                       \
	do {                                                                                       \
		if (!stopped(w))                                                                   \
			mfs_error_set(&(w)->failure, code, __VA_ARGS__);                           \
	} while (0)

static void put(struct mfs_pickle_writer *w, const void *bytes, size_t len)
{
	if (!stopped(w))
		mfs_buf_add(w->out, bytes, len);
}

void mfs_pickle_op(struct mfs_pickle_writer *w, enum mfs_pickle_op op)
{
	const uint8_t code = (uint8_t)op;

	put(w, &code, 1);
}

/* An opcode and its argument of up to 8 bytes, little-endian. */
static void put_arg(struct mfs_pickle_writer *w, enum mfs_pickle_op op, uint64_t value,
		    unsigned bytes)
{
	uint8_t code[9] = {(uint8_t)op};

	mfs_put_le64(code + 1, value);
	put(w, code, 1 + bytes);
}

/* The same, by whichever of two opcodes has room for the value: 1 byte or 4. */
static void put_short_arg(struct mfs_pickle_writer *w, enum mfs_pickle_op op1,
			  enum mfs_pickle_op op4, uint64_t value)
{
	if (value <= UINT8_MAX)
		put_arg(w, op1, value, 1);
	else
		put_arg(w, op4, value, 4);
}

/* Calls what stands below the arguments, which `tuple` makes a tuple. */
static void call(struct mfs_pickle_writer *w, enum mfs_pickle_op tuple)
{
	mfs_pickle_op(w, tuple);
	mfs_pickle_op(w, MFS_OP_REDUCE);
}

void mfs_pickle_cut(struct mfs_pickle_writer *w, size_t len)
{
	if (stopped(w))
		return;
	w->out->len = len;
	w->out->data[len] = '\0';
}

void mfs_pickle_begin(struct mfs_pickle_writer *w, struct mfs_buf *out, int protocol)
{
	*w = (struct mfs_pickle_writer){.out = out, .protocol = (uint8_t)protocol};
	put_arg(w, MFS_OP_PROTO, w->protocol, 1);
}

void mfs_pickle_abandon(struct mfs_pickle_writer *w)
{
	HASH_CLEAR(hh, w->memo); /* the entries lie in the arena */
	mfs_arena_release(&w->arena);
}

int mfs_pickle_end(struct mfs_pickle_writer *w, struct mfs_error *err)
{
	int rc = 0;

	mfs_pickle_op(w, MFS_OP_STOP);
	if (w->failure.code)
		rc = mfs_fail(err, w->failure.code, "%s", w->failure.msg);
	else if (w->out->failed)
		rc = mfs_fail_nomem(err);
	mfs_pickle_abandon(w);
	return rc;
}

/* ---- the memo ---- */

/* The memo's entry for what was written since start. It was written to be looked up, and is taken
 * back. */
static struct mfs_pickle_memo *memo_entry(struct mfs_pickle_writer *w, size_t start)
{
	struct mfs_pickle_memo *e;
	size_t len = w->out->len - start;

	if (stopped(w))
		return NULL;
	HASH_FIND(hh, w->memo, w->out->data + start, len, e);
	if (!e) {
		e = mfs_arena_alloc(&w->arena, sizeof(*e) + len);
		if (e) {
			memcpy(e->key, w->out->data + start, len);
			e->slot = NOT_YET;
			HASH_ADD(hh, w->memo, key, len, e);
		}
		if (!e || !e->hh.tbl) {
			refuse(w, -ENOMEM, "out of memory");
			return NULL;
		}
	}
	mfs_pickle_cut(w, start);
	return e;
}

/* True if the value was in the memo and stands on the stack now. */
static bool memo_get(struct mfs_pickle_writer *w, const struct mfs_pickle_memo *e)
{
	if (e->slot == NOT_YET)
		return false;
	put_short_arg(w, MFS_OP_BINGET, MFS_OP_LONG_BINGET, e->slot);
	return true;
}

/* MEMOIZE counts slots by itself, in the order of its calls. Protocol 2 writes the same numbers. */
static void memo_put(struct mfs_pickle_writer *w, struct mfs_pickle_memo *e)
{
	e->slot = w->memo_count++;
	if (w->protocol >= 4)
		mfs_pickle_op(w, MFS_OP_MEMOIZE);
	else
		put_short_arg(w, MFS_OP_BINPUT, MFS_OP_LONG_BINPUT, e->slot);
}

/* ---- values ---- */

void mfs_pickle_none(struct mfs_pickle_writer *w)
{
	mfs_pickle_op(w, MFS_OP_NONE);
}

void mfs_pickle_bool(struct mfs_pickle_writer *w, bool value)
{
	mfs_pickle_op(w, value ? MFS_OP_NEWTRUE : MFS_OP_NEWFALSE);
}

void mfs_pickle_int(struct mfs_pickle_writer *w, int64_t value)
{
	uint8_t bytes[8];
	size_t len = 8;

	if (value >= 0 && value <= UINT8_MAX) {
		put_arg(w, MFS_OP_BININT1, (uint64_t)value, 1);
	} else if (value >= 0 && value <= UINT16_MAX) {
		put_arg(w, MFS_OP_BININT2, (uint64_t)value, 2);
	} else if (value >= INT32_MIN && value <= INT32_MAX) {
		put_arg(w, MFS_OP_BININT, (uint64_t)value, 4);
	} else {
		mfs_put_le64(bytes, (uint64_t)value);
		/* As few bytes as keep the sign. */
		while (bytes[len - 1] == (bytes[len - 2] & 0x80 ? 0xff : 0x00))
			len--;
		mfs_pickle_long(w, bytes, len);
	}
}

void mfs_pickle_uint(struct mfs_pickle_writer *w, uint64_t value)
{
	uint8_t bytes[9] = {0};

	if (value <= INT64_MAX) {
		mfs_pickle_int(w, (int64_t)value);
		return;
	}
	mfs_put_le64(bytes, value);
	mfs_pickle_long(w, bytes, sizeof(bytes));
}

void mfs_pickle_long(struct mfs_pickle_writer *w, const uint8_t *bytes, size_t len)
{
	if (len > INT32_MAX) {
		refuse(w, -ENOTSUP, "an integer of more than 2 GiB cannot be pickled");
		return;
	}
	put_short_arg(w, MFS_OP_LONG1, MFS_OP_LONG4, len);
	put(w, bytes, len);
}

void mfs_pickle_float(struct mfs_pickle_writer *w, double value)
{
	uint8_t code[9] = {MFS_OP_BINFLOAT};
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	for (int i = 0; i < 8; i++)
		code[1 + i] = (uint8_t)(bits >> (56 - 8 * i)); /* the one big-endian number */
	put(w, code, sizeof(code));
}

void mfs_pickle_strn(struct mfs_pickle_writer *w, const char *text, size_t len)
{
	if (len > UINT32_MAX) {
		refuse(w, -ENOTSUP, "a text of more than 4 GiB cannot be pickled");
		return;
	}
	if (w->protocol >= 4)
		put_short_arg(w, MFS_OP_SHORT_BINUNICODE, MFS_OP_BINUNICODE, len);
	else
		put_arg(w, MFS_OP_BINUNICODE, len, 4);
	put(w, text, len);
}

void mfs_pickle_str(struct mfs_pickle_writer *w, const char *text)
{
	mfs_pickle_strn(w, text, strlen(text));
}

void mfs_pickle_namen(struct mfs_pickle_writer *w, const char *text, size_t len)
{
	const size_t start = w->out->len;
	struct mfs_pickle_memo *e;

	mfs_pickle_strn(w, text, len);
	e = memo_entry(w, start);
	if (!e || memo_get(w, e))
		return;
	mfs_pickle_strn(w, text, len);
	memo_put(w, e);
}

void mfs_pickle_name(struct mfs_pickle_writer *w, const char *text)
{
	mfs_pickle_namen(w, text, strlen(text));
}

/* Each byte as the code point of that number, in UTF-8. */
static void put_latin1(struct mfs_pickle_writer *w, const uint8_t *bytes, size_t len)
{
	uint64_t text_len = len;

	for (size_t i = 0; i < len; i++)
		text_len += bytes[i] >> 7;
	if (text_len > UINT32_MAX) {
		refuse(w, -ENOTSUP, "bytes of more than 4 GiB cannot be pickled");
		return;
	}
	put_arg(w, MFS_OP_BINUNICODE, text_len, 4);
	for (size_t i = 0; i < len; i++) {
		const uint8_t two[2] = {0xc0 | bytes[i] >> 6, 0x80 | (bytes[i] & 0x3f)};

		if (bytes[i] < 0x80)
			put(w, bytes + i, 1);
		else
			put(w, two, 2);
	}
}

void mfs_pickle_bytes(struct mfs_pickle_writer *w, const void *bytes, size_t len)
{
	if (w->protocol < 4) {
		mfs_pickle_global(w, "_codecs", "encode");
		put_latin1(w, bytes, len);
		mfs_pickle_name(w, "latin1");
		call(w, MFS_OP_TUPLE2);
		return;
	}
	if (len > UINT32_MAX) {
		refuse(w, -ENOTSUP, "bytes of more than 4 GiB cannot be pickled");
		return;
	}
	put_short_arg(w, MFS_OP_SHORT_BINBYTES, MFS_OP_BINBYTES, len);
	put(w, bytes, len);
}

void mfs_pickle_bytearray(struct mfs_pickle_writer *w, const void *bytes, size_t len)
{
	mfs_pickle_global(w, "builtins", "bytearray");
	mfs_pickle_bytes(w, bytes, len);
	call(w, MFS_OP_TUPLE1);
}

/* ---- classes and functions ---- */

static bool text_is(struct mfs_text t, const char *want)
{
	return t.len == strlen(want) && !memcmp(t.at, want, t.len);
}

/* Two modules of Python 2 that Megatron's pickles name, with their names in Python 3 and in Python
 * 2. */
static const char *const renamed[][2] = {{"builtins", "__builtin__"}, {"copyreg", "copy_reg"}};

static struct mfs_text module_name(const struct mfs_pickle_writer *w, struct mfs_text module)
{
	const int want = w->protocol < 3;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(renamed); i++)
		if (text_is(module, renamed[i][!want]))
			return (struct mfs_text){renamed[i][want], strlen(renamed[i][want])};
	return module;
}

static bool has_byte(struct mfs_text t, char byte)
{
	return t.len && memchr(t.at, byte, t.len);
}

/* Names come from foreign files too: one with a line break would end the argument of GLOBAL and let
 * the rest be run as opcodes. */
static bool may_be_named(struct mfs_pickle_writer *w, struct mfs_text module, struct mfs_text name)
{
	if (!module.len || !name.len || has_byte(module, '\n') || has_byte(name, '\n')) {
		refuse(w, -EINVAL, "a class with an impossible name cannot be pickled");
		return false;
	}
	if (w->protocol < 4 && has_byte(name, '.')) {
		refuse(w, -ENOTSUP, "the nested class %.*s.%.*s cannot be named in protocol %u",
		       (int)mfs_min_u64(module.len, 128), module.at,
		       (int)mfs_min_u64(name.len, 128), name.at, w->protocol);
		return false;
	}
	return true;
}

static void put_global_lines(struct mfs_pickle_writer *w, struct mfs_text module,
			     struct mfs_text name)
{
	mfs_pickle_op(w, MFS_OP_GLOBAL);
	put(w, module.at, module.len);
	put(w, "\n", 1);
	put(w, name.at, name.len);
	put(w, "\n", 1);
}

void mfs_pickle_globaln(struct mfs_pickle_writer *w, struct mfs_text module, struct mfs_text name)
{
	const size_t start = w->out->len;
	struct mfs_pickle_memo *e;

	module = module_name(w, module);
	if (!may_be_named(w, module, name))
		return;
	put_global_lines(w, module, name);
	e = memo_entry(w, start);
	if (!e || memo_get(w, e))
		return;
	if (w->protocol < 4) {
		put_global_lines(w, module, name);
	} else {
		mfs_pickle_namen(w, module.at, module.len);
		mfs_pickle_namen(w, name.at, name.len);
		mfs_pickle_op(w, MFS_OP_STACK_GLOBAL);
	}
	memo_put(w, e);
}

void mfs_pickle_global(struct mfs_pickle_writer *w, const char *module, const char *name)
{
	mfs_pickle_globaln(w, (struct mfs_text){module, strlen(module)},
			   (struct mfs_text){name, strlen(name)});
}

/* ---- what state dicts are made of ---- */

void mfs_pickle_ordered_dict_begin(struct mfs_pickle_writer *w)
{
	mfs_pickle_global(w, "collections", "OrderedDict");
	call(w, MFS_OP_EMPTY_TUPLE);
	mfs_pickle_op(w, MFS_OP_MARK);
}

void mfs_pickle_ordered_dict_end(struct mfs_pickle_writer *w)
{
	mfs_pickle_op(w, MFS_OP_SETITEMS);
}

void mfs_pickle_dict_begin(struct mfs_pickle_writer *w)
{
	mfs_pickle_op(w, MFS_OP_EMPTY_DICT);
	mfs_pickle_op(w, MFS_OP_MARK);
}

void mfs_pickle_dict_end(struct mfs_pickle_writer *w)
{
	mfs_pickle_op(w, MFS_OP_SETITEMS);
}

void mfs_pickle_list_begin(struct mfs_pickle_writer *w)
{
	mfs_pickle_op(w, MFS_OP_EMPTY_LIST);
	mfs_pickle_op(w, MFS_OP_MARK);
}

void mfs_pickle_list_end(struct mfs_pickle_writer *w)
{
	mfs_pickle_op(w, MFS_OP_APPENDS);
}

void mfs_pickle_object_begin(struct mfs_pickle_writer *w, const char *module, const char *name)
{
	mfs_pickle_global(w, module, name);
	mfs_pickle_op(w, MFS_OP_EMPTY_TUPLE);
	mfs_pickle_op(w, MFS_OP_NEWOBJ);
	mfs_pickle_dict_begin(w);
}

void mfs_pickle_object_end(struct mfs_pickle_writer *w)
{
	mfs_pickle_dict_end(w);
	mfs_pickle_op(w, MFS_OP_BUILD);
}

void mfs_pickle_batch(struct mfs_pickle_writer *w, enum mfs_pickle_op op, uint64_t i)
{
	if (!i || i % MFS_PICKLE_BATCH)
		return;
	mfs_pickle_op(w, op);
	mfs_pickle_op(w, MFS_OP_MARK);
}

/* TUPLE1 to TUPLE3 need no mark. */
void mfs_pickle_tuple_begin(struct mfs_pickle_writer *w, uint32_t count)
{
	if (count > 3)
		mfs_pickle_op(w, MFS_OP_MARK);
}

void mfs_pickle_tuple_end(struct mfs_pickle_writer *w, uint32_t count)
{
	static const enum mfs_pickle_op ops[] = {MFS_OP_EMPTY_TUPLE, MFS_OP_TUPLE1, MFS_OP_TUPLE2,
						 MFS_OP_TUPLE3, MFS_OP_TUPLE};

	mfs_pickle_op(w, ops[count < 4 ? count : 4]);
}

void mfs_pickle_ints(struct mfs_pickle_writer *w, const uint64_t *values, unsigned count)
{
	mfs_pickle_tuple_begin(w, count);
	for (unsigned i = 0; i < count; i++)
		mfs_pickle_uint(w, values[i]);
	mfs_pickle_tuple_end(w, count);
}

void mfs_pickle_size(struct mfs_pickle_writer *w, const uint64_t *shape, unsigned ndim)
{
	mfs_pickle_global(w, "torch", "Size");
	mfs_pickle_ints(w, shape, ndim);
	call(w, MFS_OP_TUPLE1);
}

void mfs_pickle_dtype(struct mfs_pickle_writer *w, enum mfs_dtype dtype)
{
	mfs_pickle_global(w, "torch", mfs_dtype_torch(dtype));
}

void mfs_pickle_storage_key(struct mfs_pickle_writer *w, uint32_t storage)
{
	char key[16];

	snprintf(key, sizeof(key), "%u", storage);
	mfs_pickle_str(w, key);
}

static void put_storage(struct mfs_pickle_writer *w, const struct mfs_pickle_alias *alias,
			const char *class_name)
{
	uint64_t numel = alias->numel;

	mfs_pickle_op(w, MFS_OP_MARK);
	mfs_pickle_name(w, "storage");
	if (class_name)
		mfs_pickle_global(w, "torch", class_name);
	else
		mfs_pickle_global(w, "torch.storage", "UntypedStorage");
	mfs_pickle_storage_key(w, alias->storage);
	mfs_pickle_name(w, "cpu");
	if (!class_name && mfs_mul_overflows(numel, mfs_dtype_size(alias->dtype), &numel))
		refuse(w, -EINVAL, "a storage's size overflows");
	mfs_pickle_uint(w, numel);
	mfs_pickle_op(w, MFS_OP_TUPLE);
	mfs_pickle_op(w, MFS_OP_BINPERSID);
}

/* c10/core/Contiguity.h: an axis of length 0 counts as 1. */
static void contiguous(uint64_t *stride, const uint64_t *shape, unsigned ndim)
{
	uint64_t step = 1;

	for (unsigned i = ndim; i-- > 0;) {
		stride[i] = step;
		step *= shape[i] ? shape[i] : 1;
	}
}

void mfs_pickle_alias(struct mfs_pickle_writer *w, const struct mfs_pickle_alias *alias)
{
	const char *class_name = mfs_dtype_storage(alias->dtype);
	uint64_t stride[MFS_MAX_DIMS];

	if (!alias->dtype || alias->ndim > MFS_MAX_DIMS) {
		refuse(w, -EINVAL, "a tensor without a type, or with more than %d axes",
		       MFS_MAX_DIMS);
		return;
	}
	contiguous(stride, alias->shape, alias->ndim);
	mfs_pickle_global(w, "torch._utils",
			  class_name ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
	mfs_pickle_op(w, MFS_OP_MARK);
	put_storage(w, alias, class_name);
	mfs_pickle_uint(w, alias->offset);
	mfs_pickle_ints(w, alias->shape, alias->ndim);
	mfs_pickle_ints(w, alias->stride ? alias->stride : stride, alias->ndim);
	mfs_pickle_bool(w, false);			    /* requires_grad */
	mfs_pickle_global(w, "collections", "OrderedDict"); /* backward hooks: none */
	call(w, MFS_OP_EMPTY_TUPLE);
	if (!class_name)
		mfs_pickle_dtype(w, alias->dtype);
	call(w, MFS_OP_TUPLE);
}

void mfs_pickle_tensor(struct mfs_pickle_writer *w, uint32_t storage, enum mfs_dtype dtype,
		       const uint64_t *shape, unsigned ndim)
{
	struct mfs_pickle_alias alias = {
		.storage = storage, .dtype = dtype, .ndim = ndim, .shape = shape};

	if (ndim <= MFS_MAX_DIMS && !mfs_shape_count(shape, ndim, &alias.numel))
		refuse(w, -EINVAL, "a tensor's size overflows");
	mfs_pickle_alias(w, &alias);
}
