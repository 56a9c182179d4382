/*
 * A pickle machine that executes nothing: it turns a stream (protocols 2 to 5) into a tree of
 * values.
 *
 * GLOBAL and STACK_GLOBAL become symbols of module and name. REDUCE, NEWOBJ and BUILD become object
 * nodes, which keep the callable, its arguments, the state, and what SETITEMS and APPENDS put into
 * the object. Nothing is looked up or called, so it is harmless to read an unknown class. The
 * reader of a value decides what it accepts. pickle_op.h lists the opcodes.
 *
 * Every length is compared with the bytes that are left before anything is allocated, so memory
 * stays proportional to the stream. The bytes must outlive the document: its strings point into
 * them.
 */
#ifndef MFS_TORCH_PICKLE_H
#define MFS_TORCH_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_PICKLE_MAX_DEPTH 1000000 /* entries on the stack: a batch is 1000, marks nest */

enum mfs_value_type {
	MFS_V_DISCARDED, /* under a key that the caller asked to skip */
	MFS_V_NONE,
	MFS_V_BOOL,
	MFS_V_INT,    /* fits int64 */
	MFS_V_BIGINT, /* an integer that does not; opaque */
	MFS_V_FLOAT,
	MFS_V_STR,   /* UTF-8 */
	MFS_V_BYTES, /* also bytearray */
	MFS_V_LIST,
	MFS_V_TUPLE,
	MFS_V_DICT,
	MFS_V_SET,
	MFS_V_GLOBAL, /* module, name */
	MFS_V_OBJECT, /* callable(*args), then state, items */
	MFS_V_PERSID, /* persistent id: one child */
};

/* How Python makes a value, where its type does not say so: needed to write it again. */
enum mfs_pickled_kind {
	MFS_FORM_PLAIN,	    /* OBJECT: callable(*args) (REDUCE) */
	MFS_FORM_NEWOBJ,    /* OBJECT: callable.__new__(callable, *args, **kwargs) */
	MFS_FORM_FROZENSET, /* SET */
	MFS_FORM_BYTEARRAY, /* BYTES */
};

typedef uint32_t mfs_value; /* handle into its document; 0 is always MFS_V_NONE ("not there") */

struct mfs_pickle; /* the document */

struct mfs_pickle_options {
	/* The value under this string key is skipped and not kept, in the first dict that has it
	 * (all_local_plans of torch_dist may be far larger than the rest). NULL: everything is
	 * kept. */
	const char *discard_key;
};

/* name: for messages. -EINVAL: the stream is malformed, or has an opcode that is not supported. */
int mfs_pickle_parse(const void *bytes, size_t len, const char *name,
		     const struct mfs_pickle_options *opt, struct mfs_pickle **ret,
		     struct mfs_error *err);
void mfs_pickle_free(struct mfs_pickle *doc);

mfs_value mfs_pickle_root(const struct mfs_pickle *doc);
/* Values are numbered from 0 on, for those who look at all of them in whatever order. */
mfs_value mfs_pickle_values(const struct mfs_pickle *doc);
/* Bytes of the stream up to and including STOP (legacy torch.save concatenates pickles). */
size_t mfs_pickle_length(const struct mfs_pickle *doc);

enum mfs_value_type mfs_value_type(const struct mfs_pickle *doc, mfs_value v);
enum mfs_pickled_kind mfs_value_form(const struct mfs_pickle *doc, mfs_value v);
bool mfs_value_is_none(const struct mfs_pickle *doc, mfs_value v);

/* Each returns false and leaves *ret alone unless v is of that type. An int can be read as a float,
 * too. */
bool mfs_value_int(const struct mfs_pickle *doc, mfs_value v, int64_t *ret);
bool mfs_value_bool(const struct mfs_pickle *doc, mfs_value v, bool *ret);
bool mfs_value_float(const struct mfs_pickle *doc, mfs_value v, double *ret);
/* Not NUL-terminated. */
bool mfs_value_str(const struct mfs_pickle *doc, mfs_value v, const char **ret, size_t *ret_len);
bool mfs_value_bytes(const struct mfs_pickle *doc, mfs_value v, const uint8_t **ret,
		     size_t *ret_len);
/* Of a BIGINT: two's complement, little-endian, more than 8 bytes. */
bool mfs_value_bigint(const struct mfs_pickle *doc, mfs_value v, const uint8_t **ret,
		      size_t *ret_len);
bool mfs_value_is_str(const struct mfs_pickle *doc, mfs_value v, const char *text);

/* Children of a list, tuple or set; of a list subclass object, its appended items. 0 for others. */
uint32_t mfs_value_count(const struct mfs_pickle *doc, mfs_value v);
mfs_value mfs_value_at(const struct mfs_pickle *doc, mfs_value v, uint32_t i);

/* Pairs of a dict; of an OrderedDict or other dict subclass object, its items. 0 for others. */
uint32_t mfs_value_pairs(const struct mfs_pickle *doc, mfs_value v);
mfs_value mfs_value_key(const struct mfs_pickle *doc, mfs_value v, uint32_t i);
mfs_value mfs_value_item(const struct mfs_pickle *doc, mfs_value v, uint32_t i);
/* Value under a string key (the last one, as Python's dict keeps); 0 if there is none. */
mfs_value mfs_value_get(const struct mfs_pickle *doc, mfs_value v, const char *key);
bool mfs_value_has(const struct mfs_pickle *doc, mfs_value v, const char *key);

/* Parts of an object. Callable: usually a MFS_V_GLOBAL. State: what BUILD gave. Kwargs: those of
 * NEWOBJ_EX. 0: it has none. */
mfs_value mfs_value_callable(const struct mfs_pickle *doc, mfs_value v);
mfs_value mfs_value_args(const struct mfs_pickle *doc, mfs_value v);
mfs_value mfs_value_kwargs(const struct mfs_pickle *doc, mfs_value v);
mfs_value mfs_value_state(const struct mfs_pickle *doc, mfs_value v);
/* A persistent id's value. */
mfs_value mfs_value_persid(const struct mfs_pickle *doc, mfs_value v);
/* Attribute of an object by its state dict (or the dict half of a (dict, slots) state); 0 if
 * none. */
mfs_value mfs_value_attr(const struct mfs_pickle *doc, mfs_value v, const char *name);

/* Module and name of a global; false: v is not a global, or they are not texts. */
bool mfs_value_global(const struct mfs_pickle *doc, mfs_value v, const char **ret_module,
		      size_t *ret_module_len, const char **ret_name, size_t *ret_name_len);
/* True if v is the global module.name. */
bool mfs_value_is_global(const struct mfs_pickle *doc, mfs_value v, const char *module,
			 const char *name);
/* Name part of a global, or of an object's callable; *ret_len bytes, none of which is NUL. "": it
 * is neither, or has a NUL. */
const char *mfs_value_class(const struct mfs_pickle *doc, mfs_value v, size_t *ret_len);
bool mfs_value_is_object_of(const struct mfs_pickle *doc, mfs_value v, const char *class_name);

#endif
