#include "formats/delta/delta_apply.h"

#include <stdlib.h>
#include <string.h>

#include <zstd.h>
#include <zstd_errors.h>

#include "formats/base/bytes.h"

#define INPUT	(64u << 10)
#define BLOCK	4096 /* positions or values at once */
#define SCRATCH (64u << 10)
/* Of a frame: bytes of the longest header, and where its descriptor is. */
#define HEADER	   18
#define DESCRIPTOR 4
/* The largest window of a frame that is read, as a power of two: level 1 needs 19, level 19 needs
 * 23. */
#define WINDOW_LOG 24
/* Of a change whose size is not the tensor's. */
#define OTHER_SIZE                                                                                 \
	": the base has other sizes (was it read with other options?), or the delta is damaged"

/* The bytes of a change, decompressed from the first to the last. */
struct stream {
	const struct mfs_delta_change *change;
	ZSTD_DCtx *zstd;
	uint8_t *input;
	ZSTD_inBuffer in;
	uint64_t at; /* compressed bytes that were read */
	bool ended;  /* the frame */
};

struct mfs_delta_apply {
	const struct mfs_delta_change *change;
	enum mfs_delta_encoding_kind encoding;
	uint64_t bytes, done; /* of the tensor */
	struct stream first;  /* all of an xor; the positions of an overwrite */
	uint8_t *scratch;

	/* of an overwrite */
	struct stream values;
	uint64_t count, next;	      /* positions in all; the first that is not in block */
	uint64_t least;		      /* of the next position */
	uint8_t *positions, *changed; /* blocks of positions and of values */
	uint32_t block, used;	      /* entries there; those that were applied */
};

/* ---- streams ---- */

static int open_stream(struct stream *s, const struct mfs_delta_change *change,
		       struct mfs_error *err)
{
	s->change = change;
	s->zstd = ZSTD_createDCtx();
	s->input = malloc(INPUT);
	if (!s->zstd || !s->input ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, WINDOW_LOG)))
		return mfs_fail_nomem(err);
	return 0;
}

static void close_stream(struct stream *s)
{
	ZSTD_freeDCtx(s->zstd);
	free(s->input);
}

static int fail_stream(const struct stream *s, int code, const char *why, struct mfs_error *err)
{
	return mfs_fail(err, code, "%s: tensor '%s': %s", s->change->bytes.name, s->change->name,
			why);
}

static int fill(struct stream *s, struct mfs_error *err)
{
	const size_t len = mfs_min_u64(INPUT, s->change->bytes.size - s->at);
	int rc = mfs_source_read(&s->change->bytes, s->at, s->input, len, err);

	s->at += len;
	s->in = (ZSTD_inBuffer){s->input, len, 0};
	return rc;
}

static int fail_zstd(const struct stream *s, size_t code, struct mfs_error *err)
{
	if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge)
		return fail_stream(s, -ENOTSUP,
				   "it was compressed with a window of more than 16 MiB", err);
	return fail_stream(s, -EINVAL, ZSTD_getErrorName(code), err);
}

/* Reads up to len bytes; fewer only at the end. */
static int read_some(struct stream *s, void *buf, size_t len, size_t *ret, struct mfs_error *err)
{
	ZSTD_outBuffer out = {buf, len, 0};
	int rc = 0;

	while (!rc && !s->ended && out.pos < len) {
		const size_t before = out.pos;
		size_t left;

		if (s->in.pos == s->in.size && s->at < s->change->bytes.size)
			rc = fill(s, err);
		if (rc)
			break;
		left = ZSTD_decompressStream(s->zstd, &out, &s->in);
		if (ZSTD_isError(left))
			return fail_zstd(s, left, err);
		s->ended = !left;
		if (left && out.pos == before && s->in.pos == s->in.size &&
		    s->at == s->change->bytes.size)
			return fail_stream(s, -EINVAL, "its change is cut short", err);
	}
	*ret = out.pos;
	return rc;
}

static int read_all(struct stream *s, void *buf, size_t len, struct mfs_error *err)
{
	size_t n;
	int rc = read_some(s, buf, len, &n, err);

	if (rc || n == len)
		return rc;
	return fail_stream(s, -EINVAL, "its change ends before the tensor" OTHER_SIZE, err);
}

/* One frame, and nothing after it. */
static int end_stream(struct stream *s, struct mfs_error *err)
{
	uint8_t more;
	size_t n;
	int rc = read_some(s, &more, 1, &n, err);

	if (!rc && (n || s->in.pos < s->in.size || s->at < s->change->bytes.size))
		rc = fail_stream(s, -EINVAL, "its change is longer than the tensor" OTHER_SIZE,
				 err);
	return rc;
}

/* ---- overwrite ---- */

static int skip(struct mfs_delta_apply *a, struct stream *s, uint64_t len, struct mfs_error *err)
{
	int rc = 0;

	while (len && !rc) {
		const size_t n = mfs_min_u64(SCRATCH, len);

		rc = read_all(s, a->scratch, n, err);
		len -= n;
	}
	return rc;
}

