/*
 * Rows as Arrow files: formats/dataset/files/arrow_image.h, formats/arrow/arrow_write.h. The
 * decoder below follows Message.fbs and Schema.fbs and knows nothing of the writer.
 */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/files/arrow_image.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/io/fileset.h"
#include "tests/unit/fake_idx.h"

static struct mfs_error err;

/* ---- flatbuffers ---- */

/* Where field `slot` of a table lies; NULL if it is left out. */
static const uint8_t *field_of(const uint8_t *table, unsigned slot)
{
	const uint8_t *vtable = table - (int32_t)mfs_le32(table);
	uint16_t at;

	if (4u + 2 * slot >= mfs_le16(vtable))
		return NULL;
	at = mfs_le16(vtable + 4 + 2 * slot);
	ck_assert_uint_lt(at, mfs_le16(vtable + 2));
	return at ? table + at : NULL;
}

static const uint8_t *target_of(const uint8_t *offset)
{
	ck_assert_ptr_nonnull(offset);
	return offset + mfs_le32(offset);
}

/* Numbers must lie at multiples of their size. */
static uint64_t number(const uint8_t *base, const uint8_t *p, unsigned size)
{
	if (!p)
		return 0;
	ck_assert_uint_eq((uint64_t)(p - base) % size, 0);
	return size == 1 ? *p : size == 2 ? mfs_le16(p) : size == 4 ? mfs_le32(p) : mfs_le64(p);
}

/* ---- messages ---- */

enum { SCHEMA = 1, BATCH = 3 };

struct message {
	const uint8_t *base, *header, *body;
	uint64_t body_len;
};

/* The message at p, whose metadata and body must be padded; false at the end of the stream. */
static bool next_message(const uint8_t **p, unsigned want, struct message *ret)
{
	const uint64_t len = mfs_le32(*p + 4);
	const uint8_t *m;

	ck_assert_uint_eq(mfs_le32(*p), 0xffffffff);
	if (!len) {
		*p += 8;
		return false;
	}
	ck_assert_uint_eq((len + 8) % MFS_ARROW_ALIGN, 0);
	ret->base = *p + 8;
	m = target_of(ret->base);
	ck_assert_uint_eq(number(ret->base, field_of(m, 0), 2), 4); /* V5 */
	ck_assert_uint_eq(number(ret->base, field_of(m, 1), 1), want);
	ret->header = target_of(field_of(m, 2));
	ret->body_len = number(ret->base, field_of(m, 3), 8);
	ck_assert_uint_eq(ret->body_len % MFS_ARROW_ALIGN, 0);
	ret->body = ret->base + len;
	*p = ret->body + ret->body_len;
	return true;
}

static const uint8_t *vector_of(const uint8_t *base, const uint8_t *table, unsigned slot,
				uint64_t *ret_count)
{
	const uint8_t *v = target_of(field_of(table, slot));

	*ret_count = number(base, v, 4);
	return v + 4;
}

static void check_name(const uint8_t *base, const uint8_t *field, const char *name)
{
	const uint8_t *s = target_of(field_of(field, 0));

	ck_assert_uint_eq(number(base, s, 4), strlen(name));
	ck_assert_str_eq((const char *)s + 4, name);
}

/* Type numbers of Schema.fbs. */
static void check_number_type(const uint8_t *base, const uint8_t *field, enum mfs_dtype dtype)
{
	const uint8_t *type = target_of(field_of(field, 3));
	const bool real = dtype == MFS_F16 || dtype == MFS_F32 || dtype == MFS_F64;
	uint64_t children;

	ck_assert_uint_eq(number(base, field_of(field, 1), 1), 1); /* nullable */
	ck_assert_uint_eq(number(base, field_of(field, 2), 1), real ? 3 : 2);
	if (real) {
		ck_assert_uint_eq(number(base, field_of(type, 0), 2), mfs_dtype_size(dtype) / 4);
	} else {
		const bool is_signed =
			dtype == MFS_I8 || dtype == MFS_I16 || dtype == MFS_I32 || dtype == MFS_I64;

		ck_assert_uint_eq(number(base, field_of(type, 0), 4), mfs_dtype_size(dtype) * 8);
		ck_assert_uint_eq(number(base, field_of(type, 1), 1), is_signed);
	}
	vector_of(base, field, 5, &children);
	ck_assert_uint_eq(children, 0);
}

