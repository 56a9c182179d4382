#include "formats/arrow/arrow_ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/arrow/arrow_ipc_i.h"
#include "formats/base/bytes.h"

#define CONTINUATION 0xffffffffu
#define V4	     3 /* Message.fbs: enum MetadataVersion */
#define V5	     4
#define FIRST_GUESS  512 /* bytes of a message that are read together with its size */

static const char magic[8] = "ARROW1\0"; /* at the end without the two NULs */
#define MAGIC_LEN 6

/* Fields of tables, by their order in Message.fbs and File.fbs. */
enum {
	MESSAGE_VERSION,
	MESSAGE_HEADER_TYPE,
	MESSAGE_HEADER,
	MESSAGE_BODY_LENGTH,
	MESSAGE_CUSTOM_METADATA
};
enum { PAIR_KEY, PAIR_VALUE };
enum { HEADER_NONE, HEADER_SCHEMA, HEADER_DICTIONARY, HEADER_RECORD_BATCH };
enum { BATCH_LENGTH, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_VARIADIC_COUNTS };
enum { DICTIONARY_ID, DICTIONARY_DATA, DICTIONARY_DELTA };
enum { COMPRESSION_CODEC };
enum { FOOTER_VERSION, FOOTER_SCHEMA, FOOTER_DICTIONARIES, FOOTER_RECORD_BATCHES };

/* struct FieldNode and Buffer: two int64; struct Block: int64 offset, int32 size of prefix and
 * metadata, 4 bytes of padding, int64 size of the body. */
#define NODE_BYTES   16
#define BUFFER_BYTES 16
#define BLOCK_BYTES  24

struct message {
	uint64_t at;	    /* in the source */
	uint64_t body, end; /* of the body */
	uint8_t type;
	bool compressed; /* as Arrow 0.17 marked it */
	struct mfs_flat flat;
	struct mfs_flat_table header;
};

/* ---- messages ---- */

static int reserve(struct mfs_arrow *a, size_t len)
{
	uint8_t *bytes;

	if (len <= a->room)
		return 0;
	bytes = realloc(a->metadata, len);
	if (!bytes)
		return -ENOMEM;
	a->metadata = bytes;
	a->room = len;
	return 0;
}

static int cut(const struct mfs_arrow *a, uint64_t at, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL,
			"%s: the message at byte %llu goes beyond the end of messages at %llu",
			a->src.name, (unsigned long long)at, (unsigned long long)a->end);
}

/* Reads metadata with its prefix into a->metadata. *ret_len: the size of the metadata; 0 at the end
 * of a stream. *ret_prefix: bytes of the prefix. */
static int read_metadata(struct mfs_arrow *a, uint64_t at, unsigned *ret_prefix, uint32_t *ret_len,
			 struct mfs_error *err)
{
	const unsigned prefix = a->legacy ? 4 : 8;
	size_t have = mfs_min_u64(FIRST_GUESS, a->end - at);
	uint32_t len;
	int rc;

	if (have < prefix)
		return cut(a, at, err);
	rc = mfs_source_read(&a->src, at, a->metadata, have, err);
	if (rc)
		return rc;
	len = mfs_le32(a->metadata + prefix - 4);
	if (!a->legacy && mfs_le32(a->metadata) != CONTINUATION)
		return mfs_fail(err, -EINVAL, "%s: no message at byte %llu", a->src.name,
				(unsigned long long)at);
	if (len > a->end - at - prefix)
		return cut(a, at, err);
	if (len > MFS_ARROW_METADATA_MAX)
		return mfs_fail(err, -ENOTSUP,
				"%s: a message at byte %llu with %u bytes of metadata is too large",
				a->src.name, (unsigned long long)at, len);
	if (prefix + len > have) {
		if (reserve(a, prefix + len))
			return mfs_fail_nomem(err);
		rc = mfs_source_read(&a->src, at + have, a->metadata + have, prefix + len - have,
				     err);
	}
	*ret_prefix = prefix;
	*ret_len = len;
	return rc;
}

static int check_version(struct mfs_arrow *a, int16_t version, struct mfs_error *err)
{
	if (version != V4 && version != V5)
		return mfs_fail(err, -ENOTSUP, "%s: Arrow metadata version %d; 4 and 5 are known",
				a->src.name, version + 1);
	if (a->version && a->version != version)
		return mfs_fail(err, -EINVAL, "%s: messages of two metadata versions", a->src.name);
	a->version = version;
	return 0;
}

