/*
 * The metadata of Arrow IPC streams and files: which columns there are, and where the buffers of
 * each record batch lie (docs/formats/hf-datasets.md). No value is read. Metadata versions 4 and 5,
 * little-endian. A stream must have its end.
 */
#ifndef MFS_ARROW_ARROW_IPC_H
#define MFS_ARROW_ARROW_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/source.h"
#include "formats/base/tensor.h"

/* union Type of Schema.fbs. */
enum mfs_arrow_type {
	MFS_ARROW_NONE,
	MFS_ARROW_NULL,
	MFS_ARROW_INT,
	MFS_ARROW_FLOATING_POINT,
	MFS_ARROW_BINARY,
	MFS_ARROW_UTF8,
	MFS_ARROW_BOOL,
	MFS_ARROW_DECIMAL,
	MFS_ARROW_DATE,
	MFS_ARROW_TIME,
	MFS_ARROW_TIMESTAMP,
	MFS_ARROW_INTERVAL,
	MFS_ARROW_LIST,
	MFS_ARROW_STRUCT,
	MFS_ARROW_UNION,
	MFS_ARROW_FIXED_SIZE_BINARY,
	MFS_ARROW_FIXED_SIZE_LIST,
	MFS_ARROW_MAP,
	MFS_ARROW_DURATION,
	MFS_ARROW_LARGE_BINARY,
	MFS_ARROW_LARGE_UTF8,
	MFS_ARROW_LARGE_LIST,
	MFS_ARROW_RUN_END_ENCODED,
	MFS_ARROW_BINARY_VIEW,
	MFS_ARROW_UTF8_VIEW,
	MFS_ARROW_LIST_VIEW,
	MFS_ARROW_LARGE_LIST_VIEW,
	MFS_ARROW_TYPES,
};

struct mfs_arrow_column {
	const char *name;
	enum mfs_arrow_type type, item; /* item: of a list's elements */
	enum mfs_dtype dtype; /* of an INT, or of a list of them; MFS_U64 and MFS_U32 too */
	uint32_t list_size;   /* of a FIXED_SIZE_LIST: elements; 0 if that is impossible */
	bool dictionary;      /* it, or what it is a list of, is dictionary-encoded */
	/* Its first node, its first buffer, and the first of those views that have buffers of their
	 * own number, in every record batch. */
	uint32_t node, buffer, view;
	/* Of a column that is dictionary-encoded itself: type is that of the dictionary's values,
	 * and index that of the numbers that a record batch has. index is else MFS_DTYPE_NONE. */
	enum mfs_dtype index;
	int64_t dictionary_id;
	const struct mfs_arrow_column *children; /* of a nested type that has no dictionary */
	uint32_t child_count;
};

struct mfs_arrow;

/* Reads the schema and, of a file, its footer. src is copied; its name and object must outlive the
 * reader. -EINVAL: damaged, or not Arrow. -ENOTSUP: big-endian, an older or newer version, or
 * unknown types. */
int mfs_arrow_open(const struct mfs_source *src, struct mfs_arrow **ret, struct mfs_error *err);
void mfs_arrow_free(struct mfs_arrow *a);

uint32_t mfs_arrow_column_count(const struct mfs_arrow *a);
const struct mfs_arrow_column *mfs_arrow_column(const struct mfs_arrow *a, uint32_t i);
/* "list<int32>", "string"; text has size bytes. */
const char *mfs_arrow_type_text(const struct mfs_arrow_column *c, char *text, size_t size);
/* Whether it is a column of integers, or of lists of integers, that is not dictionary-encoded:
 * mfs_arrow_array() takes these two. */
bool mfs_arrow_is_int(const struct mfs_arrow_column *c);
bool mfs_arrow_is_int_list(const struct mfs_arrow_column *c);

enum mfs_arrow_codec { MFS_ARROW_PLAIN, MFS_ARROW_LZ4, MFS_ARROW_ZSTD };

/* One record batch, valid until the next one is asked for. It is checked that its body lies inside
 * the source, and that its buffers lie inside the body in their order. */
struct mfs_arrow_batch {
	enum mfs_arrow_codec codec;   /* of its buffers; mfs_arrow_next() gives MFS_ARROW_PLAIN */
	bool is_dictionary, is_delta; /* delta: values that are added to those before */
	int64_t dictionary;
	uint64_t number; /* from 0, for messages */
	uint64_t rows;
	uint64_t body, body_size; /* in the source, bytes */
	uint32_t nodes, buffers;
	const uint8_t *node_bytes, *buffer_bytes,
		*view_bytes; /* of the message; 16, 16 and 8 bytes each */
	uint32_t views;
};

/* The next record batch. *ret_end: there are no more. -ENOTSUP: it is compressed, or a message is a
 * tensor. */
int mfs_arrow_next(struct mfs_arrow *a, struct mfs_arrow_batch *ret, bool *ret_end,
		   struct mfs_error *err);

/* Like mfs_arrow_next(), but gives dictionaries, too, and batches whose buffers are compressed.
 * -ENOTSUP: by a codec that has no name here. */
int mfs_arrow_next_any(struct mfs_arrow *a, struct mfs_arrow_batch *ret, bool *ret_end,
		       struct mfs_error *err);

/* An array's length and how many of its values are null; neither is negative, and nulls are no
 * more than the length. */
int mfs_arrow_node(const struct mfs_arrow *a, const struct mfs_arrow_batch *b, uint32_t node,
		   uint64_t *ret_length, uint64_t *ret_nulls, struct mfs_error *err);
/* The number of a column's first buffer: views before it have as many as the batch states. */
int mfs_arrow_first_buffer(const struct mfs_arrow *a, const struct mfs_arrow_batch *b,
			   const struct mfs_arrow_column *c, uint32_t *ret, struct mfs_error *err);
/* Where a buffer lies in the source. -EINVAL: the batch has fewer. */
int mfs_arrow_buffer(const struct mfs_arrow *a, const struct mfs_arrow_batch *b, uint32_t buffer,
		     uint64_t *ret_at, uint64_t *ret_len, struct mfs_error *err);

/* Where a column lies in the source, as byte offsets. The sizes follow from the counts. */
struct mfs_arrow_array {
	uint64_t rows, nulls;
	uint64_t validity; /* a bit for every row, if nulls; else 0 */
	/* of a list: rows + 1 of them, int32 or of a LARGE_LIST int64; 0 if it has no rows */
	uint64_t offsets;
	/* Of a list: the number of all elements, also of those that belong to null rows or to no
	 * row. Of an INT column: rows. */
	uint64_t items, item_nulls;
	uint64_t item_validity; /* as validity */
	uint64_t values;
};

/* Finds the buffers of a column of integers, or of lists of them, in a batch. -EINVAL: a buffer is
 * smaller than its counts need. */
int mfs_arrow_array(const struct mfs_arrow *a, const struct mfs_arrow_batch *b,
		    const struct mfs_arrow_column *c, struct mfs_arrow_array *ret,
		    struct mfs_error *err);

#endif
