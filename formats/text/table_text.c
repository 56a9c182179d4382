#include "formats/text/table_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/text/snappy.h"
#include "formats/text/thrift.h"

#define FOOTER_MAX (256u << 20)
#define PAGE_MAX   (1u << 30)
#define ROW_MAX	   (1u << 30)
/* Lengths of DELTA_LENGTH in a page, which may have no bytes of their own. */
#define LENGTHS_MAX (PAGE_MAX / 64)
/* A page's header has the least and the largest value, which may be long. */
#define HEADER_MAX (1u << 20)

enum { BYTE_ARRAY = 6 };							/* Type */
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, DELTA_LENGTH = 6, RLE_DICTIONARY = 8 }; /* Encoding */
enum { UNCOMPRESSED, SNAPPY, GZIP, ZSTD = 6 };		       /* CompressionCodec */
enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 }; /* PageType */

/* Runs of numbers of some bits: the same again and again, or packed (Encodings.md, RLE). */
struct runs {
	const uint8_t *at, *end;
	unsigned width;
	uint64_t left; /* of the run at hand */
	bool packed;
	uint32_t value; /* of a run of equals */
	uint64_t bit;	/* of a packed run: the next one, from at */
};

struct slice {
	const uint8_t *at;
	size_t len;
};

/* Bytes that grow only. */
struct room {
	uint8_t *at;
	size_t size;
};

struct chunk {
	uint64_t offset, size, values;
	int codec;
	bool there;
};

struct column {
	const char *name;
	uint32_t leaf; /* its number among the columns of a row group */
	bool optional;
	struct chunk *chunks; /* one for each row group */
	uint64_t at, end;     /* the chunk at hand, in the file */
	uint64_t values;      /* of it that are still to come */
	int codec;
	uint64_t page_values;
	struct room packed, page, dictionary;
	struct slice *words; /* of the dictionary */
	uint32_t word_count;
	struct runs levels, numbers; /* numbers: of words, or of DELTA_LENGTH none */
	int encoding;
	const uint8_t *next, *page_end; /* PLAIN and DELTA_LENGTH: values to come */
	uint32_t *lengths;		/* of DELTA_LENGTH */
	uint64_t length_count, length_at;
};

struct mfs_table_text {
	int fd;
	const char *name;
	uint64_t size;
	struct column *columns;
	size_t count;
	uint64_t *group_rows;
	uint32_t group_count, group; /* group: the next one */
	uint64_t rows;		     /* of the group at hand that are still to come */
};

static int damaged(const struct mfs_table_text *t, const char *what, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: its Parquet data is damaged: %s", t->name, what);
}

