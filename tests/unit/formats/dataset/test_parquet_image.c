/*
 * Rows as Parquet files: formats/dataset/files/parquet_image.h, formats/arrow/parquet_write.h. The
 * decoder below knows Thrift's compact protocol and the RLE and bit-packed hybrid by their
 * specifications, and what is found in a file must be what parquet.thrift calls it.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/files/parquet_image.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "tests/unit/fake_rows.h"

static struct mfs_error err;

/* An assertion for every token: Check's own write to a pipe each time. */
#define must(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s:%d: %s", __func__, __LINE__, #condition);                 \
	} while (0)

/* ---- Thrift ---- */

enum { T_TRUE = 1, T_FALSE, T_BYTE, T_I32 = 5, T_I64, T_STRING = 8, T_LIST, T_STRUCT = 12 };

/* A value: fields of a struct have ids, elements of a list have none. */
struct node {
	int id, type;
	int64_t number;	  /* of the integers and booleans; length of a string; count of a list */
	const char *text; /* of a string */
	struct node *children;
	size_t child_count;
};

struct input {
	const uint8_t *p, *end;
};

static unsigned take(struct input *in)
{
	must(in->p < in->end);
	return *in->p++;
}

static uint64_t take_varint(struct input *in)
{
	uint64_t v = 0;

	for (unsigned shift = 0;; shift += 7) {
		const unsigned byte = take(in);

		must(shift < 64);
		v |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return v;
	}
}

static int64_t take_zigzag(struct input *in)
{
	const uint64_t v = take_varint(in);

	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static void parse(struct input *in, struct node *n);

static struct node *add_child(struct node *n)
{
	n->children = realloc(n->children, (n->child_count + 1) * sizeof(*n->children));
	n->children[n->child_count] = (struct node){0};
	return &n->children[n->child_count++];
}

static void parse_struct(struct input *in, struct node *n)
{
	int id = 0;

	for (;;) {
		const unsigned head = take(in);
		struct node *child;

		if (!head)
			return;
		id = head >> 4 ? id + (int)(head >> 4) : (int)take_zigzag(in);
		child = add_child(n);
		child->id = id;
		child->type = (int)(head & 15);
		parse(in, child);
	}
}

static void parse_list(struct input *in, struct node *n)
{
	const unsigned head = take(in);

	n->number = head >> 4 == 15 ? (int64_t)take_varint(in) : (int64_t)(head >> 4);
	for (int64_t i = 0; i < n->number; i++) {
		struct node *child = add_child(n);

		child->type = (int)(head & 15);
		parse(in, child);
	}
}

static void parse(struct input *in, struct node *n)
{
	switch (n->type) {
	case T_TRUE:
	case T_FALSE:
		n->number = n->type == T_TRUE;
		break;
	case T_BYTE:
		n->number = take(in);
		break;
	case T_I32:
	case T_I64:
		n->number = take_zigzag(in);
		break;
	case T_STRING:
		n->number = (int64_t)take_varint(in);
		n->text = (const char *)in->p;
		must(n->number <= in->end - in->p);
		in->p += n->number;
		break;
	case T_LIST:
		parse_list(in, n);
		break;
	default:
		must(n->type == T_STRUCT);
		parse_struct(in, n);
	}
}

static void free_node(struct node *n)
{
	for (size_t i = 0; i < n->child_count; i++)
		free_node(&n->children[i]);
	free(n->children);
}

static const struct node *field(const struct node *n, int id)
{
	for (size_t i = 0; i < n->child_count; i++)
		if (n->children[i].id == id)
			return &n->children[i];
	return NULL;
}

static int64_t number(const struct node *n, int id, int type)
{
	const struct node *f = field(n, id);

	ck_assert_msg(f != NULL, "field %d is not there", id);
	must(f->type == type);
	return f->number;
}

static void check_text(const struct node *n, const char *want)
{
	must(n->type == T_STRING);
	must(n->number == (int64_t)strlen(want));
	ck_assert_mem_eq(n->text, want, strlen(want));
}

/* ---- levels ---- */

/* Encodings.md, "Run Length Encoding / Bit-Packing Hybrid": count levels of so many bits, and
 * nothing after them. */
static void decode_levels(struct input *in, unsigned bits, uint64_t count, uint8_t *ret)
{
	const uint32_t len = mfs_le32(in->p);
	struct input run = {in->p + 4, in->p + 4 + len};
	uint64_t done = 0;

	must(run.end <= in->end);
	while (done < count) {
		const uint64_t head = take_varint(&run);
		uint64_t n = head >> 1;

		must(n > 0);
		if (head & 1) {
			for (uint64_t i = 0; i < n * 8; i++) {
				unsigned v = 0;

				for (unsigned b = 0; b < bits; b++)
					v |= (unsigned)(run.p[(i * bits + b) / 8] >>
								(i * bits + b) % 8 &
							1)
					     << b;
				if (done < count)
					ret[done++] = (uint8_t)v;
				else
					must(v == 0);
			}
			run.p += n * bits;
		} else {
			const unsigned v = take(&run);

			must(n <= count - done);
			memset(ret + done, (int)v, n);
			done += n;
		}
	}
	must(run.p == run.end);
	in->p = run.end;
}

/* ---- what a file must hold ---- */

/* parquet.thrift, SchemaElement: type, repetition, name, children, converted type,
 * LogicalType.INTEGER. */
static void check_integer(const struct node *e, enum mfs_dtype dtype)
{
	static const struct {
		enum mfs_dtype dtype;
		int type, converted, bits, is_signed;
	} types[] = {
		{MFS_U8, 1, 11, 8, 0},	 {MFS_U16, 1, 12, 16, 0}, {MFS_U32, 1, 13, 32, 0},
		{MFS_U64, 2, 14, 64, 0}, {MFS_I8, 1, 15, 8, 1},	  {MFS_I16, 1, 16, 16, 1},
		{MFS_I32, 1, 17, 32, 1}, {MFS_I64, 2, 18, 64, 1}, {MFS_F32, 4, -1, 0, 0},
		{MFS_F64, 5, -1, 0, 0},
	};
	const struct node *integer;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++) {
		if (types[i].dtype != dtype)
			continue;
		ck_assert_int_eq(number(e, 1, T_I32), types[i].type);
		if (types[i].bits) {
			ck_assert_int_eq(number(e, 6, T_I32), types[i].converted);
			integer = field(field(e, 10), 10);
			ck_assert_int_eq(number(integer, 1, T_BYTE), types[i].bits);
			ck_assert_int_eq(field(integer, 2)->number, types[i].is_signed);
		} else {
			ck_assert_ptr_null(field(e, 6));
			ck_assert_ptr_null(field(e, 10));
		}
		return;
	}
	ck_abort_msg("a dtype that the test does not know");
}