/* Arrow 0.17 compressed before the format had a field for it. */
static bool has_compression_key(const struct mfs_flat_table *message)
{
	const struct mfs_flat_vector pairs = mfs_flat_vector(message, MESSAGE_CUSTOM_METADATA, 4);

	for (uint32_t i = 0; i < pairs.count; i++) {
		const struct mfs_flat_table pair = mfs_flat_element_table(&pairs, i);
		const char *key = mfs_flat_string(&pair, PAIR_KEY);

		if (key && !strcmp(key, "ARROW:experimental_compression"))
			return true;
	}
	return false;
}

/* Reads the message at `at`. *ret_end: the mark of a stream's end is there instead, and the message
 * ends after it. */
static int read_message(struct mfs_arrow *a, uint64_t at, struct message *ret, bool *ret_end,
			struct mfs_error *err)
{
	struct mfs_flat_table root;
	unsigned prefix;
	uint32_t len;
	int64_t body;
	int rc = read_metadata(a, at, &prefix, &len, err);

	if (rc)
		return rc;
	*ret = (struct message){.at = at, .body = at + prefix + len};
	ret->end = ret->body;
	*ret_end = !len;
	if (!len)
		return 0;
	ret->flat = (struct mfs_flat){.bytes = a->metadata + prefix, .size = len};
	root = mfs_flat_root(&ret->flat);
	ret->type = mfs_flat_u8(&root, MESSAGE_HEADER_TYPE, HEADER_NONE);
	ret->header = mfs_flat_table(&root, MESSAGE_HEADER);
	ret->compressed = has_compression_key(&root);
	ret->header.flat = NULL; /* until it is where it stays */
	body = mfs_flat_i64(&root, MESSAGE_BODY_LENGTH, 0);
	if (ret->flat.bad || !ret->header.at || body < 0)
		return mfs_fail(err, -EINVAL, "%s: the message at byte %llu is damaged",
				a->src.name, (unsigned long long)at);
	if ((uint64_t)body > a->end - ret->body)
		return cut(a, at, err);
	ret->end += (uint64_t)body;
	return check_version(a, mfs_flat_i16(&root, MESSAGE_VERSION, 0), err);
}

/* ---- opening ---- */

static int no_stream(const struct mfs_arrow *a, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL,
			"%s: not an Arrow stream or file: it does not begin with a schema",
			a->src.name);
}

/* The first message of a stream shows whether four bytes stand in front of each size. */
static int read_first(struct mfs_arrow *a, struct mfs_error *err)
{
	struct message m;
	uint8_t first[4], *kept;
	bool end;
	int rc;

	if (a->end - a->at < sizeof(first))
		return no_stream(a, err);
	rc = mfs_source_read(&a->src, a->at, first, sizeof(first), err);
	if (rc)
		return rc;
	a->legacy = mfs_le32(first) != CONTINUATION;
	rc = read_message(a, a->at, &m, &end, err);
	if (rc == -EINVAL && a->legacy) /* any bytes could be a size */
		return no_stream(a, err);
	if (rc)
		return rc;
	if (end || m.type != HEADER_SCHEMA)
		return no_stream(a, err);
	/* Names of columns point into it. */
	kept = mfs_arena_alloc(&a->arena, m.flat.size);
	if (!kept)
		return mfs_fail_nomem(err);
	memcpy(kept, m.flat.bytes, m.flat.size);
	m.flat.bytes = kept;
	m.header.flat = &m.flat;
	a->at = m.end;
	return mfs_arrow_read_schema(a, &m.header, err);
}

static int bad_footer(const struct mfs_arrow *a, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: its footer is damaged, or it was cut", a->src.name);
}