static int read_at(const struct mfs_table_text *t, uint64_t offset, void *to, size_t len,
		   struct mfs_error *err)
{
	if (!mfs_range_ok(offset, len, t->size))
		return damaged(t, "a range lies outside of the file", err);
	for (size_t done = 0; done < len;) {
		const ssize_t n =
			pread(t->fd, (uint8_t *)to + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? mfs_fail_errno(err, "cannot read %s", t->name)
				 : mfs_fail(err, -EIO, "%s has become shorter", t->name);
		done += (size_t)n;
	}
	return 0;
}

static int make_room(struct room *r, size_t size, struct mfs_error *err)
{
	uint8_t *at;

	if (size <= r->size)
		return 0;
	at = realloc(r->at, size);
	if (!at)
		return mfs_fail_nomem(err);
	r->at = at;
	r->size = size;
	return 0;
}

/* ---- the schema ---- */

struct element {
	int64_t type, repetition, children;
	struct slice name;
};

static void read_element(struct mfs_thrift *f, struct element *e)
{
	struct mfs_thrift_field field = {.id = 0};
	size_t len;

	*e = (struct element){.type = -1};
	while (mfs_thrift_next(f, &field))
		switch (field.id) {
		case 1:
			e->type = mfs_thrift_int(f, field.type);
			break;
		case 3:
			e->repetition = mfs_thrift_int(f, field.type);
			break;
		case 4:
			e->name.at = (const uint8_t *)mfs_thrift_binary(f, field.type, &len);
			e->name.len = len;
			break;
		case 5:
			e->children = mfs_thrift_int(f, field.type);
			break;
		default:
			mfs_thrift_skip(f, field.type);
		}
}

static int take_element(struct mfs_table_text *t, const struct element *e, uint32_t leaf,
			struct mfs_error *err)
{
	for (size_t i = 0; i < t->count; i++) {
		struct column *c = &t->columns[i];

		if (strlen(c->name) != e->name.len || memcmp(c->name, e->name.at, e->name.len) != 0)
			continue;
		if (e->children || e->repetition > 1 || e->type != BYTE_ARRAY)
			return mfs_fail(err, -ENOTSUP, "%s: its column '%s' is not of strings",
					t->name, c->name);
		c->leaf = leaf;
		c->optional = e->repetition == 1;
	}
	return 0;
}

/* Elements stand in the order of a walk: each is followed by its children. */
static int read_schema(struct mfs_table_text *t, struct mfs_thrift *f, enum mfs_thrift_type type,
		       struct mfs_error *err)
{
	enum mfs_thrift_type item;
	const uint32_t count = mfs_thrift_list(f, type, &item);
	uint64_t below = 0; /* elements to come that lie below one of the top */
	uint32_t leaf = 0;
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc && !f->failed; i++) {
		struct element e;

		read_element(f, &e);
		if (e.children < 0 || e.children > UINT16_MAX)
			return damaged(t, "a schema's element", err);
		if (!i)
			continue;
		if (!below)
			rc = take_element(t, &e, leaf, err);
		else
			below--;
		below += (uint64_t)e.children;
		leaf += !e.children;
	}
	return rc;
}

/* ---- row groups ---- */

static void read_metadata(struct mfs_thrift *f, struct chunk *c)
{
	struct mfs_thrift_field field = {.id = 0};
	int64_t data = 0, dictionary = 0;

	c->there = true;
	while (mfs_thrift_next(f, &field))
		switch (field.id) {
		case 4:
			c->codec = (int)mfs_thrift_int(f, field.type);
			break;
		case 5:
			c->values = (uint64_t)mfs_thrift_int(f, field.type);
			break;
		case 7:
			c->size = (uint64_t)mfs_thrift_int(f, field.type);
			break;
		case 9:
			data = mfs_thrift_int(f, field.type);
			break;
		case 11:
			dictionary = mfs_thrift_int(f, field.type);
			break;
		default:
			mfs_thrift_skip(f, field.type);
		}
	c->offset = (uint64_t)(dictionary > 0 && dictionary < data ? dictionary : data);
}

static void read_chunk(struct mfs_thrift *f, struct chunk *c)
{
	struct mfs_thrift_field field = {.id = 0};

	*c = (struct chunk){.offset = 0};
	while (mfs_thrift_next(f, &field))
		if (field.id == 3 && field.type == MFS_THRIFT_STRUCT)
			read_metadata(f, c);
		else
			mfs_thrift_skip(f, field.type);
}

static void read_chunks(struct mfs_table_text *t, struct mfs_thrift *f, enum mfs_thrift_type type)
{
	enum mfs_thrift_type item;
	const uint32_t count = mfs_thrift_list(f, type, &item);

	for (uint32_t leaf = 0; leaf < count && !f->failed; leaf++) {
		struct chunk chunk;

		read_chunk(f, &chunk);
		for (size_t i = 0; i < t->count; i++) {
			struct column *c = &t->columns[i];

			if (c->leaf == leaf)
				c->chunks[t->group_count] = chunk;
		}
	}
}

