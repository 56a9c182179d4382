/*
 * Reads Thrift's compact protocol (apache/thrift: doc/specs/thrift-compact-protocol.md), as far as
 * Parquet's structures use it. Nothing is allocated; after the first fault everything is zero and
 * .failed is set.
 */
#ifndef MFS_TEXT_PARQUET_THRIFT_H
#define MFS_TEXT_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mfs_thrift_type {
	MFS_THRIFT_STOP,
	MFS_THRIFT_TRUE,
	MFS_THRIFT_FALSE,
	MFS_THRIFT_I8,
	MFS_THRIFT_I16,
	MFS_THRIFT_I32,
	MFS_THRIFT_I64,
	MFS_THRIFT_DOUBLE,
	MFS_THRIFT_BINARY,
	MFS_THRIFT_LIST,
	MFS_THRIFT_SET,
	MFS_THRIFT_MAP,
	MFS_THRIFT_STRUCT,
};

struct mfs_thrift {
	const uint8_t *at, *end;
	bool failed;
};

/* A field of a struct; id is 0 at first. */
struct mfs_thrift_field {
	int16_t id;
	enum mfs_thrift_type type;
};

/* The next field of the struct at hand; false: it has ended. Its value must be read, or skipped. */
bool mfs_thrift_next(struct mfs_thrift *t, struct mfs_thrift_field *f);
void mfs_thrift_skip(struct mfs_thrift *t, enum mfs_thrift_type type);
/* I16, I32 or I64; of another type it is skipped, and 0. */
int64_t mfs_thrift_int(struct mfs_thrift *t, enum mfs_thrift_type type);
/* A list's length and the type of its elements; of another type it is skipped, and 0. */
uint32_t mfs_thrift_list(struct mfs_thrift *t, enum mfs_thrift_type type,
			 enum mfs_thrift_type *ret_item);
/* Bytes, in place. */
const char *mfs_thrift_binary(struct mfs_thrift *t, enum mfs_thrift_type type, size_t *ret_len);

#endif
