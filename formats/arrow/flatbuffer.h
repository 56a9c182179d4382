/*
 * Reading FlatBuffers (flatbuffers: docs/source/internals.md) that nobody has verified: every
 * offset is checked where it is followed. A buffer that breaks a rule is marked `bad`, once and for
 * all, and what was asked for is as if it were absent; so a reader of several fields looks once,
 * behind the last one.
 *
 * What is not checked: that tables do not share parts, so that a small buffer can be a large tree.
 * Who walks a tree limits depth and number of its nodes.
 */
#ifndef MFS_ARROW_FLATBUFFER_H
#define MFS_ARROW_FLATBUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mfs_flat {
	const uint8_t *bytes; /* need not be aligned */
	size_t size;	      /* below 2^31 */
	bool bad;
};

/* at is 0 for an absent one, as the root is never there. */
struct mfs_flat_table {
	struct mfs_flat *flat;
	uint32_t at, vtable;
	uint16_t vtable_size, size; /* bytes, checked */
};

struct mfs_flat_vector {
	struct mfs_flat *flat;
	uint32_t at, count; /* of the first element; elements, all of them inside of the buffer */
	uint32_t element;   /* bytes */
};

struct mfs_flat_table mfs_flat_root(struct mfs_flat *f);

/* Fields by their numbers in the schema, from 0. An absent scalar is what the schema says is its
 * default. */
uint8_t mfs_flat_u8(const struct mfs_flat_table *t, unsigned field, uint8_t absent);
int16_t mfs_flat_i16(const struct mfs_flat_table *t, unsigned field, int16_t absent);
int32_t mfs_flat_i32(const struct mfs_flat_table *t, unsigned field, int32_t absent);
int64_t mfs_flat_i64(const struct mfs_flat_table *t, unsigned field, int64_t absent);
struct mfs_flat_table mfs_flat_table(const struct mfs_flat_table *t, unsigned field);
/* Of structs or scalars of so many bytes, or of tables: 4. */
struct mfs_flat_vector mfs_flat_vector(const struct mfs_flat_table *t, unsigned field,
				       uint32_t element);
/* With a NUL behind it, inside of the buffer; NULL if it is absent. */
const char *mfs_flat_string(const struct mfs_flat_table *t, unsigned field);

/* i < count. */
const uint8_t *mfs_flat_element(const struct mfs_flat_vector *v, uint32_t i);
struct mfs_flat_table mfs_flat_element_table(const struct mfs_flat_vector *v, uint32_t i);

#endif