static int read_group(struct mfs_table_text *t, struct mfs_thrift *f, struct mfs_error *err)
{
	struct mfs_thrift_field field = {.id = 0};
	int64_t rows = 0;
	bool chunks = false;
	int rc = 0;

	if (mfs_grow(&t->group_rows, t->group_count))
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < t->count; i++) {
		if (mfs_grow(&t->columns[i].chunks, t->group_count))
			return mfs_fail_nomem(err);
		t->columns[i].chunks[t->group_count] = (struct chunk){.offset = 0};
	}
	while (mfs_thrift_next(f, &field))
		if (field.id == 1 && !chunks) {
			chunks = true;
			read_chunks(t, f, field.type);
		} else if (field.id == 3) {
			rows = mfs_thrift_int(f, field.type);
		} else {
			mfs_thrift_skip(f, field.type);
		}
	if (rows < 0 || f->failed)
		rc = damaged(t, "a row group", err);
	for (size_t i = 0; i < t->count && !rc; i++) {
		const struct chunk *c = &t->columns[i].chunks[t->group_count];

		if (!c->there || c->values != (uint64_t)rows ||
		    !mfs_range_ok(c->offset, c->size, t->size))
			rc = damaged(t, "a column of a row group", err);
	}
	t->group_rows[t->group_count++] = (uint64_t)rows;
	return rc;
}

static int read_groups(struct mfs_table_text *t, struct mfs_thrift *f, enum mfs_thrift_type type,
		       struct mfs_error *err)
{
	enum mfs_thrift_type item;
	const uint32_t count = mfs_thrift_list(f, type, &item);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc && !f->failed; i++)
		rc = read_group(t, f, err);
	return rc;
}

static int check_columns(const struct mfs_table_text *t, struct mfs_error *err)
{
	for (size_t i = 0; i < t->count; i++)
		if (t->columns[i].leaf == UINT32_MAX)
			return mfs_fail(err, -ENODATA, "%s has no column '%s'", t->name,
					t->columns[i].name);
	return 0;
}

/* The schema comes before the row groups (parquet.thrift: FileMetaData). */
static int read_file(struct mfs_table_text *t, struct mfs_thrift *f, struct mfs_error *err)
{
	struct mfs_thrift_field field = {.id = 0};
	bool schema = false, groups = false;
	int rc = 0;

	while (!rc && mfs_thrift_next(f, &field)) {
		if (field.id == 2 && !schema) {
			schema = true;
			rc = read_schema(t, f, field.type, err);
			if (!rc)
				rc = f->failed ? damaged(t, "its schema", err)
					       : check_columns(t, err);
		} else if (field.id == 4 && schema && !groups) {
			groups = true;
			rc = read_groups(t, f, field.type, err);
		} else {
			mfs_thrift_skip(f, field.type);
		}
	}
	return rc || (!f->failed && groups) ? rc : damaged(t, "its footer", err);
}

static int read_footer(struct mfs_table_text *t, struct mfs_error *err)
{
	uint8_t tail[8], *footer;
	struct mfs_thrift f;
	uint32_t len;
	int rc;

	if (t->size < 12)
		return damaged(t, "it is too short", err);
	rc = read_at(t, t->size - 8, tail, 8, err);
	if (rc)
		return rc;
	len = mfs_le32(tail);
	if (!memcmp(tail + 4, "PARE", 4))
		return mfs_fail(err, -ENOTSUP, "%s is encrypted", t->name);
	if (memcmp(tail + 4, "PAR1", 4) != 0 || len > t->size - 12 || len > FOOTER_MAX)
		return damaged(t, "it has no end", err);
	footer = malloc(len ? len : 1);
	if (!footer)
		return mfs_fail_nomem(err);
	rc = read_at(t, t->size - 8 - len, footer, len, err);
	f = (struct mfs_thrift){footer, footer + len, false};
	if (!rc)
		rc = read_file(t, &f, err);
	free(footer);
	return rc;
}

int mfs_table_text_open(int fd, const char *name, const char *const *columns, size_t count,
			struct mfs_table_text **ret, struct mfs_error *err)
{
	struct mfs_table_text *t = calloc(1, sizeof(*t));
	struct stat st;
	int rc;

	if (t)
		t->columns = calloc(count, sizeof(*t->columns));
	if (!t || !t->columns || fstat(fd, &st)) {
		free(t);
		return mfs_fail_nomem(err);
	}
	t->fd = fd;
	t->name = name;
	t->count = count;
	t->size = (uint64_t)st.st_size;
	for (size_t i = 0; i < count; i++)
		t->columns[i] = (struct column){.name = columns[i], .leaf = UINT32_MAX};
	rc = read_footer(t, err);
	if (rc)
		mfs_table_text_free(t);
	else
		*ret = t;
	return rc;
}