static void check_schema(const struct node *schema, const struct mfs_rows *rows)
{
	const struct node *e = schema->children;

	ck_assert_int_eq(schema->number, 4 + (int64_t)rows->column_count);
	ck_assert_int_eq(number(&e[0], 5, T_I32), 1 + (int64_t)rows->column_count);
	check_text(field(&e[1], 4), "input_ids");
	ck_assert_int_eq(number(&e[1], 3, T_I32), 1); /* OPTIONAL */
	ck_assert_int_eq(number(&e[1], 5, T_I32), 1);
	ck_assert_int_eq(number(&e[1], 6, T_I32), 3);	   /* LIST */
	ck_assert_ptr_nonnull(field(field(&e[1], 10), 3)); /* LogicalType.LIST */
	check_text(field(&e[2], 4), "list");
	ck_assert_int_eq(number(&e[2], 3, T_I32), 2); /* REPEATED */
	ck_assert_int_eq(number(&e[2], 5, T_I32), 1);
	check_text(field(&e[3], 4), "element");
	ck_assert_int_eq(number(&e[3], 3, T_I32), 1);
	check_integer(&e[3], rows->dtype);
	for (size_t c = 0; c < rows->column_count; c++) {
		check_text(field(&e[4 + c], 4), rows->columns[c].name);
		ck_assert_int_eq(number(&e[4 + c], 3, T_I32), 1);
		check_integer(&e[4 + c], rows->columns[c].dtype);
	}
}

/* Values as they are stored: integers of less than 32 bits have become int32. */
static int64_t stored_at(enum mfs_dtype dtype, const uint8_t *p)
{
	return mfs_dtype_size(dtype) == 8 ? (int64_t)mfs_le64(p) : (int64_t)(int32_t)mfs_le32(p);
}