/* Positions and values are read by two streams: the values begin after all positions. */
static int open_overwrite(struct mfs_delta_apply *a, struct mfs_error *err)
{
	uint8_t count[4];
	int rc = open_stream(&a->values, a->change, err);

	a->positions = malloc(4 * BLOCK);
	a->changed = malloc(BLOCK);
	if (!rc && (!a->positions || !a->changed))
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = read_all(&a->first, count, sizeof(count), err);
	if (rc)
		return rc;
	a->count = mfs_le32(count);
	if (a->count > a->bytes)
		return fail_stream(&a->first, -EINVAL, "it changes more bytes than the tensor has",
				   err);
	return skip(a, &a->values, 4 + 4 * a->count, err);
}

static int next_block(struct mfs_delta_apply *a, struct mfs_error *err)
{
	int rc;

	a->block = (uint32_t)mfs_min_u64(BLOCK, a->count - a->next);
	a->used = 0;
	a->next += a->block;
	rc = read_all(&a->first, a->positions, 4ull * a->block, err);
	return rc ? rc : read_all(&a->values, a->changed, a->block, err);
}

static int overwrite(struct mfs_delta_apply *a, uint8_t *buf, size_t len, struct mfs_error *err)
{
	for (;;) {
		uint64_t position;

		if (a->used == a->block) {
			int rc = a->next < a->count ? next_block(a, err) : 0;

			if (rc || !a->block || a->used == a->block)
				return rc;
		}
		position = mfs_le32(a->positions + 4ull * a->used);
		if (position < a->least || position >= a->bytes)
			return fail_stream(&a->first, -EINVAL,
					   "the positions of its change do not ascend, or lie "
					   "beyond its end",
					   err);
		if (position >= a->done + len)
			return 0;
		buf[position - a->done] = a->changed[a->used++];
		a->least = position + 1;
	}
}

static int end_overwrite(struct mfs_delta_apply *a, struct mfs_error *err)
{
	if (a->next < a->count || a->used < a->block)
		return fail_stream(&a->first, -EINVAL,
				   "its change is longer than the tensor" OTHER_SIZE, err);
	return end_stream(&a->values, err);
}

/* ---- xor ---- */

static int xor_bytes(struct mfs_delta_apply *a, uint8_t *buf, size_t len, struct mfs_error *err)
{
	int rc = 0;

	while (len && !rc) {
		const size_t n = mfs_min_u64(SCRATCH, len);

		rc = read_all(&a->first, a->scratch, n, err);
		for (size_t i = 0; i < n && !rc; i++)
			buf[i] ^= a->scratch[i];
		buf += n;
		len -= n;
	}
	return rc;
}

/* ---- room ---- */

/* The window of a frame of one segment is as large as the frame; another frame has a byte with the
 * window's exponent, and eighths of that power of two to add. */
static uint64_t window_of(const uint8_t *header, size_t len)
{
	const unsigned long long size = ZSTD_getFrameContentSize(header, len);
	const bool one_segment = len > DESCRIPTOR && header[DESCRIPTOR] & 0x20;
	uint64_t power;

	if (size == ZSTD_CONTENTSIZE_ERROR || len < DESCRIPTOR + 2)
		return 0;
	if (one_segment)
		return size;
	power = 1ull << (10 + (header[DESCRIPTOR + 1] >> 3));
	return power + (power >> 3) * (header[DESCRIPTOR + 1] & 7);
}

int mfs_delta_apply_room(const struct mfs_delta_change *change,
			 enum mfs_delta_encoding_kind encoding, uint64_t *ret,
			 struct mfs_error *err)
{
	uint8_t header[HEADER];
	const size_t len = mfs_min_u64(HEADER, change->bytes.size);
	int rc = mfs_source_read(&change->bytes, 0, header, len, err);
	uint64_t window = rc ? 0 : window_of(header, len);

	/* A larger one is refused. */
	window = mfs_min_u64(window, 1ull << WINDOW_LOG);
	*ret = encoding == MFS_DELTA_OVERWRITE ? 2 * window : window;
	return rc;
}

/* ---- both ---- */

int mfs_delta_apply_new(const struct mfs_delta_change *change,
			enum mfs_delta_encoding_kind encoding, uint64_t bytes,
			struct mfs_delta_apply **ret, struct mfs_error *err)
{
	struct mfs_delta_apply *a = calloc(1, sizeof(*a));
	int rc = a ? open_stream(&a->first, change, err) : mfs_fail_nomem(err);

	if (!rc) {
		a->change = change;
		a->encoding = encoding;
		a->bytes = bytes;
		a->scratch = malloc(SCRATCH);
		rc = a->scratch ? 0 : mfs_fail_nomem(err);
	}
	if (!rc && encoding == MFS_DELTA_OVERWRITE)
		rc = open_overwrite(a, err);
	if (rc) {
		mfs_delta_apply_free(a);
		return rc;
	}
	*ret = a;
	return 0;
}

void mfs_delta_apply_free(struct mfs_delta_apply *a)
{
	if (!a)
		return;
	close_stream(&a->first);
	close_stream(&a->values);
	free(a->scratch);
	free(a->positions);
	free(a->changed);
	free(a);
}

int mfs_delta_apply_next(struct mfs_delta_apply *a, void *buf, size_t len, struct mfs_error *err)
{
	int rc = a->encoding == MFS_DELTA_XOR ? xor_bytes(a, buf, len, err)
					      : overwrite(a, buf, len, err);

	a->done += len;
	return rc;
}

int mfs_delta_apply_end(struct mfs_delta_apply *a, struct mfs_error *err)
{
	return a->encoding == MFS_DELTA_XOR ? end_stream(&a->first, err) : end_overwrite(a, err);
}