static void check_field(const uint8_t *base, const uint8_t *f, const struct mfs_arrow_field *want)
{
	const uint8_t *children, *type = target_of(field_of(f, 3));
	uint64_t count;

	check_name(base, f, want->name);
	if (want->kind == MFS_ARROW_NUMBER) {
		check_number_type(base, f, want->dtype);
		return;
	}
	ck_assert_uint_eq(number(base, field_of(f, 1), 1), 1);
	ck_assert_uint_eq(number(base, field_of(f, 2), 1), want->kind == MFS_ARROW_LIST ? 12 : 16);
	if (want->kind == MFS_ARROW_FIXED_LIST)
		ck_assert_uint_eq(number(base, field_of(type, 0), 4), (uint64_t)want->length);
	children = vector_of(base, f, 5, &count);
	ck_assert_uint_eq(count, 1);
	check_name(base, target_of(children), "item");
	check_number_type(base, target_of(children), want->dtype);
}

static void check_schema(const uint8_t **p, const struct mfs_arrow_field *fields, size_t count)
{
	const uint8_t *list;
	struct message m;
	uint64_t n;

	ck_assert(next_message(p, SCHEMA, &m));
	ck_assert_uint_eq(m.body_len, 0);
	ck_assert_uint_eq(number(m.base, field_of(m.header, 0), 2), 0); /* little-endian */
	list = vector_of(m.base, m.header, 1, &n);
	ck_assert_uint_eq(n, count);
	for (size_t i = 0; i < count; i++)
		check_field(m.base, target_of(list + 4 * i), &fields[i]);
}

/* A batch's buffers, one after the other. */
struct buffers {
	const struct message *m;
	const uint8_t *list;
	uint64_t count, next;
};

static const uint8_t *next_buffer(struct buffers *b, uint64_t want_len)
{
	const uint8_t *p = b->list + 16 * b->next;
	uint64_t at = mfs_le64(p), len = mfs_le64(p + 8);

	ck_assert_uint_lt(b->next, b->count);
	b->next++;
	ck_assert_uint_eq(len, want_len);
	ck_assert_uint_eq(at % MFS_ARROW_ALIGN, 0);
	ck_assert(mfs_range_ok(at, len, b->m->body_len));
	return b->m->body + at;
}

static void check_node(const uint8_t **node, uint64_t length)
{
	ck_assert_uint_eq(mfs_le64(*node), length);
	ck_assert_uint_eq(mfs_le64(*node + 8), 0);
	*node += 16;
}

/* ---- rows whose values are formulas ---- */

struct fake_rows {
	struct mfs_rows rows;
	uint64_t *starts; /* NULL: row i begins at stretch * i */
	uint64_t stretch;
	uint64_t probes;
	uint64_t lie; /* starts(lie) is more than it should be */
};

static uint64_t fake_token(uint64_t t)
{
	return t * 2654435761u >> 7;
}

static uint64_t fake_start(const struct fake_rows *f, uint64_t i)
{
	return f->starts ? f->starts[i] : i * f->stretch;
}

static int fake_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		       struct mfs_error *e)
{
	struct fake_rows *f = (struct fake_rows *)r;

	(void)e;
	f->probes++;
	for (uint64_t i = 0; i < count; i++) {
		ret[i] = fake_start(f, first + i);
		if (f->lie && first + i == f->lie)
			ret[i] = r->tokens;
	}
	return 0;
}

static bool is_bad(const struct mfs_rows *r, uint64_t row)
{
	for (size_t i = 0; i < r->bad.count; i++)
		if (row >= r->bad.list[i].first && row < r->bad.list[i].end)
			return true;
	return false;
}

static int fake_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		     struct mfs_error *e)
{
	const struct fake_rows *f = (const struct fake_rows *)r;
	uint8_t *to = ret;
	uint64_t row = 0;

	for (uint64_t i = 0; i < count; i++) {
		const uint64_t token = fake_token(first + i);

		while (r->bad.count && fake_start(f, row + 1) <= first + i)
			row++;
		if (r->bad.count && is_bad(r, row))
			return mfs_fail(e, -EIO, "row %llu is bad", (unsigned long long)row);
		memcpy(to + i * r->token_size, &token, r->token_size);
	}
	return 0;
}

