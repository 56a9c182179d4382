/*
 * Writes the metadata of Parquet files whose columns are numbers, strings, or one list of numbers a
 * row, uncompressed and PLAIN (apache/parquet-format: parquet.thrift, Encodings.md,
 * LogicalTypes.md). Structures are in Thrift's compact protocol (apache/thrift:
 * doc/specs/thrift-compact-protocol.md).
 *
 *   "PAR1"
 *   column chunks, each of data pages (version 1): page header, repetition levels, definition
 *     levels, values
 *   footer: FileMetaData, its length as u32, "PAR1"
 *
 * The schema is the one that pyarrow writes for nullable columns of list<element: T> and T, though
 * nothing here is ever null. Parquet stores integers of less than 32 bits in 32; a logical type
 * says what they are.
 */
#ifndef MFS_ARROW_PARQUET_WRITE_H
#define MFS_ARROW_PARQUET_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/tensor.h"

#define MFS_PARQUET_MAGIC "PAR1"
/* The most bytes that a page's header has. */
#define MFS_PARQUET_PAGE_HEADER 48

/* Bytes of a stored value: 4 or 8; 0: dtype cannot be stored. */
unsigned mfs_parquet_width(enum mfs_dtype dtype);

/* Definition levels. In an optional list of optional elements: of a list without elements, and of
 * an element. In an optional column: of a value. */
enum mfs_parquet_level { MFS_PARQUET_EMPTY = 1, MFS_PARQUET_ELEMENT = 3, MFS_PARQUET_VALUE = 1 };

/* Appends a run of count equal levels, with its varint (Encodings.md, RLE). */
void mfs_parquet_rle(struct mfs_buf *b, uint8_t level, uint64_t count);
/* Appends bit-packed levels of one bit for count entries: (count + 7) / 8 bytes, lowest bit
 * first. */
void mfs_parquet_packed(struct mfs_buf *b, const uint8_t *bits, uint64_t count);
/* How many bytes mfs_parquet_rle() and mfs_parquet_packed() append. */
uint64_t mfs_parquet_rle_size(uint64_t count);
uint64_t mfs_parquet_packed_size(uint64_t count);

/* Writes the header of a page and returns its length. body: its bytes. entries: its values and
 * empty lists. Both are below 2^31. */
size_t mfs_parquet_page_header(uint64_t body, uint64_t entries,
			       uint8_t ret[MFS_PARQUET_PAGE_HEADER]);

struct mfs_parquet_column {
	const char *name;
	enum mfs_dtype dtype;
	bool list; /* of numbers, one a row; else one number a row */
	bool text; /* strings of UTF-8, one a row; dtype says nothing then */
};

/* A column in a row group. */
struct mfs_parquet_column_chunk {
	uint64_t offset, size; /* of its pages, in bytes */
	uint64_t entries;      /* values and empty lists */
};

/* The footer, in this order: begin, each of the row groups, end. Its bytes are b's. */
struct mfs_parquet_footer {
	struct mfs_buf b;
	const struct mfs_parquet_column *columns;
	size_t count;
};
void mfs_parquet_footer_begin(struct mfs_parquet_footer *f,
			      const struct mfs_parquet_column *columns, size_t count, uint64_t rows,
			      uint64_t groups);
/* chunks: one for each column. */
void mfs_parquet_footer_group(struct mfs_parquet_footer *f,
			      const struct mfs_parquet_column_chunk *chunks, uint64_t rows);
void mfs_parquet_footer_end(struct mfs_parquet_footer *f);

#endif