void mfs_table_text_free(struct mfs_table_text *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++) {
		struct column *c = &t->columns[i];

		free(c->chunks);
		free(c->packed.at);
		free(c->page.at);
		free(c->dictionary.at);
		free(c->words);
		free(c->lengths);
	}
	free(t->columns);
	free(t->group_rows);
	free(t);
}

/* ---- runs ---- */

static bool runs_varint(struct runs *r, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 63 && r->at < r->end; shift += 7) {
		*ret |= (uint64_t)(*r->at & 0x7f) << shift;
		if (!(*r->at++ & 0x80))
			return true;
	}
	return false;
}

static bool begin_run(struct runs *r)
{
	const unsigned bytes = (r->width + 7) / 8;
	uint64_t head;

	if (!runs_varint(r, &head))
		return false;
	r->packed = head & 1;
	r->left = head >> 1;
	r->bit = 0;
	if (r->packed) {
		/* Eight numbers are as many bytes as one has bits; of the last run some may be
		 * left out. */
		r->left *= 8;
		return r->left > 0;
	}
	if ((size_t)(r->end - r->at) < bytes)
		return false;
	r->value = 0;
	for (unsigned i = 0; i < bytes; i++)
		r->value |= (uint32_t)*r->at++ << 8 * i;
	return r->left > 0;
}

static bool next_packed(struct runs *r, uint32_t *ret)
{
	*ret = 0;
	for (unsigned i = 0; i < r->width; i++, r->bit++) {
		if ((uint64_t)(r->end - r->at) <= r->bit / 8)
			return false;
		*ret |= (uint32_t)(r->at[r->bit / 8] >> r->bit % 8 & 1) << i;
	}
	return true;
}

static bool next_number(struct runs *r, uint32_t *ret)
{
	if (!r->left && !begin_run(r))
		return false;
	r->left--;
	*ret = r->value;
	if (!r->packed)
		return true;
	if (!next_packed(r, ret))
		return false;
	if (!r->left)
		r->at += r->bit / 8;
	return true;
}

/* ---- pages ---- */

struct page {
	int64_t type, size, packed, values, encoding, levels, repetitions;
	bool is_packed;
	uint64_t header; /* bytes of it */
};

static void read_page_kind(struct mfs_thrift *f, struct page *p, bool second)
{
	struct mfs_thrift_field field = {.id = 0};

	while (mfs_thrift_next(f, &field)) {
		if (field.id == 1)
			p->values = mfs_thrift_int(f, field.type);
		else if (field.id == (second ? 4 : 2))
			p->encoding = mfs_thrift_int(f, field.type);
		else if (second && field.id == 5)
			p->levels = mfs_thrift_int(f, field.type);
		else if (second && field.id == 6)
			p->repetitions = mfs_thrift_int(f, field.type);
		else if (second && field.id == 7)
			p->is_packed = field.type == MFS_THRIFT_TRUE;
		else
			mfs_thrift_skip(f, field.type);
	}
}

static bool parse_page(const uint8_t *bytes, size_t len, struct page *p)
{
	struct mfs_thrift f = {bytes, bytes + len, false};
	struct mfs_thrift_field field = {.id = 0};

	*p = (struct page){.type = -1, .is_packed = true};
	while (mfs_thrift_next(&f, &field))
		switch (field.id) {
		case 1:
			p->type = mfs_thrift_int(&f, field.type);
			break;
		case 2:
			p->size = mfs_thrift_int(&f, field.type);
			break;
		case 3:
			p->packed = mfs_thrift_int(&f, field.type);
			break;
		case 5:
		case 7:
		case 8:
			if (field.type == MFS_THRIFT_STRUCT)
				read_page_kind(&f, p, field.id == 8);
			else
				f.failed = true;
			break;
		default:
			mfs_thrift_skip(&f, field.type);
		}
	p->header = (uint64_t)(f.at - bytes);
	return !f.failed;
}