static int fake_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
		       void *ret, struct mfs_error *e)
{
	const unsigned size = mfs_dtype_size(r->columns[column].dtype);

	(void)e;
	for (uint64_t i = 0; i < count; i++) {
		const uint64_t value = fake_token(first + i) + column;

		memcpy((uint8_t *)ret + i * size, &value, size);
	}
	return 0;
}

static void fake_free(struct mfs_rows *r)
{
	free(((struct fake_rows *)r)->starts);
}

static const struct mfs_rows_ops fake_ops = {
	.starts = fake_starts, .read = fake_read, .column = fake_column, .free = fake_free};

static const struct mfs_rows_column fake_columns[] = {{"mode", MFS_I8}, {"dataset_id", MFS_I16}};

static void random_rows(struct fake_rows *f)
{
	static const enum mfs_dtype dtypes[] = {MFS_U8,	 MFS_U16, MFS_I32,
						MFS_I64, MFS_F32, MFS_F64};

	*f = (struct fake_rows){.rows = {.ops = &fake_ops,
					 .name = "fake",
					 .dtype = dtypes[rand() % 6],
					 .rows = (uint64_t)rand() % 3000,
					 .columns = fake_columns,
					 .column_count = (size_t)rand() % 3}};
	f->rows.token_size = mfs_dtype_size(f->rows.dtype);
	f->starts = calloc(f->rows.rows + 1, sizeof(*f->starts));
	for (uint64_t i = 0; i < f->rows.rows; i++)
		f->starts[i + 1] = f->starts[i] + (uint64_t)(rand() % 3	    ? rand() % 30
							     : rand() % 100 ? 0
									    : rand() % 5000);
	f->rows.tokens = f->starts[f->rows.rows];
}

/* ---- files ---- */

static uint8_t *slurp(struct mfs_vfile *f)
{
	const size_t size = mfs_vfile_size(f);
	uint8_t *bytes = malloc(size + 1);
	size_t got;

	unit_ok(mfs_vfile_pread(f, 0, bytes, size, &got, &err), &err);
	ck_assert_uint_eq(got, size);
	return bytes;
}

static void check_random_reads(struct mfs_vfile *f, const uint8_t *bytes)
{
	const size_t size = mfs_vfile_size(f);
	uint8_t *part = malloc(size + 1);

	for (unsigned k = 0; k < 30; k++) {
		const size_t off = (size_t)rand() % size;
		const size_t len = (size_t)rand() % (rand() % 4 ? 300 : size - off + 1);
		size_t got;

		unit_ok(mfs_vfile_pread(f, off, part, len, &got, &err), &err);
		ck_assert_uint_eq(got, len < size - off ? len : size - off);
		ck_assert_mem_eq(part, bytes + off, got);
	}
	free(part);
}

static void fields_of(const struct mfs_rows *r, struct mfs_arrow_field *fields)
{
	fields[0] = (struct mfs_arrow_field){.name = "input_ids",
					     .kind = r->row_length ? MFS_ARROW_FIXED_LIST
								   : MFS_ARROW_LIST,
					     .dtype = r->dtype,
					     .length = (int32_t)r->row_length};
	for (size_t i = 0; i < r->column_count; i++)
		fields[1 + i] = (struct mfs_arrow_field){.name = r->columns[i].name,
							 .dtype = r->columns[i].dtype};
}

/* The values of a batch, as the rows themselves give them. */
static void check_values(const struct mfs_rows *r, struct buffers *b, uint64_t row, uint64_t rows)
{
	const struct fake_rows *f = (const struct fake_rows *)r;
	const uint64_t token = fake_start(f, row), tokens = fake_start(f, row + rows) - token;
	const uint8_t *values;

	next_buffer(b, 0);
	values = next_buffer(b, tokens * r->token_size);
	for (uint64_t i = 0; i < tokens; i++) {
		const uint64_t want = fake_token(token + i);

		ck_assert_mem_eq(values + i * r->token_size, &want, r->token_size);
	}
	for (size_t c = 0; c < r->column_count; c++) {
		const unsigned size = mfs_dtype_size(r->columns[c].dtype);

		next_buffer(b, 0);
		values = next_buffer(b, rows * size);
		for (uint64_t i = 0; i < rows; i++) {
			const uint64_t want = fake_token(row + i) + c;

			ck_assert_mem_eq(values + i * size, &want, size);
		}
	}
}

