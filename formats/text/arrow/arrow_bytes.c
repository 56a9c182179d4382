/* Bytes of buffers: windows of them, or unpacked. */
#include "formats/text/arrow/arrow_text_i.h"

#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "formats/base/bytes.h"

#define WINDOW	  (256u << 10)
#define WHOLE_MAX ((1u << 30) - 1)
/* Bytes of windows of a table, all together. */
#define WINDOWS_MAX (UINT64_C(4) << 30)
#define LENGTH	    8 /* bytes before a compressed buffer: its length when it is unpacked */

static int make_room(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t, size_t size,
		     struct mfs_error *err)
{
	uint8_t *window;

	if (size <= b->room)
		return 0;
	if (size - b->room > WINDOWS_MAX - *t->taken)
		return mfs_fail(err, -ENOTSUP,
				"%s: record batch %llu, column '%s': its buffers and those of the "
				"columns before it are too large together: at most 4 GiB are "
				"unpacked at a time",
				t->src.name, (unsigned long long)t->batch.number,
				t->column ? t->column : "of a dictionary");
	window = realloc(b->window, size);
	if (!window)
		return mfs_fail_nomem(err);
	*t->taken += size - b->room;
	b->taken = t->taken;
	b->window = window;
	b->room = size;
	return 0;
}

static int unpack(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t, uint64_t stored,
		  struct mfs_error *err)
{
	const size_t len = (size_t)stored - LENGTH;
	unsigned long long stated;
	void *packed;
	int rc = mfs_source_slurp(&t->src, b->offset + LENGTH, len, &packed, err);

	if (rc)
		return rc;
	/* Most frames state their size: no memory is taken for one that has another. */
	stated = ZSTD_getFrameContentSize(packed, len);
	if (stated == ZSTD_CONTENTSIZE_ERROR ||
	    (stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != b->size))
		rc = mfs_arrow_damaged(t, "a buffer cannot be unpacked", err);
	if (!rc)
		rc = make_room(b, t, (size_t)b->size, err);
	if (!rc && ZSTD_decompress(b->window, (size_t)b->size, packed, len) != b->size)
		rc = mfs_arrow_damaged(t, "a buffer cannot be unpacked", err);
	free(packed);
	b->at = 0;
	b->len = rc ? 0 : b->size;
	return rc;
}

/* The length stands before the bytes; -1: they are as they were (Message.fbs, BodyCompression). */
static int take_packed(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t, uint64_t stored,
		       struct mfs_error *err)
{
	uint8_t length[LENGTH];
	int rc;

	if (stored < LENGTH)
		return mfs_arrow_damaged(t, "a compressed buffer is shorter than its length", err);
	rc = mfs_source_read(&t->src, b->offset, length, LENGTH, err);
	if (rc)
		return rc;
	b->size = mfs_le64(length);
	if (b->size == UINT64_MAX) {
		b->offset += LENGTH;
		b->size = stored - LENGTH;
		return 0;
	}
	if (b->size > WHOLE_MAX)
		return mfs_fail(
			err, -ENOTSUP,
			"%s: record batch %llu, column '%s': a buffer of %llu bytes: at most "
			"1 GiB is unpacked here",
			t->src.name, (unsigned long long)t->batch.number, t->column,
			(unsigned long long)b->size);
	return b->size ? unpack(b, t, stored, err) : 0;
}

int mfs_arrow_bytes_set(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t,
			const struct mfs_arrow_batch *batch, uint32_t buffer, bool whole,
			struct mfs_error *err)
{
	int rc = mfs_arrow_buffer(t->arrow, batch, buffer, &b->offset, &b->size, err);

	b->is_whole = whole;
	b->at = b->len = 0;
	if (rc || batch->codec == MFS_ARROW_PLAIN || !b->size)
		return rc;
	if (batch->codec == MFS_ARROW_ZSTD)
		return take_packed(b, t, b->size, err);
	return mfs_fail(err, -ENOTSUP,
			"%s: its record batches are compressed with LZ4: uncompressed and zstd are "
			"read here",
			t->src.name);
}

int mfs_arrow_bytes_get(struct mfs_arrow_bytes *b, const struct mfs_arrow_table *t, uint64_t at,
			uint64_t len, const uint8_t **ret, struct mfs_error *err)
{
	const bool whole = b->is_whole && b->size <= WHOLE_MAX;
	uint64_t first, size;
	int rc;

	if (!mfs_range_ok(at, len, b->size))
		return mfs_arrow_damaged(t, "a buffer is smaller than its values", err);
	if (at < b->at || at - b->at > b->len || len > b->len - (at - b->at)) {
		first = whole ? 0 : at;
		size = whole ? b->size : mfs_min_u64(mfs_max_u64(len, WINDOW), b->size - at);
		b->len = 0;
		rc = make_room(b, t, (size_t)size, err);
		if (!rc)
			rc = mfs_source_read(&t->src, b->offset + first, b->window, (size_t)size,
					     err);
		if (rc)
			return rc;
		b->at = first;
		b->len = size;
	}
	*ret = len ? b->window + (at - b->at) : (const uint8_t *)"";
	return 0;
}

void mfs_arrow_bytes_release(struct mfs_arrow_bytes *b)
{
	free(b->window);
	if (b->taken)
		*b->taken -= b->room;
	*b = (struct mfs_arrow_bytes){0};
}