static int64_t source_at(enum mfs_dtype dtype, const uint8_t *p)
{
	switch (dtype) {
	case MFS_U8:
		return *p;
	case MFS_I8:
		return (int8_t)*p;
	case MFS_U16:
		return mfs_le16(p);
	case MFS_I16:
		return (int16_t)mfs_le16(p);
	default:
		return stored_at(dtype, p);
	}
}

/* A column chunk: what is left of it, and the entries and values that were found in it. */
struct chunk {
	struct input in;
	uint64_t entries;
	uint64_t most; /* entries of a page */
	unsigned width;
	bool list;
	uint64_t values;
};

/* A page: levels to ret (entries each), values where they lie. */
static uint64_t decode_page(struct chunk *c, uint8_t *repetition, uint8_t *definition,
			    const uint8_t **ret_values)
{
	struct node header = {.type = T_STRUCT};
	const struct node *data;
	uint64_t entries, full = 0;
	struct input body;

	parse(&c->in, &header);
	must(number(&header, 1, T_I32) == 0); /* DATA_PAGE */
	must(number(&header, 2, T_I32) == number(&header, 3, T_I32));
	body = (struct input){c->in.p, c->in.p + number(&header, 2, T_I32)};
	must(body.end <= c->in.end);
	c->in.p = body.end;
	data = field(&header, 5);
	entries = (uint64_t)number(data, 1, T_I32);
	must(entries == mfs_min_u64(c->most, c->entries));
	must(number(data, 2, T_I32) == 0); /* PLAIN */
	must(number(data, 3, T_I32) == 3); /* RLE */
	must(number(data, 4, T_I32) == 3);
	if (c->list)
		decode_levels(&body, 1, entries, repetition);
	decode_levels(&body, c->list ? 2 : 1, entries, definition);
	for (uint64_t i = 0; i < entries; i++)
		full += definition[i] == (c->list ? 3 : 1);
	must(full * c->width == (uint64_t)(body.end - body.p));
	*ret_values = body.p;
	c->entries -= entries;
	free_node(&header);
	return entries;
}

/* Rows [first, end) of the truth, token by token. */
static void check_list_chunk(struct chunk *c, const struct fake_rows *r, uint64_t first,
			     uint64_t end)
{
	uint8_t *repetition = malloc(c->most), *definition = malloc(c->most);
	const unsigned size = r->rows.token_size;
	uint64_t row = first, token = r->starts[first];

	while (c->entries) {
		const uint8_t *values;
		const uint64_t n = decode_page(c, repetition, definition, &values);

		for (uint64_t i = 0; i < n; i++) {
			if (!repetition[i]) {
				/* The row before has all of its tokens. */
				must(token == r->starts[row]);
				row++;
			}
			must(row <= end);
			if (definition[i] == 1) { /* an empty list */
				must(repetition[i] == 0);
				must(r->starts[row] == r->starts[row - 1]);
				continue;
			}
			must(definition[i] == 3);
			must(stored_at(r->rows.dtype, values) ==
			     source_at(r->rows.dtype, r->tokens + token * size));
			values += c->width;
			token++;
		}
	}
	must(row == end);
	must(token == r->starts[end]);
	free(repetition);
	free(definition);
}

static void check_value_chunk(struct chunk *c, const struct fake_rows *r, size_t column,
			      uint64_t first, uint64_t end)
{
	const enum mfs_dtype dtype = r->columns[column].dtype;
	uint8_t *definition = malloc(c->most);

	while (c->entries) {
		const uint8_t *values;
		const uint64_t n = decode_page(c, NULL, definition, &values);

		for (uint64_t i = 0; i < n; i++, first++, values += c->width) {
			must(definition[i] == 1);
			must(stored_at(dtype, values) ==
			     source_at(dtype, r->values[column] + first * mfs_dtype_size(dtype)));
		}
	}
	must(first == end);
	free(definition);
}

struct file {
	const uint8_t *bytes;
	uint64_t size, used; /* to the end of the last chunk */
};

static struct chunk open_chunk(struct file *f, const struct node *column, const char *name,
			       enum mfs_dtype dtype, bool list, uint64_t page)
{
	const struct node *meta = field(column, 3);
	const uint64_t offset = (uint64_t)number(meta, 9, T_I64);
	const uint64_t size = (uint64_t)number(meta, 7, T_I64);
	const struct node *path = field(meta, 3);

