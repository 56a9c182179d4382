/*
 * Reads FlatBuffers that nobody has verified (flatbuffers: docs/source/internals.md). Every offset
 * is checked where it is followed. A buffer that breaks a rule is marked `bad` and stays so, and
 * what was asked for reads as absent. So a reader of several fields checks `bad` once, after the
 * last field.
 *
 * It is not checked that tables share no parts, so a small buffer can be a large tree. Code that
 * walks a tree limits its depth and the number of its nodes.
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

/* at: 0 if the table is absent; no table begins at 0. */
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

/* Fields, by their numbers in the schema, from 0. absent: the value of a scalar that is not there,
 * which is the schema's default. */
uint8_t mfs_flat_u8(const struct mfs_flat_table *t, unsigned field, uint8_t absent);
int16_t mfs_flat_i16(const struct mfs_flat_table *t, unsigned field, int16_t absent);
int32_t mfs_flat_i32(const struct mfs_flat_table *t, unsigned field, int32_t absent);
int64_t mfs_flat_i64(const struct mfs_flat_table *t, unsigned field, int64_t absent);
struct mfs_flat_table mfs_flat_table(const struct mfs_flat_table *t, unsigned field);
/* element: bytes of one struct or scalar; 4 for tables. */
struct mfs_flat_vector mfs_flat_vector(const struct mfs_flat_table *t, unsigned field,
				       uint32_t element);
/* Ends with a NUL that lies inside the buffer. NULL: it is absent. */
const char *mfs_flat_string(const struct mfs_flat_table *t, unsigned field);

/* i < count. */
const uint8_t *mfs_flat_element(const struct mfs_flat_vector *v, uint32_t i);
struct mfs_flat_table mfs_flat_element_table(const struct mfs_flat_vector *v, uint32_t i);

#endif