/* An Arrow file is a stream with a footer, which repeats where the record batches are. */
static int read_footer(struct mfs_arrow *a, struct mfs_error *err)
{
	const uint64_t size = a->src.size;
	uint8_t tail[4 + MAGIC_LEN];
	struct mfs_flat_table root;
	void *footer;
	uint32_t len;
	int rc;

	if (size < sizeof(magic) + sizeof(tail))
		return bad_footer(a, err);
	rc = mfs_source_read(&a->src, size - sizeof(tail), tail, sizeof(tail), err);
	if (rc)
		return rc;
	len = mfs_le32(tail);
	if (memcmp(tail + 4, magic, MAGIC_LEN) || len > size - sizeof(magic) - sizeof(tail))
		return bad_footer(a, err);
	if (len > MFS_ARROW_METADATA_MAX)
		return mfs_fail(err, -ENOTSUP, "%s: a footer of %u bytes is too large", a->src.name,
				len);
	a->end = size - sizeof(tail) - len;
	rc = mfs_source_slurp(&a->src, a->end, len, &footer, err);
	if (rc)
		return rc;
	a->footer = footer;
	a->footer_flat = (struct mfs_flat){.bytes = a->footer, .size = len};
	root = mfs_flat_root(&a->footer_flat);
	a->blocks = mfs_flat_vector(&root, FOOTER_RECORD_BATCHES, BLOCK_BYTES);
	return a->footer_flat.bad ? bad_footer(a, err) : 0;
}

static bool same_columns(const struct mfs_arrow *a, const struct mfs_arrow *b)
{
	if (a->column_count != b->column_count || a->nodes != b->nodes || a->buffers != b->buffers)
		return false;
	for (uint32_t i = 0; i < a->column_count; i++) {
		const struct mfs_arrow_column *c = &a->columns[i], *d = &b->columns[i];

		if (strcmp(c->name, d->name) || c->type != d->type || c->item != d->item ||
		    c->dtype != d->dtype || c->list_size != d->list_size ||
		    c->dictionary != d->dictionary || c->node != d->node || c->buffer != d->buffer)
			return false;
	}
	return true;
}

/* The schema is in the footer once more. */
static int check_footer_schema(struct mfs_arrow *a, struct mfs_error *err)
{
	const struct mfs_flat_table root = mfs_flat_root(&a->footer_flat);
	const struct mfs_flat_table schema = mfs_flat_table(&root, FOOTER_SCHEMA);
	struct mfs_arrow other = {.src = a->src, .version = a->version};
	int rc = mfs_arrow_read_schema(&other, &schema, err);

	if (!rc && !same_columns(a, &other))
		rc = mfs_fail(err, -EINVAL, "%s: it has two schemas, and they differ", a->src.name);
	mfs_arena_release(&other.arena);
	return rc;
}

/* The lower one of `than` and where the first of these blocks is. */
static uint64_t lowest_block(struct mfs_arrow *a, unsigned field, uint64_t than)
{
	const struct mfs_flat_table root = mfs_flat_root(&a->footer_flat);
	const struct mfs_flat_vector blocks = mfs_flat_vector(&root, field, BLOCK_BYTES);

	for (uint32_t i = 0; i < blocks.count; i++)
		than = mfs_min_u64(than, mfs_le64(mfs_flat_element(&blocks, i)));
	return than;
}

/* The message of the first block says how messages are framed and which version they have. */
static int look_at_first_block(struct mfs_arrow *a, struct mfs_error *err)
{
	struct message m;
	uint8_t first[4];
	bool end;
	int rc;

	if (a->end - a->at < sizeof(first))
		return cut(a, a->at, err);
	rc = mfs_source_read(&a->src, a->at, first, sizeof(first), err);
	if (rc)
		return rc;
	a->legacy = mfs_le32(first) != CONTINUATION;
	rc = read_message(a, a->at, &m, &end, err);
	return !rc && end ? bad_footer(a, err) : rc;
}

/* With the schema that the footer has. */
static int begin_at_blocks(struct mfs_arrow *a, struct mfs_error *err)
{
	const struct mfs_flat_table root = mfs_flat_root(&a->footer_flat);
	const struct mfs_flat_table schema = mfs_flat_table(&root, FOOTER_SCHEMA);
	int rc = 0;

	a->at = lowest_block(a, FOOTER_RECORD_BATCHES,
			     lowest_block(a, FOOTER_DICTIONARIES, a->end));
	if (a->at < a->end)
		rc = look_at_first_block(a, err);
	return rc ? rc : mfs_arrow_read_schema(a, &schema, err);
}