static uint64_t largest; /* bytes of tokens in a batch of several rows, of those checked */

/* Checks a batch that begins at row *row, and moves *row past it. */
static void check_batch(const struct mfs_rows *r, const struct message *m, uint64_t *row)
{
	const struct fake_rows *f = (const struct fake_rows *)r;
	const uint64_t rows = number(m->base, field_of(m->header, 0), 8);
	const uint64_t token = fake_start(f, *row);
	struct buffers b = {.m = m};
	const uint8_t *node;
	uint64_t nodes;

	ck_assert(rows && *row + rows <= r->rows);
	node = vector_of(m->base, m->header, 1, &nodes);
	ck_assert_uint_eq((uint64_t)(node - m->base) % 8, 0);
	ck_assert_uint_eq(nodes, 2 + r->column_count);
	check_node(&node, rows);
	check_node(&node, fake_start(f, *row + rows) - token);
	for (size_t c = 0; c < r->column_count; c++)
		check_node(&node, rows);
	b.list = vector_of(m->base, m->header, 2, &b.count);
	ck_assert_uint_eq((uint64_t)(b.list - m->base) % 8, 0);
	next_buffer(&b, 0);
	if (!r->row_length) {
		const uint8_t *offsets = next_buffer(&b, 4 * (rows + 1));

		for (uint64_t i = 0; i <= rows; i++)
			ck_assert_uint_eq(mfs_le32(offsets + 4 * i),
					  fake_start(f, *row + i) - token);
	}
	check_values(r, &b, *row, rows);
	ck_assert_uint_eq(b.next, b.count);
	if (rows > 1 && fake_start(f, *row + rows) - token > largest / r->token_size)
		largest = (fake_start(f, *row + rows) - token) * r->token_size;
	*row += rows;
}

static void check_file(const struct mfs_rows *r, const uint8_t *bytes, size_t size, uint64_t *row,
		       uint32_t *batches)
{
	struct mfs_arrow_field fields[4];
	const uint8_t *p = bytes;
	struct message m;

	fields_of(r, fields);
	check_schema(&p, fields, 1 + r->column_count);
	while (next_message(&p, BATCH, &m)) {
		check_batch(r, &m, row);
		++*batches;
	}
	ck_assert_ptr_eq(p, bytes + size);
}

static struct mfs_arrow_image *open_view(const struct mfs_rows *r, uint64_t batch, uint64_t file)
{
	const struct mfs_arrow_config config = {.batch = batch, .file = file};
	struct mfs_arrow_image *v;

	unit_ok(mfs_arrow_image_new(r, &config, &v, &err), &err);
	return v;
}

/* All files of rows that can be read. */
static void check_view(const struct mfs_rows *r, struct mfs_arrow_image *v)
{
	uint32_t batches = 0;
	uint64_t row = 0;

	for (uint32_t i = 0; i < mfs_arrow_image_files(v); i++) {
		struct mfs_vfile *f;
		uint8_t *bytes;

		unit_ok(mfs_arrow_image_file(v, i, &f, &err), &err);
		bytes = slurp(f);
		check_file(r, bytes, mfs_vfile_size(f), &row, &batches);
		check_random_reads(f, bytes);
		unit_ok(mfs_vfile_check(f, NULL, &err), &err);
		free(bytes);
		mfs_vfile_free(f);
	}
	ck_assert_uint_eq(row, r->rows);
	ck_assert_uint_eq(batches, mfs_arrow_image_batches(v));
}

START_TEST(random_rows_read_back)
{
	for (unsigned k = 0; k < 60; k++) {
		struct fake_rows f;
		struct mfs_arrow_image *v;

		random_rows(&f);
		v = open_view(&f.rows, 1 + (uint64_t)rand() % 60000, (uint64_t)rand() % 300000);
		check_view(&f.rows, v);
		mfs_arrow_image_free(v);
		v = open_view(&f.rows, 0, 0);
		ck_assert_uint_eq(mfs_arrow_image_files(v), 1);
		ck_assert_uint_eq(mfs_arrow_image_batches(v), f.rows.rows > 0);
		mfs_arrow_image_free(v);
		mfs_rows_free(&f.rows);
	}
}
END_TEST