	ck_assert_uint_eq(offset % 4096, 0);
	ck_assert_uint_ge(offset, f->used);
	/* Nothing but zeros between chunks. */
	for (uint64_t i = f->used; i < offset; i++)
		must(!f->bytes[i]);
	f->used = offset + size;
	ck_assert_uint_le(f->used, f->size);
	ck_assert_int_eq(number(meta, 6, T_I64), (int64_t)size);
	ck_assert_int_eq(number(meta, 4, T_I32), 0); /* UNCOMPRESSED */
	ck_assert_int_eq(path->number, list ? 3 : 1);
	check_text(&path->children[0], name);
	return (struct chunk){.in = {f->bytes + offset, f->bytes + offset + size},
			      .entries = (uint64_t)number(meta, 5, T_I64),
			      .most = page,
			      .width = mfs_dtype_size(dtype) == 8 ? 8 : 4,
			      .list = list};
}

/* One row group that begins at row `first`; returns where it ends. */
static uint64_t check_group(struct file *f, const struct node *group, const struct fake_rows *r,
			    uint64_t first, const struct mfs_parquet_config *config)
{
	const struct node *columns = field(group, 1);
	const uint64_t rows = (uint64_t)number(group, 3, T_I64), end = first + rows;
	const uint64_t page = config->page ? config->page : MFS_PARQUET_PAGE;
	struct chunk c;

	ck_assert_uint_gt(rows, 0);
	ck_assert_uint_le(end, r->rows.rows);
	if (config->group_rows)
		ck_assert_uint_le(rows, config->group_rows);
	if (config->group && rows > 1)
		ck_assert_uint_le(r->starts[end] - r->starts[first], config->group);
	ck_assert_int_eq(columns->number, 1 + (int64_t)r->rows.column_count);
	c = open_chunk(f, &columns->children[0], "input_ids", r->rows.dtype, true, page);
	check_list_chunk(&c, r, first, end);
	ck_assert_ptr_eq(c.in.p, c.in.end);
	for (size_t i = 0; i < r->rows.column_count; i++) {
		c = open_chunk(f, &columns->children[1 + i], r->columns[i].name,
			       r->columns[i].dtype, false, page);
		ck_assert_uint_eq(c.entries, rows);
		check_value_chunk(&c, r, i, first, end);
		ck_assert_ptr_eq(c.in.p, c.in.end);
	}
	return end;
}

/* One file whose rows begin at `first`; returns where they end. */
static uint64_t check_bytes(const uint8_t *bytes, uint64_t size, const struct fake_rows *r,
			    uint64_t first, const struct mfs_parquet_config *config)
{
	struct node meta = {.type = T_STRUCT};
	const struct node *groups;
	struct file f = {bytes, size, 4};
	struct input in;
	uint64_t row = first;

	ck_assert_uint_ge(size, 12);
	ck_assert_mem_eq(bytes, "PAR1", 4);
	ck_assert_mem_eq(bytes + size - 4, "PAR1", 4);
	in = (struct input){bytes + size - 8 - mfs_le32(bytes + size - 8), bytes + size - 8};
	f.size = (uint64_t)(in.p - bytes);
	parse(&in, &meta);
	ck_assert_ptr_eq(in.p, in.end);
	check_schema(field(&meta, 2), &r->rows);
	groups = field(&meta, 4);
	for (int64_t g = 0; g < groups->number; g++)
		row = check_group(&f, &groups->children[g], r, row, config);
	ck_assert_int_eq(number(&meta, 3, T_I64), (int64_t)(row - first));
	for (uint64_t i = f.used; i < f.size; i++)
		must(!bytes[i]);
	free_node(&meta);
	return row;
}

/* All files of a view hold the rows of r, and any read of them is a part of the whole. Returns how
 * many there are. */