/* Forgets what was read of the bytes after the magic, which turned out not to be a schema. */
static void forget_first(struct mfs_arrow *a)
{
	mfs_arena_release(&a->arena);
	a->columns = NULL;
	a->nodes = a->buffers = a->views = 0;
	a->has_dictionaries = false;
	a->version = 0;
}

/*
 * Arrow C++ writes a stream between the magic and the footer, and then the two must agree. When it
 * reads, it uses the footer alone, and other writers rely on that: arrow-rs pads the magic to 64
 * bytes, and Polars writes a schema after it without a size. Messages have a version of their own;
 * the footer that Arrow C++ writes says 5 in any case.
 */
static int open_file(struct mfs_arrow *a, struct mfs_error *err)
{
	int rc = read_footer(a, err);

	if (rc)
		return rc;
	a->at = sizeof(magic);
	rc = read_first(a, err);
	if (rc != -EINVAL && rc != -ENOTSUP)
		return rc ? rc : check_footer_schema(a, err);
	forget_first(a);
	return begin_at_blocks(a, err);
}

int mfs_arrow_open(const struct mfs_source *src, struct mfs_arrow **ret, struct mfs_error *err)
{
	struct mfs_arrow *a = calloc(1, sizeof(*a));
	char first[sizeof(magic)] = {0};
	int rc;

	if (!a || reserve(a, FIRST_GUESS)) {
		free(a);
		return mfs_fail_nomem(err);
	}
	a->src = *src;
	a->end = src->size;
	rc = mfs_source_read(src, 0, first, mfs_min_u64(sizeof(first), src->size), err);
	a->is_file = !memcmp(first, magic, sizeof(magic));
	if (!rc)
		rc = a->is_file ? open_file(a, err) : read_first(a, err);
	if (rc) {
		mfs_arrow_free(a);
		return rc;
	}
	*ret = a;
	return 0;
}

void mfs_arrow_free(struct mfs_arrow *a)
{
	if (!a)
		return;
	free(a->metadata);
	free(a->footer);
	mfs_arena_release(&a->arena);
	free(a);
}

uint32_t mfs_arrow_column_count(const struct mfs_arrow *a)
{
	return a->column_count;
}

const struct mfs_arrow_column *mfs_arrow_column(const struct mfs_arrow *a, uint32_t i)
{
	return &a->columns[i];
}

/* ---- record batches ---- */

static uint64_t first_of(const uint8_t *pairs, uint32_t i)
{
	return mfs_le64(pairs + 16 * (size_t)i);
}

static uint64_t second_of(const uint8_t *pairs, uint32_t i)
{
	return mfs_le64(pairs + 16 * (size_t)i + 8);
}

static int bad_batch(const struct mfs_arrow *a, const struct mfs_arrow_batch *b, const char *what,
		     struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: record batch %llu: %s", a->src.name,
			(unsigned long long)b->number, what);
}

/* Writers lay buffers out one after the other, so an offset that was changed is found. */
static int check_buffers(const struct mfs_arrow *a, const struct mfs_arrow_batch *b,
			 struct mfs_error *err)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < b->buffers; i++) {
		const uint64_t off = first_of(b->buffer_bytes, i),
			       len = second_of(b->buffer_bytes, i);

		if (!len)
			continue;
		if (!mfs_range_ok(off, len, b->body_size))
			return bad_batch(a, b, "a buffer does not lie inside of its body", err);
		if (off % 8)
			return bad_batch(a, b, "a buffer does not begin at a multiple of 8", err);
		if (off < end)
			return bad_batch(a, b, "buffers overlap", err);
		end = off + len;
	}
	return 0;
}

/* t: BodyCompression; before_field: as Arrow 0.17 marked it. */
static int take_codec(const struct mfs_arrow *a, const struct mfs_flat_table *t, bool before_field,
		      enum mfs_arrow_codec *ret, struct mfs_error *err)
{
	static const char *const codecs[] = {"LZ4", "ZSTD"};
	const uint8_t codec = mfs_flat_u8(t, COMPRESSION_CODEC, 0);