START_TEST(fixed_length)
{
	for (unsigned k = 0; k < 20; k++) {
		struct fake_rows f;
		struct mfs_arrow_image *v;

		random_rows(&f);
		mfs_rows_free(&f.rows);
		f.starts = NULL;
		f.stretch = f.rows.row_length = 1 + (uint64_t)rand() % 100;
		f.rows.tokens = f.rows.rows * f.stretch;
		v = open_view(&f.rows, 1 + (uint64_t)rand() % 60000, 0);
		check_view(&f.rows, v);
		mfs_arrow_image_free(v);
	}
}
END_TEST

/* The type of a column without rows is the same as with some. */
START_TEST(no_rows)
{
	for (unsigned fixed = 0; fixed < 2; fixed++) {
		struct fake_rows f;
		struct mfs_arrow_image *v;
		struct mfs_vfile *file;

		random_rows(&f);
		f.rows.rows = f.rows.tokens = 0;
		f.rows.row_length = fixed * 7;
		v = open_view(&f.rows, 0, 0);
		check_view(&f.rows, v);
		unit_ok(mfs_arrow_image_file(v, 0, &file, &err), &err);
		ck_assert_uint_eq(mfs_vfile_size(file), MFS_ARROW_ALIGN + MFS_ARROW_EOS);
		mfs_vfile_free(file);
		mfs_arrow_image_free(v);
		mfs_rows_free(&f.rows);
	}
}
END_TEST

/* Each type that a column can have. */
START_TEST(each_type_that_can_be_shown_has_a_schema)
{
	static const enum mfs_dtype dtypes[] = {MFS_U8,	 MFS_I8,  MFS_U16, MFS_I16,
						MFS_U32, MFS_I32, MFS_U64, MFS_I64,
						MFS_F16, MFS_F32, MFS_F64};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(dtypes); i++) {
		const struct mfs_arrow_field fields[] = {
			{"input_ids", MFS_ARROW_LIST, dtypes[i], 0},
			{"x", MFS_ARROW_NUMBER, dtypes[i], 0},
			{"fixed", MFS_ARROW_FIXED_LIST, dtypes[i], 4097}};
		struct mfs_buf b = {0};
		const uint8_t *p;

		ck_assert(mfs_arrow_can(dtypes[i]));
		mfs_arrow_add_schema(&b, fields, 3);
		p = (const uint8_t *)b.data;
		check_schema(&p, fields, 3);
		ck_assert_ptr_eq(p, (uint8_t *)b.data + mfs_arrow_padded(b.len));
		mfs_buf_release(&b);
	}
	ck_assert(!mfs_arrow_can(MFS_BF16));
	ck_assert(!mfs_arrow_can(MFS_BOOL));
}
END_TEST

/* Every page of a file but those with values of rows that cannot be read can be read. */
static void check_bad_pages(struct mfs_arrow_image *v, const struct mfs_rows *r, uint64_t want)
{
	uint64_t failed = 0;

	for (uint32_t i = 0; i < mfs_arrow_image_files(v); i++) {
		struct mfs_vfile *f;
		uint8_t page[MFS_ARROW_ALIGN];
		size_t got;

		unit_ok(mfs_arrow_image_file(v, i, &f, &err), &err);
		for (uint64_t at = 0; at < mfs_vfile_size(f); at += sizeof(page)) {
			int rc = mfs_vfile_pread(f, at, page, sizeof(page), &got, &err);

			failed += rc == -EIO;
			ck_assert_msg(!rc || rc == -EIO, "%s", err.msg);
		}
		mfs_vfile_free(f);
	}
	ck_assert_msg(failed == want, "%llu pages of %llu rows", (unsigned long long)failed,
		      (unsigned long long)r->rows);
}

