#include "formats/arrow/parquet_write.h"

#include <string.h>

#include "formats/base/array.h"

#define CREATED_BY "mcorefs version 1"
#define PLAIN	   0 /* Encoding */
#define RLE	   3

/* parquet.thrift's enums of the same names. */
enum physical { INT32 = 1, INT64 = 2, FLOAT = 4, DOUBLE = 5, BYTE_ARRAY = 6 };
enum repetition { REQUIRED, OPTIONAL, REPEATED };
enum converted { NO_CONVERTED = -1, UTF8 = 0, LIST = 3, UINT_8 = 11, INT_8 = 15 };

/* Types of the compact protocol. */
enum wire {
	WIRE_TRUE = 1,
	WIRE_FALSE,
	WIRE_BYTE,
	WIRE_I32 = 5,
	WIRE_I64,
	WIRE_STRING = 8,
	WIRE_LIST,
	WIRE_STRUCT = 12
};

static const struct type {
	enum mfs_dtype dtype;
	enum physical physical;
	enum converted converted;
	uint8_t bits; /* of an integer's logical type; 0: it has none */
	bool is_signed;
} types[] = {
	{MFS_U8, INT32, UINT_8, 8, false},	  {MFS_I8, INT32, INT_8, 8, true},
	{MFS_U16, INT32, UINT_8 + 1, 16, false},  {MFS_I16, INT32, INT_8 + 1, 16, true},
	{MFS_U32, INT32, UINT_8 + 2, 32, false},  {MFS_I32, INT32, INT_8 + 2, 32, true},
	{MFS_U64, INT64, UINT_8 + 3, 64, false},  {MFS_I64, INT64, INT_8 + 3, 64, true},
	{MFS_F32, FLOAT, NO_CONVERTED, 0, false}, {MFS_F64, DOUBLE, NO_CONVERTED, 0, false},
};

static const struct type *type_of(enum mfs_dtype dtype)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++)
		if (types[i].dtype == dtype)
			return &types[i];
	return NULL;
}

unsigned mfs_parquet_width(enum mfs_dtype dtype)
{
	const struct type *t = type_of(dtype);

	return !t ? 0 : t->physical == INT64 || t->physical == DOUBLE ? 8 : 4;
}

/* ---- the compact protocol ---- */

/* A struct that is being written: fields are named by their distance from the one before. */
struct fields {
	struct mfs_buf *b;
	int last;
};

static void add_byte(struct mfs_buf *b, unsigned byte)
{
	mfs_buf_add(b, &(uint8_t){(uint8_t)byte}, 1);
}

static void add_varint(struct mfs_buf *b, uint64_t v)
{
	for (; v > 127; v >>= 7)
		add_byte(b, (unsigned)(v & 127) | 128);
	add_byte(b, (unsigned)v);
}

static void add_zigzag(struct mfs_buf *b, uint64_t v)
{
	add_varint(b, v << 1); /* nothing here is negative */
}

static void add_field(struct fields *f, int id, enum wire type)
{
	add_byte(f->b, (unsigned)(id - f->last) << 4 | type);
	f->last = id;
}

static void add_i32(struct fields *f, int id, uint64_t v)
{
	add_field(f, id, WIRE_I32);
	add_zigzag(f->b, v);
}

static void add_i64(struct fields *f, int id, uint64_t v)
{
	add_field(f, id, WIRE_I64);
	add_zigzag(f->b, v);
}

static void add_text(struct mfs_buf *b, const char *text)
{
	add_varint(b, strlen(text));
	mfs_buf_adds(b, text);
}

static void add_string(struct fields *f, int id, const char *text)
{
	add_field(f, id, WIRE_STRING);
	add_text(f->b, text);
}

static void add_list(struct fields *f, int id, enum wire type, uint64_t count)
{
	add_field(f, id, WIRE_LIST);
	add_byte(f->b, (unsigned)(count < 15 ? count : 15) << 4 | type);
	if (count >= 15)
		add_varint(f->b, count);
}

static void end_struct(struct mfs_buf *b)
{
	add_byte(b, 0);
}

/* ---- pages ---- */

void mfs_parquet_rle(struct mfs_buf *b, uint8_t level, uint64_t count)
{
	add_varint(b, count << 1);
	add_byte(b, level);
}

void mfs_parquet_packed(struct mfs_buf *b, const uint8_t *bits, uint64_t count)
{
	add_varint(b, (count + 7) / 8 << 1 | 1);
	mfs_buf_add(b, bits, (count + 7) / 8);
}

static uint64_t varint_size(uint64_t v)
{
	uint64_t n = 1;

	while (v >>= 7)
		n++;
	return n;
}

uint64_t mfs_parquet_rle_size(uint64_t count)
{
	return varint_size(count << 1) + 1;
}

uint64_t mfs_parquet_packed_size(uint64_t count)
{
	return varint_size((count + 7) / 8 << 1 | 1) + (count + 7) / 8;
}

size_t mfs_parquet_page_header(uint64_t body, uint64_t entries,
			       uint8_t ret[MFS_PARQUET_PAGE_HEADER])
{
	struct mfs_buf b = {.data = (char *)ret, .cap = MFS_PARQUET_PAGE_HEADER};
	struct fields page = {&b, 0}, data = {&b, 0};

	add_i32(&page, 1, 0); /* DATA_PAGE */
	add_i32(&page, 2, body);
	add_i32(&page, 3, body);
	add_field(&page, 5, WIRE_STRUCT);
	add_i32(&data, 1, entries);
	add_i32(&data, 2, PLAIN);
	add_i32(&data, 3, RLE);
	add_i32(&data, 4, RLE);
	end_struct(&b);
	end_struct(&b);
	return b.len;
}