	*ret = MFS_ARROW_PLAIN;
	if (!t->at && !before_field)
		return 0;
	if (a->gives_all && t->at && codec < 2) {
		*ret = codec ? MFS_ARROW_ZSTD : MFS_ARROW_LZ4;
		return 0;
	}
	return mfs_fail(err, -ENOTSUP,
			"%s: its record batches are compressed (%s), so that their bytes cannot be "
			"shown; `datasets` writes them uncompressed",
			a->src.name,
			!t->at	    ? "by Arrow 0.17"
			: codec < 2 ? codecs[codec]
				    : "an unknown codec");
}

/* t: RecordBatch. Fills *b but what the message alone has. */
static int read_batch_table(struct mfs_arrow *a, const struct message *m,
			    const struct mfs_flat_table *t, struct mfs_arrow_batch *b,
			    struct mfs_error *err)
{
	const int64_t rows = mfs_flat_i64(t, BATCH_LENGTH, 0);
	const struct mfs_flat_vector nodes = mfs_flat_vector(t, BATCH_NODES, NODE_BYTES),
				     buffers = mfs_flat_vector(t, BATCH_BUFFERS, BUFFER_BYTES),
				     views = mfs_flat_vector(t, BATCH_VARIADIC_COUNTS, 8);
	const struct mfs_flat_table compression = mfs_flat_table(t, BATCH_COMPRESSION);
	int rc;

	if (m->flat.bad || rows < 0)
		return bad_batch(a, b, "its metadata is damaged", err);
	rc = take_codec(a, &compression, m->compressed, &b->codec, err);
	if (rc)
		return rc;
	b->rows = (uint64_t)rows;
	b->nodes = nodes.count;
	b->buffers = buffers.count;
	b->views = views.count;
	b->node_bytes = nodes.count ? mfs_flat_element(&nodes, 0) : NULL;
	b->buffer_bytes = buffers.count ? mfs_flat_element(&buffers, 0) : NULL;
	b->view_bytes = views.count ? mfs_flat_element(&views, 0) : NULL;
	return 0;
}

static int read_batch(struct mfs_arrow *a, struct message *m, struct mfs_arrow_batch *ret,
		      struct mfs_error *err)
{
	struct mfs_arrow_batch b = {
		.number = a->batches, .body = m->body, .body_size = m->end - m->body};
	int rc;

	m->header.flat = &m->flat;
	rc = read_batch_table(a, m, &m->header, &b, err);
	if (!rc && b.nodes != a->nodes)
		rc = bad_batch(a, &b, "its number of arrays is not that of its schema", err);
	if (!rc)
		rc = check_buffers(a, &b, err);
	if (rc)
		return rc;
	a->batches++;
	*ret = b;
	return 0;
}

/* A record batch that says that it is a dictionary is none. */
static int check_dictionary(struct mfs_arrow *a, struct message *m, struct mfs_flat_table *ret,
			    struct mfs_error *err)
{
	struct mfs_flat_vector nodes;

	m->header.flat = &m->flat;
	*ret = mfs_flat_table(&m->header, DICTIONARY_DATA);
	nodes = mfs_flat_vector(ret, BATCH_NODES, NODE_BYTES);
	if (a->has_dictionaries && !m->flat.bad && nodes.count)
		return 0;
	return mfs_fail(err, -EINVAL, "%s: expected a dictionary in the message at byte %llu",
			a->src.name, (unsigned long long)m->at);
}

static int read_dictionary(struct mfs_arrow *a, struct message *m, struct mfs_arrow_batch *ret,
			   struct mfs_error *err)
{
	struct mfs_arrow_batch b = {.number = a->batches,
				    .body = m->body,
				    .body_size = m->end - m->body,
				    .is_dictionary = true};
	struct mfs_flat_table data;
	int rc = check_dictionary(a, m, &data, err);

	if (rc)
		return rc;
	b.dictionary = mfs_flat_i64(&m->header, DICTIONARY_ID, 0);
	b.is_delta = mfs_flat_u8(&m->header, DICTIONARY_DELTA, 0);
	rc = read_batch_table(a, m, &data, &b, err);
	if (!rc)
		rc = check_buffers(a, &b, err);
	if (!rc)
		*ret = b;
	return rc;
}

