/*
 * Writes flatbuffers from front to back (google/flatbuffers, docs/source/internals.md): a table,
 * then what it refers to. Offsets are filled in when their targets are written.
 */
#include "formats/arrow/arrow_write.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"

#define MAX_SLOTS 8

/* MetadataVersion, MessageHeader and Type of Message.fbs and Schema.fbs. */
enum { VERSION_5 = 4 };
enum { HEADER_SCHEMA = 1, HEADER_BATCH = 3 };
enum { TYPE_INT = 2, TYPE_FLOAT = 3, TYPE_TEXT = 5, TYPE_LIST = 12, TYPE_FIXED_LIST = 16 };

const uint8_t mfs_arrow_eos[MFS_ARROW_EOS] = {0xff, 0xff, 0xff, 0xff};

/* Of a table: bytes of the value, 0 if the slot is left out. Offsets are 4 bytes, of value 0 for
 * now. */
struct slot {
	unsigned size;
	uint64_t value;
	size_t at; /* where it was written */
};
#define OFFSET                                                                                     \
	{                                                                                          \
		.size = 4                                                                          \
	}

/* A message in the making: what is in front of start belongs to others. */
struct message {
	struct mfs_buf *out;
	size_t start; /* of the flatbuffer */
};

static size_t here(const struct message *m)
{
	return m->out->len - m->start;
}

static void add(struct message *m, uint64_t value, unsigned size)
{
	uint8_t bytes[8];

	mfs_put_le64(bytes, value);
	mfs_buf_add(m->out, bytes, size);
}

/* Zeros until the next multiple of align, plus more, is reached. */
static void align(struct message *m, size_t align, size_t more)
{
	while (!m->out->failed && here(m) % align != more)
		add(m, 0, 1);
}

/* An offset at `at` leads here. */
static void refer(struct message *m, size_t at)
{
	if (m->out->failed)
		return;
	for (unsigned i = 0; i < 4; i++)
		m->out->data[m->start + at + i] = (char)((here(m) - at) >> 8 * i);
}

/* Places the slots after a table's first 4 bytes, which lie at a multiple of 8. Returns the table's
 * size. */
static size_t place(struct slot *slots, unsigned count)
{
	size_t size = 4;

	for (unsigned i = 0; i < count; i++) {
		if (!slots[i].size)
			continue;
		size = (size + slots[i].size - 1) / slots[i].size * slots[i].size;
		slots[i].at = size;
		size += slots[i].size;
	}
	return size;
}

/* Adds a table after its vtable. The `at` of each slot becomes its place in the message. */
static void add_table(struct message *m, size_t referrer, struct slot *slots, unsigned count)
{
	const size_t size = place(slots, count);
	size_t vtable, table;

	align(m, 8, 0);
	vtable = here(m);
	add(m, 4 + 2 * (uint64_t)count, 2);
	add(m, size, 2);
	for (unsigned i = 0; i < count; i++)
		add(m, slots[i].at, 2);
	align(m, 8, 0);
	table = here(m);
	refer(m, referrer);
	add(m, table - vtable, 4);
	for (unsigned i = 0; i < count; i++) {
		if (!slots[i].size)
			continue;
		slots[i].at += table;
		while (!m->out->failed && here(m) < slots[i].at)
			add(m, 0, 1);
		add(m, slots[i].value, slots[i].size);
	}
}

static void add_string(struct message *m, size_t referrer, const char *text)
{
	const size_t len = strlen(text);

	align(m, 4, 0);
	refer(m, referrer);
	add(m, len, 4);
	mfs_buf_add(m->out, text, len + 1);
}

/* The count in front of a vector, whose elements follow at a multiple of element (4 or 8). */
static void add_vector(struct message *m, size_t referrer, size_t count, unsigned element)
{
	align(m, element, element - 4);
	refer(m, referrer);
	add(m, count, 4);
}

/* ---- message ---- */

/* Its start, until the place of the header's offset, which is returned. */
static size_t begin(struct message *m, struct mfs_buf *out, unsigned header_type, uint64_t body)
{
	struct slot slots[] = {{2, VERSION_5, 0}, {1, header_type, 0}, OFFSET, {8, body, 0}};

	m->out = out;
	mfs_buf_add(out, mfs_arrow_eos, 8); /* the length is filled in at the end */
	m->start = out->len;
	add(m, 0, 4);
	add_table(m, 0, slots, 4);
	return slots[2].at;
}