/* Versions before the second have neither in their headers. */
static bool check_page(const struct column *c, struct page *p)
{
	if (p->type != DATA_PAGE_V2) {
		p->levels = p->repetitions = 0;
		p->is_packed = true;
	}
	return p->size >= 0 && p->size <= PAGE_MAX && p->packed >= 0 && p->packed <= PAGE_MAX &&
	       (uint64_t)p->packed <= c->end - c->at && p->values >= 0 && p->values <= INT32_MAX &&
	       p->levels >= 0 && p->levels <= p->size && p->repetitions >= 0 &&
	       p->repetitions <= p->packed - p->levels;
}

static int read_page_header(struct mfs_table_text *t, struct column *c, struct page *p,
			    struct mfs_error *err)
{
	for (size_t most = 512;; most = HEADER_MAX) {
		const size_t len = (size_t)mfs_min_u64(most, c->end - c->at);
		int rc = make_room(&c->packed, len, err);

		if (!rc)
			rc = read_at(t, c->at, c->packed.at, len, err);
		if (rc)
			return rc;
		if (parse_page(c->packed.at, len, p))
			break;
		if (most == HEADER_MAX || len < most)
			return damaged(t, "a page's header", err);
	}
	c->at += p->header;
	return check_page(c, p) ? 0 : damaged(t, "a page's header", err);
}

static bool unpack_gzip(const uint8_t *in, size_t len, uint8_t *out, size_t out_len)
{
	z_stream z = {.next_in = (uint8_t *)in, .avail_in = (unsigned)len};
	int rc;

	if (inflateInit2(&z, 15 + 32) != Z_OK) /* 32: gzip's header, or zlib's */
		return false;
	z.next_out = out;
	z.avail_out = (unsigned)out_len;
	rc = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	return rc == Z_STREAM_END && !z.avail_out;
}

static int unpack(struct mfs_table_text *t, int codec, const uint8_t *in, size_t len, uint8_t *out,
		  size_t out_len, struct mfs_error *err)
{
	static const char *const names[] = {"", "", "", "LZO", "BROTLI", "LZ4", "", "LZ4_RAW"};
	bool good;

	switch (codec) {
	case UNCOMPRESSED:
		good = len == out_len;
		if (good)
			memcpy(out, in, len);
		break;
	case SNAPPY:
		good = mfs_snappy_unpack(in, len, out, out_len);
		break;
	case GZIP:
		good = unpack_gzip(in, len, out, out_len);
		break;
	case ZSTD:
		good = ZSTD_decompress(out, out_len, in, len) == out_len;
		break;
	default:
		return mfs_fail(err, -ENOTSUP,
				"%s is compressed with %s: uncompressed, snappy, gzip and zstd are "
				"read here",
				t->name,
				codec > 0 && (size_t)codec < MFS_ARRAY_SIZE(names)
					? names[codec]
					: "an unknown way");
	}
	return good ? 0 : damaged(t, "a page cannot be unpacked", err);
}

/* Reads a page into *to. Levels of version 2 are not compressed. */
static int load_page(struct mfs_table_text *t, struct column *c, const struct page *p,
		     struct room *to, struct mfs_error *err)
{
	const size_t before = (size_t)(p->levels + p->repetitions);
	const size_t packed = (size_t)p->packed, size = (size_t)p->size;
	int rc = make_room(&c->packed, packed, err);

	if (!rc)
		rc = make_room(to, size + 1, err);
	if (!rc)
		rc = read_at(t, c->at, c->packed.at, packed, err);
	c->at += packed;
	if (rc || before > size)
		return rc ? rc : damaged(t, "a page's levels", err);
	memcpy(to->at, c->packed.at, before);
	return unpack(t, p->is_packed ? c->codec : UNCOMPRESSED, c->packed.at + before,
		      packed - before, to->at + before, size - before, err);
}

static bool plain_value(const uint8_t **at, const uint8_t *end, struct slice *ret)
{
	if (end - *at < 4)
		return false;
	ret->len = mfs_le32(*at);
	ret->at = *at + 4;
	if (ret->len > (size_t)(end - ret->at))
		return false;
	*at = ret->at + ret->len;
	return true;
}

static int load_dictionary(struct mfs_table_text *t, struct column *c, const struct page *p,
			   struct mfs_error *err)
{
	const uint8_t *at, *end;
	int rc = load_page(t, c, p, &c->dictionary, err);

