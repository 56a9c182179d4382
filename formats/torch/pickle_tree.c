#include "formats/torch/pickle_tree_i.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/torch/pickle_index.h"

/* ---- tables ---- */

int mfs_pickle_table_grow(struct mfs_pickle_table *t, size_t size)
{
	if (t->block_count == UINT32_MAX >> MFS_PICKLE_BLOCK_SHIFT)
		return -ENOMEM;
	if (mfs_grow(&t->blocks, t->block_count))
		return -ENOMEM;
	t->blocks[t->block_count] = reallocarray(NULL, MFS_PICKLE_BLOCK_LEN, size);
	if (!t->blocks[t->block_count])
		return -ENOMEM;
	t->block_count++;
	return 0;
}

static void table_release(struct mfs_pickle_table *t)
{
	for (uint32_t i = 0; i < t->block_count; i++)
		free(t->blocks[i]);
	free(t->blocks);
}

/* ---- the document ---- */

static int add_shared(struct mfs_pickle *doc)
{
	static const struct mfs_pickle_node fixed[MFS_VALUE_INTS] = {
		[MFS_VALUE_NONE] = {.type = MFS_V_NONE},
		[MFS_VALUE_FALSE] = {.type = MFS_V_BOOL},
		[MFS_VALUE_TRUE] = {.type = MFS_V_BOOL, .u.i = 1},
		[MFS_VALUE_DISCARDED] = {.type = MFS_V_DISCARDED},
		[MFS_VALUE_EMPTY_TUPLE] = {.type = MFS_V_TUPLE},
	};
	mfs_value v;
	int rc = 0;

	for (uint32_t i = 0; i < MFS_VALUE_INTS && !rc; i++)
		rc = mfs_pickle_add_node(doc, fixed[i], &v);
	for (int64_t i = 0; i < MFS_PICKLE_SHARED_INTS && !rc; i++)
		rc = mfs_pickle_add_node(doc, (struct mfs_pickle_node){.type = MFS_V_INT, .u.i = i},
					 &v);
	return rc;
}

struct mfs_pickle *mfs_pickle_new(const void *bytes)
{
	struct mfs_pickle *doc = calloc(1, sizeof(*doc));

	if (!doc)
		return NULL;
	doc->bytes = bytes;
	doc->indices = mfs_pickle_indices_new();
	if (doc->indices && !add_shared(doc))
		return doc;
	mfs_pickle_free(doc);
	return NULL;
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

/* ---- nodes ---- */

struct mfs_pickle_extra *mfs_pickle_need_extra(struct mfs_pickle *doc,
					       struct mfs_pickle_node *object)
{
	struct mfs_pickle_extra *x = mfs_pickle_extra(doc, object);

	if (!x) {
		x = mfs_pickle_table_add(&doc->extras, sizeof(*x));
		if (!x)
			return NULL;
		*x = (struct mfs_pickle_extra){0};
		object->u.p.c = doc->extras.count;
	}
	return x;
}

struct mfs_pickle_node *mfs_pickle_part(struct mfs_pickle *doc, struct mfs_pickle_node *object,
					enum mfs_value_type type)
{
	struct mfs_pickle_extra *x = mfs_pickle_need_extra(doc, object);
	const struct mfs_pickle_node empty = {.type = (uint8_t)type};
	mfs_value *part;

	if (!x)
		return NULL;
	part = type == MFS_V_LIST ? &x->items : &x->pairs;
	if (!*part && mfs_pickle_add_node(doc, empty, part))
		return NULL;
	return mfs_pickle_node(doc, *part);
}

static unsigned log2_slots(uint32_t count)
{
	unsigned log2 = 1;

	while (log2 < 31 && 1u << log2 < count)
		log2++;
	return log2;
}

int mfs_pickle_extend(struct mfs_pickle *doc, struct mfs_pickle_node *node, const mfs_value *values,
		      uint32_t count)
{
	const uint32_t used = node->a;

	if (count > INT32_MAX - used)
		return -EOVERFLOW;
	if (!node->capacity || used + count > 1u << node->capacity) {
		unsigned capacity = log2_slots(used + count);
		mfs_value *grown = mfs_arena_array(&doc->arena, 1u << capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		if (used)
			memcpy(grown, node->u.items, used * sizeof(*grown));
		node->u.items = grown;
		node->capacity = (uint8_t)capacity;
	}
	memcpy(node->u.items + used, values, count * sizeof(*values));
	node->a += count;
	return 0;
}