/* In a file the mark may be missing: its footer says what there is. */
static int check_end(struct mfs_arrow *a, uint64_t end, bool marked, struct mfs_error *err)
{
	if (a->is_file && a->batches != a->blocks.count)
		return mfs_fail(err, -EINVAL, "%s: its footer says %u record batches, found %llu",
				a->src.name, a->blocks.count, (unsigned long long)a->batches);
	if (!marked && !a->is_file)
		return mfs_fail(err, -EINVAL,
				"%s: it ends at byte %llu without the mark of an end: cut, or its "
				"writer did not finish",
				a->src.name, (unsigned long long)a->end);
	if (end != a->end)
		return mfs_fail(err, -EINVAL,
				"%s: its end is marked at byte %llu, but it goes on to %llu",
				a->src.name, (unsigned long long)a->at, (unsigned long long)a->end);
	return 0;
}

/* The next message; dictionaries are stepped over unless they are asked for. */
static int next_message(struct mfs_arrow *a, struct message *ret, bool *ret_end,
			struct mfs_error *err)
{
	struct mfs_flat_table data;
	int rc = 0;

	while (!rc) {
		*ret_end = a->at == a->end;
		if (*ret_end)
			return check_end(a, a->end, false, err);
		rc = read_message(a, a->at, ret, ret_end, err);
		if (rc)
			return rc;
		if (*ret_end)
			return check_end(a, ret->end, true, err);
		a->at = ret->end;
		if (ret->type != HEADER_DICTIONARY || a->gives_all)
			return 0;
		rc = check_dictionary(a, ret, &data, err);
	}
	return rc;
}

/* Is it the one that a file's footer has in its place? */
static int check_block(const struct mfs_arrow *a, const struct message *m, struct mfs_error *err)
{
	const uint8_t *block;

	if (a->batches >= a->blocks.count)
		return mfs_fail(err, -EINVAL, "%s: it has more record batches than its footer says",
				a->src.name);
	block = mfs_flat_element(&a->blocks, (uint32_t)a->batches);
	if (mfs_le64(block) == m->at && mfs_le32(block + 8) == m->body - m->at &&
	    mfs_le64(block + 16) == m->end - m->body)
		return 0;
	return mfs_fail(err, -EINVAL, "%s: record batch %llu is not where its footer says",
			a->src.name, (unsigned long long)a->batches);
}

int mfs_arrow_next(struct mfs_arrow *a, struct mfs_arrow_batch *ret, bool *ret_end,
		   struct mfs_error *err)
{
	struct message m;
	bool end;
	int rc = next_message(a, &m, &end, err);

	if (rc)
		return rc;
	if (!end && m.type == HEADER_DICTIONARY) {
		*ret_end = false;
		return read_dictionary(a, &m, ret, err);
	}
	if (!end && m.type != HEADER_RECORD_BATCH)
		return mfs_fail(err, m.type == HEADER_SCHEMA ? -EINVAL : -ENOTSUP,
				"%s: expected a record batch in the message at byte %llu",
				a->src.name, (unsigned long long)m.at);
	if (!end && a->is_file)
		rc = check_block(a, &m, err);
	if (!rc && !end)
		rc = read_batch(a, &m, ret, err);
	if (!rc)
		*ret_end = end;
	return rc;
}

int mfs_arrow_next_any(struct mfs_arrow *a, struct mfs_arrow_batch *ret, bool *ret_end,
		       struct mfs_error *err)
{
	a->gives_all = true;
	return mfs_arrow_next(a, ret, ret_end, err);
}

/* ---- one column's buffers ---- */

int mfs_arrow_buffer(const struct mfs_arrow *a, const struct mfs_arrow_batch *b, uint32_t buffer,
		     uint64_t *ret_at, uint64_t *ret_len, struct mfs_error *err)
{
	if (buffer >= b->buffers)
		return bad_batch(a, b, "it has fewer buffers than its schema needs", err);
	*ret_len = second_of(b->buffer_bytes, buffer);
	*ret_at = *ret_len ? b->body + first_of(b->buffer_bytes, buffer) : 0;
	return 0;
}

/* Of a buffer that must have len bytes. */
static int place(const struct mfs_arrow *a, const struct mfs_arrow_batch *b, uint32_t buffer,
		 uint64_t count, uint64_t size, uint64_t *ret, struct mfs_error *err)
{
	uint64_t len;

	if (buffer >= b->buffers)
		return bad_batch(a, b, "it has fewer buffers than its schema needs", err);
	if (mfs_mul_overflows(count, size, &len) || second_of(b->buffer_bytes, buffer) < len)
		return bad_batch(a, b, "a buffer is smaller than its values", err);
	*ret = len ? b->body + first_of(b->buffer_bytes, buffer) : 0;
	return 0;
}

