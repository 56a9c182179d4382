/*
 * Private to the reader of pickles: the tree of nodes. pickle.c builds it, pickle_value.c reads it.
 * An mfs_value is the number of a node.
 */
#ifndef MFS_TORCH_PICKLE_TREE_I_H
#define MFS_TORCH_PICKLE_TREE_I_H

#include <errno.h>

#include "formats/base/arena.h"
#include "formats/torch/pickle.h"

struct mfs_pickle_indices;

/* 16 bytes each: the .metadata of a large run has some millions of them. */
struct mfs_pickle_node {
	uint8_t type;	  /* enum mfs_value_type */
	uint8_t capacity; /* LIST, SET, DICT: log2 of the slots of items; 0: none yet */
	uint8_t form;	  /* enum mfs_pickled_kind */
	uint32_t a;	  /* length of STR/BYTES/BIGINT; slots used of items; module of GLOBAL;
			   * callable of OBJECT; value of PERSID */
	union {
		int64_t i; /* INT, BOOL; offset in the stream of STR/BYTES/BIGINT */
		double f;
		mfs_value *items; /* LIST, TUPLE, SET; of DICT: key, value, key, value, ... */
		struct {
			uint32_t b; /* name of GLOBAL; args of OBJECT */
			uint32_t c; /* OBJECT: number of its extra + 1; 0: none */
		} p;
	} u;
};

/* What few objects have. 0: not there. */
struct mfs_pickle_extra {
	mfs_value state;  /* given by BUILD */
	mfs_value items;  /* a list node, filled by APPENDS */
	mfs_value pairs;  /* a dict node, filled by SETITEMS */
	mfs_value kwargs; /* of NEWOBJ_EX */
};

/* A table in blocks: growing copies no entry, and pointers to entries stay valid. */
struct mfs_pickle_table {
	void **blocks;
	uint32_t count, block_count;
};

#define MFS_PICKLE_BLOCK_SHIFT 12
#define MFS_PICKLE_BLOCK_LEN   (1u << MFS_PICKLE_BLOCK_SHIFT)

struct mfs_pickle {
	const uint8_t *bytes;
	size_t length; /* of the stream parsed */
	struct mfs_pickle_table nodes, extras;
	struct mfs_arena arena; /* slots of items */
	struct mfs_pickle_indices *indices;
	mfs_value root;
};

/* The first nodes of every document. */
enum {
	MFS_VALUE_NONE,
	MFS_VALUE_FALSE,
	MFS_VALUE_TRUE,
	MFS_VALUE_DISCARDED,
	MFS_VALUE_EMPTY_TUPLE,
	MFS_VALUE_INTS, /* here begin the integers from 0 to 255 */
};
#define MFS_PICKLE_SHARED_INTS 256

static inline void *mfs_pickle_table_at(const struct mfs_pickle_table *t, uint32_t i, size_t size)
{
	return (char *)t->blocks[i >> MFS_PICKLE_BLOCK_SHIFT] +
	       (size_t)(i & (MFS_PICKLE_BLOCK_LEN - 1)) * size;
}

/* Makes room for a block of entries. -ENOMEM. */
int mfs_pickle_table_grow(struct mfs_pickle_table *t, size_t size);

/* A new entry, not filled in; NULL: out of memory. */
static inline void *mfs_pickle_table_add(struct mfs_pickle_table *t, size_t size)
{
	if (t->count >> MFS_PICKLE_BLOCK_SHIFT == t->block_count && mfs_pickle_table_grow(t, size))
		return NULL;
	return mfs_pickle_table_at(t, t->count++, size);
}

/* The node of a value; that of None for a number that the document does not have. */
static inline struct mfs_pickle_node *mfs_pickle_node(const struct mfs_pickle *doc, mfs_value v)
{
	return mfs_pickle_table_at(&doc->nodes, v < doc->nodes.count ? v : MFS_VALUE_NONE,
				   sizeof(struct mfs_pickle_node));
}

/* NULL if the object has none. */
static inline struct mfs_pickle_extra *mfs_pickle_extra(const struct mfs_pickle *doc,
							const struct mfs_pickle_node *object)
{
	return object->u.p.c ? mfs_pickle_table_at(&doc->extras, object->u.p.c - 1,
						   sizeof(struct mfs_pickle_extra))
			     : NULL;
}

/* An empty document over bytes, which must outlive it; NULL: out of memory. */
struct mfs_pickle *mfs_pickle_new(const void *bytes);
/* -ENOMEM. */
static inline int mfs_pickle_add_node(struct mfs_pickle *doc, struct mfs_pickle_node node,
				      mfs_value *ret)
{
	struct mfs_pickle_node *n = mfs_pickle_table_add(&doc->nodes, sizeof(*n));

	if (!n)
		return -ENOMEM;
	*n = node;
	*ret = doc->nodes.count - 1;
	return 0;
}

/* The object's extra, made if there is none; NULL: out of memory. */
struct mfs_pickle_extra *mfs_pickle_need_extra(struct mfs_pickle *doc,
					       struct mfs_pickle_node *object);
/* The object's list (MFS_V_LIST) or dict (MFS_V_DICT), likewise. */
struct mfs_pickle_node *mfs_pickle_part(struct mfs_pickle *doc, struct mfs_pickle_node *object,
					enum mfs_value_type type);
/* Appends to a LIST, SET or DICT. -ENOMEM, or -EOVERFLOW: more slots than a node can have. */
int mfs_pickle_extend(struct mfs_pickle *doc, struct mfs_pickle_node *node, const mfs_value *values,
		      uint32_t count);

#endif
