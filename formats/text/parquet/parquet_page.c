/* Pages: their headers, and their bytes unpacked; the words of dictionaries. */
#include "formats/text/parquet/parquet_i.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/text/parquet/snappy.h"
#include "formats/text/parquet/thrift.h"

/* A page's header has the least and the largest value, which may be long. */
#define HEADER_MAX (1u << 20)

enum { UNCOMPRESSED, SNAPPY, GZIP, ZSTD = 6 }; /* CompressionCodec */

static void read_page_kind(struct mfs_thrift *f, struct mfs_pq_page *p, bool second)
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

static bool parse_page(const uint8_t *bytes, size_t len, struct mfs_pq_page *p)
{
	struct mfs_thrift f = {bytes, bytes + len, false};
	struct mfs_thrift_field field = {.id = 0};

	*p = (struct mfs_pq_page){.type = -1, .is_packed = true};
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
static bool check_page(const struct mfs_pq_column *c, struct mfs_pq_page *p)
{
	if (p->type != MFS_PQ_DATA_PAGE_V2) {
		p->levels = p->repetitions = 0;
		p->is_packed = true;
	}
	return p->size >= 0 && p->size <= MFS_PQ_PAGE_MAX && p->packed >= 0 &&
	       p->packed <= MFS_PQ_PAGE_MAX && (uint64_t)p->packed <= c->end - c->at &&
	       p->values >= 0 && p->values <= INT32_MAX && p->levels >= 0 && p->levels <= p->size &&
	       p->repetitions >= 0 && p->repetitions <= p->packed - p->levels;
}

int mfs_pq_page_header(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_page *p,
		       struct mfs_error *err)
{
	for (size_t most = 512;; most = HEADER_MAX) {
		const size_t len = (size_t)mfs_min_u64(most, c->end - c->at);
		int rc = mfs_pq_room(t, &c->packed, len, err);

		if (!rc)
			rc = mfs_pq_read(t, c->at, c->packed.at, len, err);
		if (rc)
			return rc;
		if (parse_page(c->packed.at, len, p))
			break;
		if (most == HEADER_MAX || len < most)
			return mfs_pq_damaged(t, "a page's header", err);
	}
	c->at += p->header;
	return check_page(c, p) ? 0 : mfs_pq_damaged(t, "a page's header", err);
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

static int unpack(struct mfs_pq_table *t, int codec, const uint8_t *in, size_t len, uint8_t *out,
		  size_t out_len, struct mfs_error *err)
{
	static const char *const names[] = {"", "", "", "LZO", "BROTLI", "LZ4", "", "LZ4_RAW"};
	bool good;

	/* Of nulls alone: writers leave out what would be packed of nothing. */
	if (!out_len && !len)
		return 0;
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
				t->src.name,
				codec > 0 && (size_t)codec < MFS_ARRAY_SIZE(names)
					? names[codec]
					: "an unknown way");
	}
	return good ? 0 : mfs_pq_damaged(t, "a page cannot be unpacked", err);
}

/* Reads a page into *to. Levels of version 2 are not compressed. */
int mfs_pq_page_load(struct mfs_pq_table *t, struct mfs_pq_column *c, const struct mfs_pq_page *p,
		     struct mfs_pq_room *to, struct mfs_error *err)
{
	const size_t before = (size_t)(p->levels + p->repetitions);
	const size_t packed = (size_t)p->packed, size = (size_t)p->size;
	int rc = mfs_pq_room(t, &c->packed, packed, err);

	if (!rc)
		rc = mfs_pq_room(t, to, size + 1, err);
	if (!rc)
		rc = mfs_pq_read(t, c->at, c->packed.at, packed, err);
	c->at += packed;
	if (rc || before > size)
		return rc ? rc : mfs_pq_damaged(t, "a page's levels", err);
	memcpy(to->at, c->packed.at, before);
	return unpack(t, p->is_packed ? c->codec : UNCOMPRESSED, c->packed.at + before,
		      packed - before, to->at + before, size - before, err);
}

static bool fixed_value(size_t len, const uint8_t **at, const uint8_t *end,
			struct mfs_pq_slice *ret)
{
	if ((size_t)(end - *at) < len)
		return false;
	*ret = (struct mfs_pq_slice){*at, len};
	*at += len;
	return true;
}

bool mfs_pq_plain(const struct mfs_pq_column *c, const uint8_t **at, const uint8_t *end,
		  struct mfs_pq_slice *ret)
{
	if (c->type != MFS_PQ_BYTE_ARRAY)
		return fixed_value(c->type == MFS_PQ_INT64 ? 8 : 4, at, end, ret);
	if (end - *at < 4)
		return false;
	ret->len = mfs_le32(*at);
	ret->at = *at + 4;
	if (ret->len > (size_t)(end - ret->at))
		return false;
	*at = ret->at + ret->len;
	return true;
}

int mfs_pq_dictionary_load(struct mfs_pq_table *t, struct mfs_pq_column *c,
			   const struct mfs_pq_page *p, struct mfs_error *err)
{
	const uint8_t *at, *end;
	int rc = mfs_pq_page_load(t, c, p, &c->dictionary, err);

	if (rc)
		return rc;
	/* A word has four bytes at least. */
	if (p->values > p->size / 4)
		return mfs_pq_damaged(t, "a dictionary", err);
	free(c->words);
	c->words = calloc((size_t)p->values + 1, sizeof(*c->words));
	if (!c->words)
		return mfs_fail_nomem(err);
	c->word_count = (uint32_t)p->values;
	at = c->dictionary.at;
	end = at + p->size;
	for (uint32_t i = 0; i < c->word_count; i++)
		if (!mfs_pq_plain(c, &at, end, &c->words[i]))
			return mfs_pq_damaged(t, "a dictionary", err);
	return 0;
}