static uint32_t check_view_of(const struct mfs_rows *rows, const struct fake_rows *r,
			      const struct mfs_parquet_config *config)
{
	struct mfs_parquet_image *v;
	uint64_t row = 0;
	uint32_t files;

	unit_ok(mfs_parquet_image_new(rows, config, &v, &err), &err);
	files = mfs_parquet_image_files(v);
	for (uint32_t i = 0; i < files; i++) {
		struct mfs_vfile *f;
		uint8_t *bytes;

		unit_ok(mfs_parquet_image_file(v, i, &f, &err), &err);
		bytes = fake_slurp(f, &err);
		row = check_bytes(bytes, mfs_vfile_size(f), r, row, config);
		fake_check_preads(f, bytes, 60, &err);
		free(bytes);
		mfs_vfile_free(f);
	}
	ck_assert_uint_eq(row, r->rows.rows);
	mfs_parquet_image_free(v);
	return files;
}

static uint32_t check_view(const struct fake_rows *r, const struct mfs_parquet_config *config)
{
	return check_view_of(&r->rows, r, config);
}

/* ---- cases ---- */

#define ROWS 4000

static struct fake_rows *random_rows(enum mfs_dtype dtype, unsigned rows, unsigned longest,
				     unsigned empty_percent)
{
	static uint64_t lengths[600000];

	for (unsigned i = 0; i < rows; i++)
		lengths[i] =
			(unsigned)rand() % 100 < empty_percent ? 0 : 1 + (uint64_t)rand() % longest;
	return fake_rows_new(dtype, lengths, rows);
}

static const enum mfs_dtype dtypes[] = {MFS_U8,	 MFS_I8,  MFS_U16, MFS_I16, MFS_U32,
					MFS_I32, MFS_U64, MFS_I64, MFS_F32, MFS_F64};

START_TEST(each_type_reads_back)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(dtypes); i++) {
		const struct mfs_parquet_config config = {
			.group = 5000, .group_rows = 700, .page = 301, .file = 100000};
		struct fake_rows *r = random_rows(dtypes[i], ROWS, 40, i % 3 * 20);

		fake_add_column(r, "mode", MFS_I8);
		fake_add_column(r, "weight", dtypes[i]);
		ck_assert_uint_gt(check_view(r, &config), 2);
		check_view(r, &(struct mfs_parquet_config){0});
		mfs_rows_free(&r->rows);
	}
}
END_TEST

/* Pages of any size, from one entry on; lengths around them; empty rows from none to all. */
START_TEST(pages_of_any_size_read_back)
{
	static const uint64_t pages[] = {1, 2, 7, 8, 9, 64, 127, 1000, 8191, 8192, 20000};
	static const unsigned percent[] = {0, 1, 30, 97, 100};

	for (size_t p = 0; p < MFS_ARRAY_SIZE(pages); p++)
		for (size_t e = 0; e < MFS_ARRAY_SIZE(percent); e++) {
			const struct mfs_parquet_config config = {.page = pages[p], .group = 3000};
			struct fake_rows *r = random_rows(MFS_U16, p < 5 ? 300 : ROWS,
							  e % 2 ? 3 : 30, percent[e]);

			check_view(r, &config);
			mfs_rows_free(&r->rows);
		}
}
END_TEST

/* The levels that take the most room: every other row is empty; all are; none is. */
START_TEST(most_levels)
{
	static const struct mfs_parquet_config configs[] = {
		{.page = 1}, {.page = 100}, {.page = 512, .group_rows = 600}, {0}};
	enum { N = 20000 };
	static uint64_t lengths[N];

	for (unsigned step = 1; step <= 300; step = step * 3 + 1)
		for (size_t c = 0; c < MFS_ARRAY_SIZE(configs); c++) {
			struct fake_rows *r;

			for (unsigned i = 0; i < N; i++)
				lengths[i] = i % 2 ? step : 0;
			r = fake_rows_new(MFS_I32, lengths, step > 1 ? N / step : 1000);
			check_view(r, &configs[c]);
			mfs_rows_free(&r->rows);
		}
}
END_TEST

/* Pages as large as they come, runs of all lengths in them. */
START_TEST(large_pages_read_back)
{
	const struct mfs_parquet_config config = {.page = MFS_PARQUET_MAX_PAGE};
	struct fake_rows *r = random_rows(MFS_U8, 600000, 1, 50);

	fake_add_column(r, "mode", MFS_I8);
	check_view(r, &(struct mfs_parquet_config){0});
	mfs_rows_free(&r->rows);
	r = random_rows(MFS_U8, 80, 30000, 10);
	check_view(r, &config);
	check_view(r, &(struct mfs_parquet_config){0});
	mfs_rows_free(&r->rows);
}
END_TEST