/* ---- the schema ---- */

/* A union with one of its members set: LogicalType.LIST, .INTEGER. */
static void begin_logical(struct fields *f, int member)
{
	struct fields type = {f->b, 0};

	add_field(f, 10, WIRE_STRUCT);
	add_field(&type, member, WIRE_STRUCT);
}

static void end_logical(struct mfs_buf *b)
{
	end_struct(b);
	end_struct(b);
}

static void add_root(struct mfs_buf *b, size_t children)
{
	struct fields f = {b, 0};

	add_string(&f, 4, "schema");
	add_i32(&f, 5, children);
	end_struct(b);
}

static void add_group(struct mfs_buf *b, const char *name, enum repetition repetition, bool list)
{
	struct fields f = {b, 0};

	add_i32(&f, 3, repetition);
	add_string(&f, 4, name);
	add_i32(&f, 5, 1); /* child */
	if (list) {
		add_i32(&f, 6, LIST);
		begin_logical(&f, 3);
		end_logical(b);
	}
	end_struct(b);
}

static void add_leaf(struct mfs_buf *b, const char *name, enum mfs_dtype dtype)
{
	const struct type *t = type_of(dtype);
	struct fields f = {b, 0}, integer = {b, 0};

	add_i32(&f, 1, t->physical);
	add_i32(&f, 3, OPTIONAL);
	add_string(&f, 4, name);
	if (t->bits) {
		add_i32(&f, 6, (uint64_t)t->converted);
		begin_logical(&f, 10);
		add_field(&integer, 1, WIRE_BYTE);
		add_byte(b, t->bits);
		add_field(&integer, 2, t->is_signed ? WIRE_TRUE : WIRE_FALSE);
		end_logical(b);
	}
	end_struct(b);
}

static void add_text_leaf(struct mfs_buf *b, const char *name)
{
	struct fields f = {b, 0};

	add_i32(&f, 1, BYTE_ARRAY);
	add_i32(&f, 3, OPTIONAL);
	add_string(&f, 4, name);
	add_i32(&f, 6, UTF8);
	begin_logical(&f, 1);
	end_logical(b);
	end_struct(b);
}

static void add_column_schema(struct mfs_buf *b, const struct mfs_parquet_column *c)
{
	if (c->text)
		add_text_leaf(b, c->name);
	else if (!c->list)
		add_leaf(b, c->name, c->dtype);
	if (!c->list)
		return;
	add_group(b, c->name, OPTIONAL, true);
	add_group(b, "list", REPEATED, false);
	add_leaf(b, "element", c->dtype);
}

/* ---- the footer ---- */

void mfs_parquet_footer_begin(struct mfs_parquet_footer *f,
			      const struct mfs_parquet_column *columns, size_t count, uint64_t rows,
			      uint64_t groups)
{
	struct fields file = {&f->b, 0};
	size_t elements = 1;

	f->columns = columns;
	f->count = count;
	for (size_t i = 0; i < count; i++)
		elements += columns[i].list ? 3 : 1;
	add_i32(&file, 1, 2); /* version */
	add_list(&file, 2, WIRE_STRUCT, elements);
	add_root(&f->b, count);
	for (size_t i = 0; i < count; i++)
		add_column_schema(&f->b, &columns[i]);
	add_i64(&file, 3, rows);
	add_list(&file, 4, WIRE_STRUCT, groups);
}

static void add_path(struct fields *f, const struct mfs_parquet_column *c)
{
	add_list(f, 3, WIRE_STRING, c->list ? 3 : 1);
	add_text(f->b, c->name);
	if (c->list) {
		add_text(f->b, "list");
		add_text(f->b, "element");
	}
}

static void add_chunk(struct mfs_buf *b, const struct mfs_parquet_column *c,
		      const struct mfs_parquet_column_chunk *chunk)
{
	struct fields column = {b, 0}, meta = {b, 0};

	add_i64(&column, 2, 0); /* file_offset: deprecated, and 0 by now */
	add_field(&column, 3, WIRE_STRUCT);
	add_i32(&meta, 1, c->text ? BYTE_ARRAY : type_of(c->dtype)->physical);
	add_list(&meta, 2, WIRE_I32, 2);
	add_zigzag(b, PLAIN);
	add_zigzag(b, RLE);
	add_path(&meta, c);
	add_i32(&meta, 4, 0); /* UNCOMPRESSED */
	add_i64(&meta, 5, chunk->entries);
	add_i64(&meta, 6, chunk->size);
	add_i64(&meta, 7, chunk->size);
	add_i64(&meta, 9, chunk->offset);
	end_struct(b);
	end_struct(b);
}

void mfs_parquet_footer_group(struct mfs_parquet_footer *f,
			      const struct mfs_parquet_column_chunk *chunks, uint64_t rows)
{
	struct fields group = {&f->b, 0};
	uint64_t bytes = 0;

	add_list(&group, 1, WIRE_STRUCT, f->count);
	for (size_t i = 0; i < f->count; i++) {
		add_chunk(&f->b, &f->columns[i], &chunks[i]);
		bytes += chunks[i].size;
	}
	add_i64(&group, 2, bytes);
	add_i64(&group, 3, rows);
	end_struct(&f->b);
}

void mfs_parquet_footer_end(struct mfs_parquet_footer *f)
{
	struct fields file = {&f->b, 4};
	uint8_t length[4];

	add_string(&file, 6, CREATED_BY);
	end_struct(&f->b);
	for (unsigned i = 0; i < 4; i++)
		length[i] = (uint8_t)(f->b.len >> 8 * i);
	mfs_buf_add(&f->b, length, sizeof(length));
	mfs_buf_adds(&f->b, MFS_PARQUET_MAGIC);
}