uint64_t mfs_arrow_padded(uint64_t len)
{
	return mfs_round_up(len, MFS_ARROW_ALIGN);
}

static void end(struct message *m)
{
	align(m, 8, 0);
	if (m->out->failed)
		return;
	for (unsigned i = 0; i < 4; i++)
		m->out->data[m->start - 4 + i] =
			(char)((mfs_arrow_padded(here(m) + 8) - 8) >> 8 * i);
}

/* ---- schema ---- */

static const struct number {
	enum mfs_dtype dtype;
	uint8_t type;
	uint8_t width; /* bits of an integer; precision of a float: half, single, double */
	bool is_signed;
} numbers[] = {
	{MFS_U8, TYPE_INT, 8, false},	{MFS_I8, TYPE_INT, 8, true},
	{MFS_U16, TYPE_INT, 16, false}, {MFS_I16, TYPE_INT, 16, true},
	{MFS_U32, TYPE_INT, 32, false}, {MFS_I32, TYPE_INT, 32, true},
	{MFS_U64, TYPE_INT, 64, false}, {MFS_I64, TYPE_INT, 64, true},
	{MFS_F16, TYPE_FLOAT, 0, true}, {MFS_F32, TYPE_FLOAT, 1, true},
	{MFS_F64, TYPE_FLOAT, 2, true},
};

static const struct number *number_of(enum mfs_dtype dtype)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(numbers); i++)
		if (numbers[i].dtype == dtype)
			return &numbers[i];
	return NULL;
}

bool mfs_arrow_can(enum mfs_dtype dtype)
{
	return number_of(dtype);
}

/* A Field up to its type and children, whose places are returned. */
static void begin_field(struct message *m, size_t referrer, const char *name, unsigned type,
			size_t *ret_type, size_t *ret_children)
{
	struct slot slots[] = {OFFSET, {1, true, 0}, {1, type, 0}, OFFSET, {0}, OFFSET};

	add_table(m, referrer, slots, 6);
	add_string(m, slots[0].at, name);
	*ret_type = slots[3].at;
	*ret_children = slots[5].at;
}

static void add_number(struct message *m, size_t referrer, const char *name, enum mfs_dtype dtype)
{
	const struct number *n = number_of(dtype);
	struct slot integer[] = {{4, n->width, 0}, {1, n->is_signed, 0}};
	struct slot real[] = {{2, n->width, 0}};
	size_t type, children;

	begin_field(m, referrer, name, n->type, &type, &children);
	if (n->type == TYPE_INT)
		add_table(m, type, integer, 2);
	else
		add_table(m, type, real, 1);
	add_vector(m, children, 0, 4);
}

static void add_text(struct message *m, size_t referrer, const char *name)
{
	size_t type, children;

	begin_field(m, referrer, name, TYPE_TEXT, &type, &children);
	add_table(m, type, NULL, 0);
	add_vector(m, children, 0, 4);
}

static void add_list(struct message *m, size_t referrer, const struct mfs_arrow_field *f)
{
	struct slot length[] = {{4, (uint32_t)f->length, 0}};
	size_t type, children, child;

	begin_field(m, referrer, f->name, f->kind == MFS_ARROW_LIST ? TYPE_LIST : TYPE_FIXED_LIST,
		    &type, &children);
	add_table(m, type, length, f->kind == MFS_ARROW_FIXED_LIST);
	add_vector(m, children, 1, 4);
	child = here(m);
	add(m, 0, 4);
	add_number(m, child, "item", f->dtype);
}

void mfs_arrow_add_schema(struct mfs_buf *out, const struct mfs_arrow_field *fields, size_t count)
{
	struct slot slots[] = {{2, 0, 0}, OFFSET}; /* little-endian */
	struct message m;
	size_t header = begin(&m, out, HEADER_SCHEMA, 0), first;

	add_table(&m, header, slots, 2);
	add_vector(&m, slots[1].at, count, 4);
	first = here(&m);
	for (size_t i = 0; i < count; i++)
		add(&m, 0, 4);
	for (size_t i = 0; i < count; i++) {
		if (fields[i].kind == MFS_ARROW_NUMBER)
			add_number(&m, first + 4 * i, fields[i].name, fields[i].dtype);
		else if (fields[i].kind == MFS_ARROW_TEXT)
			add_text(&m, first + 4 * i, fields[i].name);
		else
			add_list(&m, first + 4 * i, &fields[i]);
	}
	end(&m);
}