/* A row longer than row groups and many pages has a row group of its own. */
START_TEST(long_row)
{
	static const uint64_t lengths[] = {0, 5, 0, 100000, 0, 0, 3, 70000, 1, 0};
	const struct mfs_parquet_config config = {.group = 50, .page = 512};
	struct fake_rows *r = fake_rows_new(MFS_U16, lengths, 10);

	check_view(r, &config);
	check_view(r, &(struct mfs_parquet_config){0});
	mfs_rows_free(&r->rows);
	r = fake_rows_new(MFS_U16, lengths + 3, 1);
	check_view(r, &config);
	mfs_rows_free(&r->rows);
}
END_TEST

START_TEST(even_rows)
{
	static const uint64_t sizes[] = {1, 64, 1000};
	static uint64_t lengths[ROWS];

	for (size_t s = 0; s < (UNIT_TSAN ? 2 : 6); s++) {
		/* Pages of few entries: what stands around them adds up. */
		const struct mfs_parquet_config config = {.group = s % 2 ? 5000 : 0,
							  .page = s % 2 ? 333 : 70};
		const uint64_t size = sizes[s / 2];
		struct fake_rows *r;

		for (unsigned i = 0; i < ROWS; i++)
			lengths[i] = size;
		r = fake_rows_new(MFS_I32, lengths, ROWS);
		r->rows.row_length = size;
		check_view(r, &config);
		mfs_rows_free(&r->rows);
	}
}
END_TEST

/* What Megatron wrote, whose .bin is mapped. */
START_TEST(megatrons_bin_is_mapped)
{
	const char *prefix = unit_fixture("data/tales_text_document");
	const struct mfs_parquet_config config = {.group = 20000, .page = 1000};
	size_t bin_len, idx_len;
	uint8_t *bin = unit_slurp(unit_fixture("data/tales_text_document.bin"), &bin_len);
	uint8_t *idx = unit_slurp(unit_fixture("data/tales_text_document.idx"), &idx_len);
	uint64_t lengths[240];
	struct mfs_indexed_dataset *d;
	struct mfs_rows *rows;
	struct fake_rows *r;

	for (unsigned i = 0; i < 240; i++)
		lengths[i] = mfs_le32(idx + 34 + 4 * i);
	r = fake_rows_new(MFS_U16, lengths, 240);
	ck_assert_uint_eq(r->rows.tokens * 2, bin_len);
	memcpy(r->tokens, bin, bin_len);
	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
	unit_ok(mfs_rows_indexed(d, &rows, &err), &err);
	check_view_of(rows, r, &config);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(d);
	mfs_rows_free(&r->rows);
	free(bin);
	free(idx);
}
END_TEST

START_TEST(no_rows)
{
	struct fake_rows *r = fake_rows_new(MFS_I32, NULL, 0);

	fake_add_column(r, "mode", MFS_I8);
	ck_assert_uint_eq(check_view(r, &(struct mfs_parquet_config){0}), 1);
	mfs_rows_free(&r->rows);
}
END_TEST

/* ---- failures ---- */

/* Each page of memory of a file: is it -EIO? The others are what they would be of rows that are all
 * good. */
static void check_memory_pages(struct mfs_vfile *f, const uint8_t *want, uint64_t *ret_failed)
{
	const uint64_t size = mfs_vfile_size(f);
	uint8_t got[4096];

	for (uint64_t off = 0; off < size; off += sizeof(got)) {
		size_t len;
		int rc = mfs_vfile_pread(f, off, got, sizeof(got), &len, &err);

		if (rc) {
			ck_assert_int_eq(rc, -EIO);
			++*ret_failed;
			continue;
		}
		ck_assert_mem_eq(got, want + off, len);
	}
}

/* Of rows that cannot be read no page of memory holds a byte of another row's: the row groups say
 * where they are. */
