#include "formats/dataset/rows/arrow_rows.h"

#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/rows/arrow_rows_i.h"
#include "formats/io/fileset.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are copied as they are on disk");

#define CHUNK 512 /* list offsets that are read at once */
/* List offsets count as so many bytes handed out, so that their pages do not stay mapped for ever.
 * A place counts as more than its bytes, as a fault maps what is around it too. Rows far apart map
 * a page each, which is worth keeping for a while; who reads many of them lets go of the pages. */
#define PLACE_BYTES (16u << 10)
#define ROW_BYTES   (2u << 10)

static const struct mfs_arrow_rows *rows_of(const struct mfs_rows *r)
{
	return (const struct mfs_arrow_rows *)r;
}

static void served(const struct mfs_arrow_rows *r, uint64_t bytes)
{
	if (r->set)
		mfs_fileset_served(r->set, bytes);
}

static int check_shard(const struct mfs_arrow_rows *r, const struct mfs_arrow_shard *p,
		       struct mfs_error *err)
{
	return r->set ? mfs_fileset_check(r->set, p->file, err) : 0;
}

/* ---- where a row or a token is ---- */

/* The last shard that begins at or before a row, or a token. */
static const struct mfs_arrow_shard *shard_of_row(const struct mfs_arrow_rows *r, uint64_t row)
{
	return &r->shards[mfs_last_while(i, r->shard_count, r->shards[i].row <= row)];
}

static const struct mfs_arrow_shard *shard_of_token(const struct mfs_arrow_rows *r, uint64_t token)
{
	return &r->shards[mfs_last_while(i, r->shard_count, r->shards[i].token <= token)];
}

/* The same within a shard, which has at least one extent; row and token are counted from its
 * beginning. */
static const struct mfs_arrow_extent *extent_of_row(const struct mfs_arrow_shard *p, uint64_t row)
{
	return &p->extents[mfs_last_while(i, p->extent_count, p->extents[i].row <= row)];
}

static const struct mfs_arrow_extent *extent_of_token(const struct mfs_arrow_shard *p,
						      uint64_t token)
{
	return &p->extents[mfs_last_while(i, p->extent_count, p->extents[i].token <= token)];
}

/* ---- starts ---- */

static int bad_offset(const struct mfs_arrow_shard *p, const struct mfs_arrow_extent *extent,
		      uint64_t row, struct mfs_error *err)
{
	return mfs_fail(err, -EIO, "%s: the list offset of row %llu is damaged", p->src.name,
			(unsigned long long)(extent->row + row));
}

/* List offsets of the rows [first, first+count) of an extent, the last of which may be its end: as
 * tokens of the shard, checked to lie inside of the extent and in order. count <= CHUNK. */
static int read_offsets(const struct mfs_arrow_shard *p, const struct mfs_arrow_extent *extent,
			uint64_t first, uint64_t count, uint64_t *ret, struct mfs_error *err)
{
	const unsigned size = p->wide ? 8 : 4;
	const uint64_t tokens = extent[1].token - extent->token;
	uint8_t bytes[CHUNK * 8];
	uint64_t before = 0, v;
	int rc;

	if (!extent->offsets) {
		for (uint64_t i = 0; i < count; i++)
			ret[i] = extent->token + (first + i) * extent->length;
		return 0;
	}
	rc = mfs_source_read(&p->src, extent->offsets + first * size, bytes, count * size, err);
	for (uint64_t i = 0; i < count && !rc; i++, before = v) {
		v = (p->wide ? mfs_le64(bytes + 8 * i) : mfs_le32(bytes + 4 * i)) - extent->base;
		if (v < before || v > tokens)
			return bad_offset(p, extent, first + i, err);
		ret[i] = extent->token + v;
	}
	return rc;
}

/* Starts of rows of one shard, from its row `first` on. The end of its last row is a start of
 * the next shard. */
static int shard_starts(const struct mfs_arrow_shard *p, uint64_t first, uint64_t count,
			uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_extent *extent = extent_of_row(p, first);
	uint64_t n;
	int rc = 0;

	for (; count && !rc; first += n, count -= n, ret += n) {
		while (first >= extent[1].row)
			extent++;
		n = mfs_min_u64(mfs_min_u64(count, CHUNK), extent[1].row - first);
		rc = read_offsets(p, extent, first - extent->row, n, ret, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] += p->token;
	}
	return rc;
}

static int arrow_starts(const struct mfs_rows *rows, uint64_t first, uint64_t count, uint64_t *ret,
			struct mfs_error *err)
{
	const struct mfs_arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_row(r, first);
	uint64_t n;
	int rc = 0;

	if (first + count > rows->rows) /* the end is in no shard */
		ret[--count] = rows->tokens;
	for (; count && !rc; first += n, count -= n, ret += n) {
		while (first >= p[1].row)
			p++;
		n = mfs_min_u64(count, p[1].row - first);
		rc = check_shard(r, p, err);
		if (!rc)
			rc = shard_starts(p, first - p->row, n, ret, err);
		served(r, mfs_max_u64(8 * n, PLACE_BYTES));
	}
	return rc;
}

/* The row of an extent that has its token t: binary search in the list offsets. */
static int find_in_extent(const struct mfs_arrow_shard *p, const struct mfs_arrow_extent *extent,
			  uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	uint64_t start;
	int rc = 0;

	if (!extent->offsets) {
		*ret = t / extent->length;
		return 0;
	}
	*ret = mfs_last_while(i, extent[1].row - extent->row,
			      !rc && !(rc = read_offsets(p, extent, i, 1, &start, err)) &&
				      start - extent->token <= t);
	return rc;
}