/* ---- record batch ---- */

static bool is_list(const struct mfs_arrow_field *f)
{
	return f->kind == MFS_ARROW_LIST || f->kind == MFS_ARROW_FIXED_LIST;
}

static bool has_offsets(const struct mfs_arrow_field *f)
{
	return f->kind == MFS_ARROW_LIST || f->kind == MFS_ARROW_TEXT;
}

static uint64_t offsets_bytes(const struct mfs_arrow_field *f, const struct mfs_arrow_counts *b)
{
	return has_offsets(f) ? 4 * (b->rows + 1) : 0;
}

static uint64_t values_bytes(const struct mfs_arrow_field *f, const struct mfs_arrow_counts *b)
{
	if (f->kind == MFS_ARROW_TEXT)
		return b->bytes;
	return (is_list(f) ? b->items : b->rows) * mfs_dtype_size(f->dtype);
}

uint64_t mfs_arrow_body(const struct mfs_arrow_field *fields, size_t count,
			const struct mfs_arrow_counts *batch)
{
	uint64_t body = 0;

	for (size_t i = 0; i < count; i++)
		body += mfs_arrow_padded(offsets_bytes(&fields[i], batch)) +
			mfs_arrow_padded(values_bytes(&fields[i], batch));
	return body;
}

/* FieldNode: length, nulls. */
static void add_node(struct message *m, uint64_t length)
{
	add(m, length, 8);
	add(m, 0, 8);
}

/* Buffer: offset in the body, length. */
static void add_buffer(struct message *m, uint64_t *at, uint64_t len)
{
	add(m, *at, 8);
	add(m, len, 8);
	*at += mfs_arrow_padded(len);
}

static void add_nodes(struct message *m, size_t referrer, const struct mfs_arrow_field *fields,
		      size_t count, const struct mfs_arrow_counts *batch)
{
	size_t nodes = count;

	for (size_t i = 0; i < count; i++)
		nodes += is_list(&fields[i]);
	add_vector(m, referrer, nodes, 8);
	for (size_t i = 0; i < count; i++) {
		add_node(m, batch->rows);
		if (is_list(&fields[i]))
			add_node(m, batch->items);
	}
}

/* Validity, which is empty, of each node; offsets of a list or of texts; values. */
static void add_buffers(struct message *m, size_t referrer, const struct mfs_arrow_field *fields,
			size_t count, const struct mfs_arrow_counts *batch)
{
	static const unsigned buffers[] = {[MFS_ARROW_NUMBER] = 2,
					   [MFS_ARROW_LIST] = 4,
					   [MFS_ARROW_FIXED_LIST] = 3,
					   [MFS_ARROW_TEXT] = 3};
	uint64_t at = 0;
	size_t total = 0;

	for (size_t i = 0; i < count; i++)
		total += buffers[fields[i].kind];
	add_vector(m, referrer, total, 8);
	for (size_t i = 0; i < count; i++) {
		add_buffer(m, &at, 0);
		if (has_offsets(&fields[i]))
			add_buffer(m, &at, offsets_bytes(&fields[i], batch));
		if (is_list(&fields[i]))
			add_buffer(m, &at, 0);
		add_buffer(m, &at, values_bytes(&fields[i], batch));
	}
}

void mfs_arrow_add_batch(struct mfs_buf *out, const struct mfs_arrow_field *fields, size_t count,
			 const struct mfs_arrow_counts *batch)
{
	struct slot slots[] = {{8, batch->rows, 0}, OFFSET, OFFSET};
	struct message m;
	size_t header = begin(&m, out, HEADER_BATCH, mfs_arrow_body(fields, count, batch));

	add_table(&m, header, slots, 3);
	add_nodes(&m, slots[1].at, fields, count, batch);
	add_buffers(&m, slots[2].at, fields, count, batch);
	end(&m);
}