static void check_good_groups(struct mfs_parquet_image *v, const struct fake_rows *r)
{
	struct node meta = {.type = T_STRUCT};
	const struct node *groups;
	struct mfs_vfile *f;
	uint8_t tail[8192];
	struct input in;
	uint64_t row = 0, bad_rows = 0, size;
	size_t len;

	unit_ok(mfs_parquet_image_file(v, 0, &f, &err), &err);
	size = mfs_vfile_size(f);
	unit_ok(mfs_vfile_pread(f, size - sizeof(tail), tail, sizeof(tail), &len, &err), &err);
	in = (struct input){tail + len - 8 - mfs_le32(tail + len - 8), tail + len - 8};
	parse(&in, &meta);
	groups = field(&meta, 4);
	for (int64_t g = 0; g < groups->number; g++) {
		const struct node *group = &groups->children[g];
		const struct node *chunk = field(&field(group, 1)->children[0], 3);
		const uint64_t off = (uint64_t)number(chunk, 9, T_I64);
		const uint64_t end = off + (uint64_t)number(chunk, 7, T_I64);
		const uint64_t rows = (uint64_t)number(group, 3, T_I64);
		uint8_t *got = malloc(end - off);
		bool bad = false;
		int rc;

		for (size_t i = 0; i < r->rows.bad.count; i++)
			bad |= row >= r->rows.bad.list[i].first &&
			       row + rows <= r->rows.bad.list[i].end;
		rc = mfs_vfile_pread(f, off, got, end - off, &len, &err);
		ck_assert_int_eq(rc, bad ? -EIO : 0);
		bad_rows += bad ? rows : 0;
		row += rows;
		free(got);
	}
	ck_assert_uint_eq(bad_rows, 10 + 1 + 1);
	free_node(&meta);
	mfs_vfile_free(f);
}

START_TEST(bad_rows_fail_alone)
{
	static const struct mfs_row_range bad[] = {{0, 1}, {700, 710}, {ROWS - 1, ROWS}};
	const struct mfs_parquet_config config = {.page = 500};
	struct fake_rows *r = random_rows(MFS_I32, ROWS, 20, 5);
	struct mfs_parquet_image *v;
	struct mfs_vfile *f;
	uint64_t failed = 0;
	uint8_t *want;
	size_t len;

	fake_add_column(r, "mode", MFS_I8);
	/* What they are made of; then they can be read while the view believes that they cannot. */
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_gt(r->starts[bad[i].end], r->starts[bad[i].first]);
		ck_assert(!mfs_row_ranges_add(&r->rows.bad, bad[i].first, bad[i].end));
	}
	unit_ok(mfs_parquet_image_new(&r->rows, &config, &v, &err), &err);
	unit_ok(mfs_parquet_image_file(v, 0, &f, &err), &err);
	r->rows.bad.count = 0;
	want = fake_slurp(f, &err);
	ck_assert_uint_eq(check_bytes(want, mfs_vfile_size(f), r, 0, &config), ROWS);
	r->rows.bad.count = 3;
	check_memory_pages(f, want, &failed);
	ck_assert_uint_eq(failed, 3);
	unit_fails(mfs_vfile_pread(f, 0, want, mfs_vfile_size(f), &len, &err), &err, -EIO, NULL);
	/* What readers take with the footer at once: the row before it is a bad one. */
	unit_ok(mfs_vfile_pread(f, mfs_vfile_size(f) - (512u << 10), want, 512u << 10, &len, &err),
		&err);
	check_good_groups(v, r);
	mfs_vfile_free(f);
	mfs_parquet_image_free(v);
	free(want);
	mfs_rows_free(&r->rows);
}
END_TEST

START_TEST(types_without_a_parquet_form_are_refused)
{
	struct fake_rows *r = random_rows(MFS_BF16, 3, 3, 0);
	struct mfs_parquet_image *v;

	unit_fails(mfs_parquet_image_new(&r->rows, &(struct mfs_parquet_config){0}, &v, &err), &err,
		   -ENOTSUP, "bfloat16");
	r->rows.dtype = MFS_U16;
	fake_add_column(r, "gate", MFS_BOOL);
	unit_fails(mfs_parquet_image_new(&r->rows, &(struct mfs_parquet_config){0}, &v, &err), &err,
		   -ENOTSUP, "gate");
	unit_fails(mfs_parquet_image_new(&r->rows, &(struct mfs_parquet_config){.page = 1u << 20},
					 &v, &err),
		   &err, -EINVAL, "pages");
	r->rows.rows = 1ull << 60;
	unit_fails(mfs_parquet_image_new(&r->rows, &(struct mfs_parquet_config){0}, &v, &err), &err,
		   -EINVAL, "too many");
	r->rows.rows = 3;
	mfs_rows_free(&r->rows);
}
END_TEST