START_TEST(bad_rows)
{
	for (unsigned k = 0; k < 10; k++) {
		struct fake_rows f;
		struct mfs_arrow_image *v;
		struct mfs_row_range bad[2] = {{0, 10}, {1000, 1001}};
		uint64_t pages = 0;

		do {
			random_rows(&f);
		} while (f.rows.rows < 2000 && (mfs_rows_free(&f.rows), 1));
		if (k % 2)
			bad[0] = (struct mfs_row_range){f.rows.rows - 1, f.rows.rows};
		for (unsigned i = 0; i < 2; i++) {
			ck_assert(!mfs_row_ranges_add(&f.rows.bad, bad[i].first, bad[i].end));
		}
		for (unsigned i = 0; i < 2; i++) {
			const uint64_t tokens = f.starts[bad[i].end] - f.starts[bad[i].first];

			pages += mfs_arrow_padded(tokens * f.rows.token_size) / MFS_ARROW_ALIGN;
		}
		v = open_view(&f.rows, 1 << 20, 0);
		check_bad_pages(v, &f.rows, pages);
		mfs_arrow_image_free(v);
		mfs_rows_free(&f.rows);
	}
}
END_TEST

/* 1e9 rows: a few starts for each batch, and none for a file. */
START_TEST(many_rows)
{
	struct fake_rows f = {.rows = {.ops = &fake_ops,
				       .name = "many",
				       .dtype = MFS_I32,
				       .token_size = 4,
				       .rows = 1000000000,
				       .tokens = 1000000000000},
			      .stretch = 1000};
	struct mfs_arrow_image *v = open_view(&f.rows, 0, 0);
	struct mfs_vfile *file;
	uint8_t bytes[65536];
	size_t got;

	ck_assert_uint_le(mfs_arrow_image_batches(v), 4100);
	ck_assert_uint_ge(mfs_arrow_image_files(v), 64);
	ck_assert_uint_le(f.probes, 3 * mfs_arrow_image_batches(v));
	unit_ok(mfs_arrow_image_file(v, mfs_arrow_image_files(v) - 1, &file, &err), &err);
	unit_ok(mfs_vfile_pread(file, mfs_vfile_size(file) - 65536, bytes, sizeof(bytes), &got,
				&err),
		&err);
	ck_assert_uint_eq(mfs_le32(bytes + sizeof(bytes) - 8), 0xffffffff);
	mfs_vfile_free(file);
	mfs_arrow_image_free(v);
}
END_TEST

/* Where rows are much longer, or shorter, than those before. */
START_TEST(uneven_rows)
{
	for (unsigned k = 0; k < 2; k++) {
		struct fake_rows f;
		struct mfs_arrow_image *v;

		do {
			random_rows(&f);
		} while (f.rows.rows < 1000 && (mfs_rows_free(&f.rows), 1));
		for (uint64_t i = 0; i < f.rows.rows; i++)
			f.starts[i + 1] =
				f.starts[i] + (i > 600 * k && i < 600 + 600 * k ? 2 : 300);
		f.rows.tokens = f.starts[f.rows.rows];
		v = open_view(&f.rows, 20000 * f.rows.token_size, 0);
		largest = 0;
		check_view(&f.rows, v);
		ck_assert_uint_le(largest, 30000 * f.rows.token_size);
		ck_assert_uint_le(mfs_arrow_image_batches(v), 1 + f.rows.tokens / 10000);
		mfs_arrow_image_free(v);
		mfs_rows_free(&f.rows);
	}
}
END_TEST

/* Rows without a token are cut by their number. */
START_TEST(many_empty_rows)
{
	struct fake_rows f = {.rows = {.ops = &fake_ops,
				       .name = "empty",
				       .dtype = MFS_I32,
				       .token_size = 4,
				       .rows = 1000000000}};
	struct mfs_arrow_image *v = open_view(&f.rows, 0, 0);

	ck_assert_uint_eq(mfs_arrow_image_batches(v), 15);
	mfs_arrow_image_free(v);
}
END_TEST