/* Bytes of a bit each. */
static uint64_t bitmap(uint64_t count)
{
	return count / 8 + (count % 8 != 0);
}

int mfs_arrow_first_buffer(const struct mfs_arrow *a, const struct mfs_arrow_batch *b,
			   const struct mfs_arrow_column *c, uint32_t *ret, struct mfs_error *err)
{
	uint64_t buffer = c->buffer;

	if (c->view > b->views)
		return bad_batch(a, b, "it does not say how many buffers its views have", err);
	for (uint32_t i = 0; i < c->view; i++) {
		const uint64_t more = mfs_le64(b->view_bytes + 8 * (size_t)i);

		if (more > b->buffers || (buffer += more) > b->buffers)
			return bad_batch(a, b, "its views have more buffers than there are", err);
	}
	*ret = (uint32_t)buffer;
	return 0;
}

int mfs_arrow_node(const struct mfs_arrow *a, const struct mfs_arrow_batch *b, uint32_t node,
		   uint64_t *ret_length, uint64_t *ret_nulls, struct mfs_error *err)
{
	if (node >= b->nodes)
		return bad_batch(a, b, "it has fewer arrays than its schema", err);
	*ret_length = first_of(b->node_bytes, node);
	*ret_nulls = second_of(b->node_bytes, node);
	if (*ret_length > INT64_MAX || *ret_nulls > *ret_length)
		return bad_batch(a, b, "lengths of arrays are damaged", err);
	return 0;
}

/* A list's elements, whose values are that buffer and their validity the one before it. */
static int place_items(const struct mfs_arrow *a, const struct mfs_arrow_batch *b,
		       const struct mfs_arrow_column *c, uint32_t buffer,
		       struct mfs_arrow_array *array, struct mfs_error *err)
{
	uint64_t expected;
	int rc = 0;

	if (c->type == MFS_ARROW_INT)
		array->items = array->rows;
	else
		rc = mfs_arrow_node(a, b, c->node + 1, &array->items, &array->item_nulls, err);
	if (!rc && array->item_nulls)
		rc = place(a, b, buffer - 1, bitmap(array->items), 1, &array->item_validity, err);
	if (rc)
		return rc;
	if (c->type == MFS_ARROW_FIXED_SIZE_LIST &&
	    (mfs_mul_overflows(array->rows, c->list_size, &expected) || array->items < expected))
		return bad_batch(a, b, "it has fewer elements than its lists of a fixed size need",
				 err);
	return place(a, b, buffer, array->items, mfs_dtype_size(c->dtype), &array->values, err);
}

int mfs_arrow_array(const struct mfs_arrow *a, const struct mfs_arrow_batch *b,
		    const struct mfs_arrow_column *c, struct mfs_arrow_array *ret,
		    struct mfs_error *err)
{
	const bool lists = c->type == MFS_ARROW_LIST || c->type == MFS_ARROW_LARGE_LIST;
	struct mfs_arrow_array array = {0};
	uint32_t buffer = 0;
	int rc = mfs_arrow_first_buffer(a, b, c, &buffer, err);

	if (!rc)
		rc = mfs_arrow_node(a, b, c->node, &array.rows, &array.nulls, err);
	if (!rc && array.rows != b->rows)
		rc = bad_batch(a, b, "a column and the batch differ in their number of rows", err);
	if (!rc && array.nulls)
		rc = place(a, b, buffer, bitmap(array.rows), 1, &array.validity, err);
	buffer++;
	/* An array without rows may leave out its one offset. */
	if (!rc && lists && array.rows)
		rc = place(a, b, buffer, array.rows + 1, c->type == MFS_ARROW_LIST ? 4 : 8,
			   &array.offsets, err);
	buffer += lists;
	if (!rc) /* of lists, after the elements' own validity */
		rc = place_items(a, b, c, buffer + (c->type != MFS_ARROW_INT), &array, err);
	if (!rc)
		*ret = array;
	return rc;
}