/* Starts that are no longer what they were: an error or some bytes, never a byte outside. */
START_TEST(starts_that_moved_read_no_byte_outside)
{
	static uint64_t kept[ROWS + 1];
	const struct mfs_parquet_config config = {.group = 9000, .page = 300};
	unsigned failed = 0;

	for (unsigned i = 0; i < 150; i++) {
		struct fake_rows *r = random_rows(MFS_U16, ROWS, 20, i % 2 * 10);
		struct mfs_parquet_image *v;
		struct mfs_vfile *f;
		uint8_t *got;
		size_t len;
		int rc;

		memcpy(kept, r->starts, sizeof(kept));
		unit_ok(mfs_parquet_image_new(&r->rows, &config, &v, &err), &err);
		unit_ok(mfs_parquet_image_file(v, 0, &f, &err), &err);
		got = malloc(mfs_vfile_size(f));
		/* Some of what is read is computed, and kept, while it is still right. */
		if (i % 3)
			unit_ok(mfs_vfile_pread(f, i % 3 == 1 ? 0 : mfs_vfile_size(f) - 8, got,
						8192, &len, &err),
				&err);
		for (unsigned k = 0; k < 1 + i % 20; k++)
			r->starts[(unsigned)rand() % (ROWS + 1)] =
				i % 2 ? (uint64_t)rand() % (r->rows.tokens + 1)
				      : (uint64_t)rand() << 40;
		rc = mfs_vfile_pread(f, 0, got, mfs_vfile_size(f), &len, &err);
		ck_assert(!rc || rc == -EIO || rc == -EINVAL);
		failed += rc != 0;
		free(got);
		mfs_vfile_free(f);
		mfs_parquet_image_free(v);
		mfs_rows_free(&r->rows);
	}
	ck_assert_uint_gt(failed, 100);
}
END_TEST

/* ---- threads ---- */

struct reader {
	struct mfs_vfile *f;
	const uint8_t *want;
};

/* From its end, as readers do: the first reader counts the footer and row groups. */
static void *read_backwards(void *arg)
{
	const struct reader *r = arg;
	const uint64_t size = mfs_vfile_size(r->f);
	uint8_t got[8192];
	struct mfs_error e;

	for (uint64_t end = size; end;) {
		const uint64_t n = end < sizeof(got) ? end : sizeof(got);
		size_t len;

		end -= n;
		if (mfs_vfile_pread(r->f, end, got, n, &len, &e) || memcmp(got, r->want + end, n))
			return (void *)"differs";
	}
	return NULL;
}

START_TEST(threads_read_the_same_bytes)
{
	const struct mfs_parquet_config config = {.group = 9000, .page = 300};
	struct fake_rows *r = random_rows(MFS_U16, ROWS, 40, 5);
	struct mfs_parquet_image *v[2];
	struct mfs_vfile *f[2];
	struct reader reader;
	uint8_t *want;
	pthread_t threads[4];
	void *result;

	for (unsigned i = 0; i < 2; i++) {
		unit_ok(mfs_parquet_image_new(&r->rows, &config, &v[i], &err), &err);
		unit_ok(mfs_parquet_image_file(v[i], 0, &f[i], &err), &err);
	}
	want = fake_slurp(f[0], &err);
	reader = (struct reader){f[1], want};
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_backwards, &reader), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		ck_assert_ptr_null(result);
	}
	for (unsigned i = 0; i < 2; i++) {
		mfs_vfile_free(f[i]);
		mfs_parquet_image_free(v[i]);
	}
	free(want);
	mfs_rows_free(&r->rows);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("parquet_view");
	TCase *c = unit_case(s, "layout", each_type_reads_back);

	tcase_add_test(c, pages_of_any_size_read_back);
	tcase_add_test(c, most_levels);
	tcase_add_test(c, large_pages_read_back);
	tcase_add_test(c, long_row);
	tcase_add_test(c, even_rows);
	tcase_add_test(c, megatrons_bin_is_mapped);
	tcase_add_test(c, no_rows);
	c = unit_case(s, "failures", bad_rows_fail_alone);
	tcase_add_test(c, types_without_a_parquet_form_are_refused);
	tcase_add_test(c, starts_that_moved_read_no_byte_outside);
	unit_case(s, "threads", threads_read_the_same_bytes);
	return s;
}