/* A row larger than a batch is one by itself; one larger than a list can be is refused. */
START_TEST(large_rows)
{
	static const uint64_t starts[] = {0, 10, 20, 100020, 100030, 100040};
	struct fake_rows f = {.rows = {.ops = &fake_ops,
				       .name = "large",
				       .dtype = MFS_U16,
				       .token_size = 2,
				       .rows = 5,
				       .tokens = 100040},
			      .starts = (uint64_t *)starts};
	struct mfs_arrow_image *v = open_view(&f.rows, 2000, 0);
	uint64_t huge[] = {0, 10, 10 + ((uint64_t)1 << 31), 20 + ((uint64_t)1 << 31)};

	ck_assert_uint_eq(mfs_arrow_image_batches(v), 3);
	check_view(&f.rows, v);
	mfs_arrow_image_free(v);
	f.starts = huge;
	f.rows.rows = 3;
	f.rows.tokens = huge[3];
	unit_fails(mfs_arrow_image_new(&f.rows, &(struct mfs_arrow_config){0}, &v, &err), &err,
		   -ENOTSUP, "row 1 ");
	huge[2]--;
	huge[3]--;
	f.rows.tokens--;
	v = open_view(&f.rows, 0, 0);
	ck_assert_uint_eq(mfs_arrow_image_batches(v), 3);
	mfs_arrow_image_free(v);
	f.rows.dtype = MFS_BF16;
	unit_fails(mfs_arrow_image_new(&f.rows, &(struct mfs_arrow_config){0}, &v, &err), &err,
		   -ENOTSUP, "bfloat16");
	f.rows.dtype = MFS_U16;
	f.rows.row_length = (uint64_t)1 << 31;
	unit_fails(mfs_arrow_image_new(&f.rows, &(struct mfs_arrow_config){0}, &v, &err), &err,
		   -ENOTSUP, "2147483648");
}
END_TEST

/* No offset that a reader could follow out of its batch is ever shown. */
START_TEST(changed_starts)
{
	struct fake_rows f;
	struct mfs_arrow_image *v;
	struct mfs_vfile *file;
	uint8_t bytes[64];
	size_t got;

	do {
		random_rows(&f);
	} while (f.rows.rows < 1000 && (mfs_rows_free(&f.rows), 1));
	v = open_view(&f.rows, 4000, 1 << 30);
	unit_ok(mfs_arrow_image_file(v, 0, &file, &err), &err);
	f.lie = 3;
	unit_fails(mfs_vfile_pread(file, 2 * MFS_ARROW_ALIGN, bytes, sizeof(bytes), &got, &err),
		   &err, -EIO, "row 3 ");
	unit_ok(mfs_vfile_pread(file, 2 * MFS_ARROW_ALIGN, bytes, 12, &got, &err), &err);
	mfs_vfile_free(file);
	mfs_arrow_image_free(v);
	mfs_rows_free(&f.rows);
}
END_TEST

/* ---- of real files ---- */

#define ROWS 2000

static int32_t real_lengths[ROWS];

/* PREFIX.idx and .bin whose token t is fake_token(t); returns its tokens. */
static uint64_t write_real(const char *dir, unsigned code)
{
	struct fake_idx f = {.sequences = ROWS, .code = (uint8_t)code, .lengths = real_lengths};
	const unsigned size = mfs_dtype_size(mfs_idx_dtype((uint8_t)code));
	struct mfs_buf idx = {0}, bin = {0};
	uint64_t tokens;

	for (unsigned i = 0; i < ROWS; i++)
		real_lengths[i] = rand() % 3 ? rand() % 200 : 0;
	tokens = fake_idx(&idx, &f) / size;
	for (uint64_t t = 0; t < tokens; t++) {
		const uint64_t token = fake_token(t);

		mfs_buf_add(&bin, &token, size);
	}
	unit_write(dir, "real.idx", idx.data, idx.len);
	unit_write(dir, "real.bin", bin.data, bin.len);
	mfs_buf_release(&idx);
	mfs_buf_release(&bin);
	return tokens;
}

struct real {
	struct mfs_indexed_dataset *d;
	struct mfs_rows *rows;
	struct fake_rows truth; /* of the same rows */
};