	if (rc)
		return rc;
	/* A word has four bytes at least. */
	if (p->values > p->size / 4)
		return damaged(t, "a dictionary", err);
	free(c->words);
	c->words = calloc((size_t)p->values + 1, sizeof(*c->words));
	if (!c->words)
		return mfs_fail_nomem(err);
	c->word_count = (uint32_t)p->values;
	at = c->dictionary.at;
	end = at + p->size;
	for (uint32_t i = 0; i < c->word_count; i++)
		if (!plain_value(&at, end, &c->words[i]))
			return damaged(t, "a dictionary", err);
	return 0;
}

/* ---- lengths of DELTA_LENGTH_BYTE_ARRAY ---- */

/* Blocks of miniblocks of packed differences (Encodings.md, DELTA_BINARY_PACKED). */
static bool read_lengths(struct column *c, struct runs *r)
{
	uint64_t block, minis, total, raw, n = 0;
	int64_t value;

	if (!runs_varint(r, &block) || !runs_varint(r, &minis) || !runs_varint(r, &total) ||
	    !runs_varint(r, &raw) || !minis || minis > 512 || block % minis || block / minis % 8 ||
	    block > 1u << 20 || total > c->page_values || total > LENGTHS_MAX)
		return false;
	value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
	free(c->lengths);
	c->lengths = calloc(total + 1, sizeof(*c->lengths));
	if (!c->lengths)
		return false;
	c->length_count = total;
	c->length_at = 0;
	if (total)
		c->lengths[n++] = (uint32_t)value;
	while (n < total) {
		const uint8_t *widths;
		int64_t least;

		if (!runs_varint(r, &raw) || (uint64_t)(r->end - r->at) < minis)
			return false;
		least = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
		widths = r->at;
		r->at += minis;
		for (uint64_t m = 0; m < minis && n < total; m++) {
			if (widths[m] > 32)
				return false;
			r->width = widths[m];
			r->bit = 0;
			for (uint64_t i = 0; i < block / minis; i++) {
				uint32_t delta;

				if (!next_packed(r, &delta))
					return false;
				value = (int64_t)((uint64_t)value + (uint64_t)least + delta);
				if (n < total)
					c->lengths[n++] = (uint32_t)value;
			}
			r->at += r->bit / 8;
		}
	}
	return true;
}

/* ---- values ---- */

static int begin_values(struct mfs_table_text *t, struct column *c, struct mfs_error *err)
{
	struct runs lengths = {.at = c->next, .end = c->page_end};

	switch (c->encoding) {
	case PLAIN:
		return 0;
	case PLAIN_DICTIONARY:
	case RLE_DICTIONARY:
		c->numbers = (struct runs){0};
		if (c->next == c->page_end)
			return 0; /* of nulls alone */
		c->numbers =
			(struct runs){.at = c->next + 1, .end = c->page_end, .width = *c->next};
		return c->numbers.width <= 32 ? 0 : damaged(t, "numbers of words", err);
	case DELTA_LENGTH:
		if (!read_lengths(c, &lengths))
			return damaged(t, "lengths", err);
		c->next = lengths.at;
		return 0;
	default:
		return mfs_fail(err, -ENOTSUP,
				"%s: its column '%s' has encoding %d: PLAIN, dictionaries and "
				"DELTA_LENGTH_BYTE_ARRAY are read here",
				t->name, c->name, c->encoding);
	}
}

static int begin_page(struct mfs_table_text *t, struct column *c, const struct page *p,
		      struct mfs_error *err)
{
	uint64_t levels = (uint64_t)p->levels;
	int rc = load_page(t, c, p, &c->page, err);

	if (rc)
		return rc;
	c->page_values = (uint64_t)p->values;
	c->encoding = (int)p->encoding;
	c->next = c->page.at + p->repetitions;
	c->page_end = c->page.at + p->size;
	if (p->type == DATA_PAGE && c->optional) {
		if (c->page_end - c->next < 4)
			return damaged(t, "a page's levels", err);
		levels = mfs_le32(c->next);
		c->next += 4;
	}
	if (levels > (uint64_t)(c->page_end - c->next) || c->page_values > c->values)
		return damaged(t, "a page's levels", err);
	c->levels = (struct runs){.at = c->next, .end = c->next + levels, .width = 1};
	c->next += levels;
	return begin_values(t, c, err);
}