static int arrow_find(const struct mfs_rows *rows, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_token(r, t);
	const struct mfs_arrow_extent *extent = extent_of_token(p, t - p->token);
	uint64_t row;
	int rc = check_shard(r, p, err);

	if (!rc)
		rc = find_in_extent(p, extent, t - p->token - extent->token, &row, err);
	served(r, PLACE_BYTES);
	if (!rc)
		*ret = p->row + extent->row + row;
	return rc;
}

/* The start of a row and, if count is 2, its end. *shard is that of the row before, or NULL:
 * while rows are in the same file, it is checked once. */
static int row_starts(const struct mfs_arrow_rows *r, uint64_t row, uint64_t count,
		      const struct mfs_arrow_shard **shard, uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_shard *p = *shard;
	const struct mfs_arrow_extent *extent;
	int rc = 0;

	if (!p || row < p->row || row >= p[1].row) {
		p = *shard = shard_of_row(r, row);
		rc = check_shard(r, p, err);
	}
	extent = extent_of_row(p, row - p->row);
	if (!rc)
		rc = read_offsets(p, extent, row - p->row - extent->row, count, ret, err);
	for (uint64_t i = 0; i < count && !rc; i++)
		ret[i] += p->token;
	return rc;
}

static int arrow_gather_starts(const struct mfs_rows *rows, const int32_t *numbers, uint64_t count,
			       uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_shard *p = NULL;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++)
		rc = row_starts(rows_of(rows), (uint64_t)numbers[i], 1, &p, &ret[i], err);
	served(rows_of(rows), count * ROW_BYTES);
	return rc;
}

static int arrow_gather_lengths(const struct mfs_rows *rows, const int32_t *numbers, uint64_t count,
				int32_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_shard *p = NULL;
	uint64_t ends[2];
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		rc = row_starts(rows_of(rows), (uint64_t)numbers[i], 2, &p, ends, err);
		if (!rc && ends[1] - ends[0] > INT32_MAX)
			rc = mfs_fail(err, -EINVAL,
				      "%s: row %d has %llu tokens, more than 2^31 - 1", rows->name,
				      numbers[i], (unsigned long long)(ends[1] - ends[0]));
		if (!rc)
			ret[i] = (int32_t)(ends[1] - ends[0]);
	}
	served(rows_of(rows), count * ROW_BYTES);
	return rc;
}

/* ---- tokens ---- */

/* Checks unsigned ids that are shown as signed ones: those with a top bit have no value. t: the
 * first one's number in the stream. */
static int check_narrowed(const struct mfs_rows *rows, const void *tokens, uint64_t count,
			  uint64_t t, struct mfs_error *err)
{
	const uint8_t *top = (const uint8_t *)tokens + rows->token_size - 1;
	uint64_t row = 0;

	for (uint64_t i = 0; i < count; i++, top += rows->token_size) {
		if (!(*top & 0x80))
			continue;
		if (arrow_find(rows, t + i, &row, err))
			return err ? err->code : -EIO;
		return mfs_fail(err, -EIO, "%s: row %llu has a token id that %s cannot hold",
				rows->name, (unsigned long long)row, mfs_dtype_torch(rows->dtype));
	}
	return 0;
}

static int arrow_read(const struct mfs_rows *rows, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct mfs_arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_token(r, first), *checked = NULL;
	const struct mfs_arrow_extent *extent = extent_of_token(p, first - p->token);
	const unsigned size = rows->token_size;
	uint8_t *to = ret;
	uint64_t n;
	int rc = 0;

	for (; count && !rc; first += n, count -= n, to += n * size) {
		uint64_t at;

		while (first >= p[1].token) {
			p++;
			extent = p->extents;
		}
		if (p != checked)
			rc = check_shard(r, p, err);
		checked = p;
		at = first - p->token;
		while (at >= extent[1].token)
			extent++;
		n = mfs_min_u64(count, extent[1].token - at);
		if (!rc)
			rc = mfs_source_read(&p->src, extent->values + (at - extent->token) * size,
					     to, n * size, err);
		served(r, n * size);
		if (!rc && r->narrowed)
			rc = check_narrowed(rows, to, n, first, err);
	}
	return rc;
}

static int arrow_extent(const struct mfs_rows *rows, uint64_t t, uint64_t max,
			struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct mfs_arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_token(r, t);
	const struct mfs_arrow_extent *extent = extent_of_token(p, t - p->token);
	const uint64_t at = t - p->token;

	(void)err;
	if (!r->set || r->narrowed)
		return -ENODATA;
	*ret = (struct mfs_bin_extent){
		.set = r->set,
		.file = p->file,
		.offset = extent->values + (at - extent->token) * rows->token_size,
		.len = mfs_min_u64(max, extent[1].token - at) * rows->token_size,
	};
	return 0;
}

static void arrow_drop(const struct mfs_rows *rows)
{
	served(rows_of(rows), (uint64_t)1 << 30); /* so much that the set does it */
}

const struct mfs_rows_ops mfs_arrow_rows_ops = {
	.starts = arrow_starts,
	.find = arrow_find,
	.read = arrow_read,
	.extent = arrow_extent,
	.gather_starts = arrow_gather_starts,
	.gather_lengths = arrow_gather_lengths,
	.drop = arrow_drop,
	.free = mfs_arrow_rows_free,
};