static void open_real(struct real *x, unsigned code)
{
	const uint64_t tokens = write_real(unit_tmpdir(), code);
	char path[512];
	const char *prefix = path;

	snprintf(path, sizeof(path), "%s/real", unit_tmpdir());
	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &x->d, &err), &err);
	unit_ok(mfs_rows_indexed(x->d, &x->rows, &err), &err);
	x->truth = (struct fake_rows){.rows = *x->rows};
	x->truth.rows.ops = &fake_ops;
	x->truth.starts = calloc(ROWS + 1, sizeof(uint64_t));
	for (unsigned i = 0; i < ROWS; i++)
		x->truth.starts[i + 1] = x->truth.starts[i] + (uint64_t)real_lengths[i];
	ck_assert_uint_eq(x->rows->tokens, tokens);
}

static void close_real(struct real *x)
{
	mfs_rows_free(&x->truth.rows);
	mfs_rows_free(x->rows);
	mfs_indexed_dataset_free(x->d);
}

START_TEST(passed_through)
{
	struct mfs_arrow_image *v;
	struct real x;

	for (unsigned code = 4; code <= 8; code += 4) {
		open_real(&x, code);
		v = open_view(x.rows, 20000, 100000);
		ck_assert_uint_gt(mfs_arrow_image_files(v), 2);
		check_view(&x.truth.rows, v);
		mfs_arrow_image_free(v);
		close_real(&x);
	}
}
END_TEST

/* What does not change the bytes: tokens looked at, and rows of a part. */
START_TEST(rows_that_are_checked_or_sliced_have_the_same_bytes)
{
	struct mfs_rows *slice;
	struct mfs_arrow_image *v;
	struct real x;

	open_real(&x, 8);
	unit_ok(mfs_rows_set_vocab(x.rows, 65536, &err), &err);
	v = open_view(x.rows, 20000, 0);
	check_view(&x.truth.rows, v);
	mfs_arrow_image_free(v);
	unit_ok(mfs_rows_slice(x.rows, 0, ROWS, &slice, &err), &err);
	v = open_view(slice, 20000, 0);
	check_view(&x.truth.rows, v);
	mfs_arrow_image_free(v);
	mfs_rows_free(slice);
	close_real(&x);
}
END_TEST

/* ---- threads ---- */

struct reader {
	struct mfs_vfile *file;
	const uint8_t *want;
	unsigned seed;
	bool wrong;
};

static void *read_at_random(void *arg)
{
	struct reader *r = arg;
	const size_t size = mfs_vfile_size(r->file);
	uint8_t part[5000];
	struct mfs_error e;

	for (unsigned k = 0; k < 200; k++) {
		const size_t off = (size_t)rand_r(&r->seed) % size;
		size_t got = 0;

		if (mfs_vfile_pread(r->file, off, part, sizeof(part), &got, &e) ||
		    memcmp(part, r->want + off, got))
			r->wrong = true;
	}
	return NULL;
}

START_TEST(threads_read_the_same_bytes)
{
	struct mfs_arrow_image *v;
	struct mfs_vfile *once, *shared;
	struct reader readers[4];
	pthread_t threads[4];
	struct real x;
	uint8_t *want;

	open_real(&x, 8);
	v = open_view(x.rows, 20000, 0);
	unit_ok(mfs_arrow_image_file(v, 0, &once, &err), &err);
	unit_ok(mfs_arrow_image_file(v, 0, &shared, &err), &err);
	want = slurp(once);
	for (unsigned i = 0; i < 4; i++) {
		readers[i] = (struct reader){shared, want, i, false};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_at_random, &readers[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		ck_assert(!readers[i].wrong);
	}
	free(want);
	mfs_vfile_free(once);
	mfs_vfile_free(shared);
	mfs_arrow_image_free(v);
	close_real(&x);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("arrow_image");

	unit_case(s, "random rows", random_rows_read_back);
	unit_case(s, "fixed length", fixed_length);
	unit_case(s, "no rows", no_rows);
	unit_case(s, "schema", each_type_that_can_be_shown_has_a_schema);
	unit_case(s, "bad rows", bad_rows);
	unit_case(s, "many rows", many_rows);
	unit_case(s, "uneven rows", uneven_rows);
	unit_case(s, "many empty rows", many_empty_rows);
	unit_case(s, "large rows", large_rows);
	unit_case(s, "changed starts", changed_starts);
	unit_case(s, "passed through", passed_through);
	unit_case(s, "wrapped", rows_that_are_checked_or_sliced_have_the_same_bytes);
	unit_case(s, "threads", threads_read_the_same_bytes);
	return s;
}