/* Goes on until there is a page with values. */
static int next_page(struct mfs_table_text *t, struct column *c, struct mfs_error *err)
{
	struct page p;
	int rc = 0;

	while (!rc && !c->page_values) {
		if (c->at >= c->end)
			return damaged(t, "a column ends too early", err);
		rc = read_page_header(t, c, &p, err);
		if (rc)
			break;
		if (p.type == DICTIONARY_PAGE)
			rc = load_dictionary(t, c, &p, err);
		else if (p.type == DATA_PAGE || p.type == DATA_PAGE_V2)
			rc = begin_page(t, c, &p, err);
		else
			c->at += (uint64_t)p.packed;
	}
	return rc;
}

static bool take_value(struct column *c, struct slice *ret)
{
	uint32_t n;

	switch (c->encoding) {
	case PLAIN:
		return plain_value(&c->next, c->page_end, ret);
	case DELTA_LENGTH:
		if (c->length_at == c->length_count)
			return false;
		n = c->lengths[c->length_at++];
		if (n > (size_t)(c->page_end - c->next))
			return false;
		*ret = (struct slice){c->next, n};
		c->next += n;
		return true;
	default:
		if (!next_number(&c->numbers, &n) || n >= c->word_count)
			return false;
		*ret = c->words[n];
		return true;
	}
}

/* The next value of a column; ret->at is NULL for null. */
static int next_value(struct mfs_table_text *t, struct column *c, struct slice *ret,
		      struct mfs_error *err)
{
	uint32_t there = 1;
	int rc = c->page_values ? 0 : next_page(t, c, err);

	if (rc)
		return rc;
	c->page_values--;
	c->values--;
	*ret = (struct slice){NULL, 0};
	if ((c->optional && !next_number(&c->levels, &there)) || there > 1 ||
	    (there && !take_value(c, ret)))
		return damaged(t, "a value", err);
	return 0;
}

/* ---- rows ---- */

static void next_group(struct mfs_table_text *t)
{
	t->rows = t->group_rows[t->group];
	for (size_t i = 0; i < t->count; i++) {
		struct column *c = &t->columns[i];
		const struct chunk *chunk = &c->chunks[t->group];

		c->at = chunk->offset;
		c->end = chunk->offset + chunk->size;
		c->codec = chunk->codec;
		c->values = chunk->values;
		c->page_values = 0;
		c->word_count = 0;
		c->levels = c->numbers = (struct runs){0};
		c->length_count = c->length_at = 0;
	}
	t->group++;
}

/* A value as JSON is at most six times as long. */
static bool has_room(size_t room, const struct slice *value)
{
	size_t len = value->len;

	if (len <= room / 6)
		return true;
	for (size_t i = 0; i < value->len && len <= room; i++)
		len += value->at[i] < 0x20 ? 5 : value->at[i] == '"' || value->at[i] == '\\';
	return len <= room;
}

int mfs_table_text_next(struct mfs_table_text *t, struct mfs_buf *to, bool *ret_end,
			struct mfs_error *err)
{
	const size_t start = to->len;
	struct slice value;

	while (!t->rows && t->group < t->group_count)
		next_group(t);
	*ret_end = !t->rows;
	if (*ret_end)
		return 0;
	t->rows--;
	for (size_t i = 0; i < t->count; i++) {
		int rc = next_value(t, &t->columns[i], &value, err);

		if (rc)
			return rc;
		if (to->len - start > ROW_MAX || !has_room(ROW_MAX - (to->len - start), &value))
			return mfs_fail(err, -EFBIG, "%s: a row is longer than 1 GiB", t->name);
		mfs_buf_adds(to, i ? ", " : "{");
		mfs_buf_add_json(to, t->columns[i].name);
		mfs_buf_adds(to, ": ");
		if (value.at)
			mfs_buf_add_json_bytes(to, value.at, value.len);
		else
			mfs_buf_adds(to, "null");
	}
	mfs_buf_adds(to, "}\n");
	return to->failed ? mfs_fail_nomem(err) : 0;
}
