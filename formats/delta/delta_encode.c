#include "formats/delta/delta_encode.h"

#include <stdlib.h>
#include <unistd.h>

#include <zstd.h>

#include "formats/base/bytes.h"

#define WINDOW (1u << 20)
/* As slime writes them: other levels take longer and save little. */
#define LEVEL 1

struct mfs_delta_encoder {
	struct mfs_delta_meta meta;
	struct mfs_delta_sum sums[2];
	ZSTD_CCtx *zstd;
	uint8_t *window[2];
	uint8_t *values; /* what is to be compressed of a window: 4 bytes for each of its bytes */
	uint8_t *out;
	size_t out_size;
	int fd; /* of the tensor that is being written */
	uint64_t at;
	struct mfs_error *err;
};

/* What becomes of each window of both sides. */
typedef int on_window(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, uint64_t off,
		      size_t len);

int mfs_delta_encoder_new(const struct mfs_delta_meta *meta, struct mfs_delta_encoder **ret,
			  struct mfs_error *err)
{
	struct mfs_delta_encoder *e = calloc(1, sizeof(*e));
	int rc = e ? mfs_delta_sum_init(&e->sums[0], meta->sum, err) : mfs_fail_nomem(err);

	if (!rc)
		rc = mfs_delta_sum_init(&e->sums[1], meta->sum, err);
	if (!rc) {
		e->meta = *meta;
		e->zstd = ZSTD_createCCtx();
		e->out_size = ZSTD_CStreamOutSize();
		e->out = malloc(e->out_size);
		e->values = malloc(4ull * WINDOW);
		e->window[0] = malloc(WINDOW);
		e->window[1] = malloc(WINDOW);
		if (!e->zstd || !e->out || !e->values || !e->window[0] || !e->window[1])
			rc = mfs_fail_nomem(err);
	}
	if (rc) {
		mfs_delta_encoder_free(e);
		return rc;
	}
	*ret = e;
	return 0;
}

void mfs_delta_encoder_free(struct mfs_delta_encoder *e)
{
	if (!e)
		return;
	ZSTD_freeCCtx(e->zstd);
	for (int i = 0; i < 2; i++) {
		mfs_delta_sum_release(&e->sums[i]);
		free(e->window[i]);
	}
	free(e->values);
	free(e->out);
	free(e);
}

/* ---- compressed bytes ---- */

static int write_at(int fd, const uint8_t *p, size_t len, uint64_t off, struct mfs_error *err)
{
	while (len) {
		const ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return mfs_fail(err, n ? -errno : -EIO, "cannot write a delta: %s",
					n ? mfs_errno_text(errno) : "nothing is taken");
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int compress(struct mfs_delta_encoder *e, const void *bytes, size_t len,
		    ZSTD_EndDirective how)
{
	ZSTD_inBuffer in = {bytes, len, 0};
	size_t left;

	do {
		ZSTD_outBuffer out = {e->out, e->out_size, 0};
		int rc;

		left = ZSTD_compressStream2(e->zstd, &out, &in, how);
		if (ZSTD_isError(left))
			return mfs_fail(e->err, -EIO, "zstd: %s", ZSTD_getErrorName(left));
		rc = write_at(e->fd, e->out, out.pos, e->at, e->err);
		if (rc)
			return rc;
		e->at += out.pos;
	} while (in.pos < in.size || (how == ZSTD_e_end && left));
	return 0;
}

/* One frame that states its size: without, zstandard's decompress() refuses it. */
static int begin_frame(struct mfs_delta_encoder *e, uint64_t bytes)
{
	size_t rc = ZSTD_CCtx_reset(e->zstd, ZSTD_reset_session_only);

	if (!ZSTD_isError(rc))
		rc = ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, LEVEL);
	if (!ZSTD_isError(rc))
		rc = ZSTD_CCtx_setPledgedSrcSize(e->zstd, bytes);
	if (ZSTD_isError(rc))
		return mfs_fail(e->err, -EIO, "zstd: %s", ZSTD_getErrorName(rc));
	return 0;
}

/* ---- windows ---- */

static int read_side(struct mfs_delta_encoder *e, const struct mfs_delta_tensor *t,
		     enum mfs_delta_side side, uint64_t off, size_t len)
{
	if (t->read)
		return t->read(t->arg, side, off, e->window[side], len, e->err);
	memcpy(e->window[side], (const uint8_t *)t->memory[side] + off, len);
	return 0;
}

static int each_window(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, on_window *fn)
{
	int rc = 0;

	for (uint64_t off = 0; off < t->bytes && !rc; off += WINDOW) {
		const size_t len = mfs_min_u64(WINDOW, t->bytes - off);

		rc = read_side(e, t, MFS_DELTA_OLD, off, len);
		if (!rc)
			rc = read_side(e, t, MFS_DELTA_NEW, off, len);
		if (!rc)
			rc = fn(e, t, off, len);
	}
	return rc;
}

static void add_sums(struct mfs_delta_encoder *e, size_t len)
{
	for (int i = 0; i < 2; i++)
		mfs_delta_sum_add(&e->sums[i], e->window[i], len);
}

/* ---- xor ---- */

static uint64_t xor_window(uint8_t *restrict to, const uint8_t *restrict a,
			   const uint8_t *restrict b, size_t len)
{
	uint64_t changed = 0;

	for (size_t i = 0; i < len; i++) {
		to[i] = a[i] ^ b[i];
		changed += to[i] != 0;
	}
	return changed;
}

static int xor_one(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, uint64_t off,
		   size_t len)
{
	(void)off;
	add_sums(e, len);
	t->changed += xor_window(e->values, e->window[0], e->window[1], len);
	return compress(e, e->values, len, ZSTD_e_continue);
}

static int encode_xor(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t)
{
	int rc = begin_frame(e, t->bytes);

	if (!rc)
		rc = each_window(e, t, xor_one);
	return rc ? rc : compress(e, NULL, 0, ZSTD_e_end);
}

/* ---- overwrite ---- */

static int count_one(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, uint64_t off,
		     size_t len)
{
	(void)off;
	add_sums(e, len);
	for (size_t i = 0; i < len; i++)
		t->changed += e->window[0][i] != e->window[1][i];
	return 0;
}

static int write_positions(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, uint64_t off,
			   size_t len)
{
	size_t n = 0;

	(void)t;
	for (size_t i = 0; i < len; i++)
		if (e->window[0][i] != e->window[1][i]) {
			mfs_put_le32(e->values + n, (uint32_t)(off + i));
			n += 4;
		}
	return compress(e, e->values, n, ZSTD_e_continue);
}

static int write_values(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, uint64_t off,
			size_t len)
{
	size_t n = 0;

	(void)t, (void)off;
	for (size_t i = 0; i < len; i++)
		if (e->window[0][i] != e->window[1][i])
			e->values[n++] = e->window[1][i];
	return compress(e, e->values, n, ZSTD_e_continue);
}

/* Positions come before values: the tensor is read once for each, and once to count them. */
static int encode_overwrite(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t)
{
	uint8_t count[4];
	int rc;

	if (t->bytes > UINT32_MAX)
		return mfs_fail(
			e->err, -ENOTSUP,
			"tensor '%s' has %llu bytes, and the positions of 'overwrite' reach "
			"to 2^32: write it as 'xor'",
			t->name, (unsigned long long)t->bytes);
	rc = each_window(e, t, count_one);
	if (rc || !t->changed)
		return rc;
	mfs_put_le32(count, (uint32_t)t->changed);
	rc = begin_frame(e, 4 + 5 * t->changed);
	if (!rc)
		rc = compress(e, count, sizeof(count), ZSTD_e_continue);
	if (!rc)
		rc = each_window(e, t, write_positions);
	if (!rc)
		rc = each_window(e, t, write_values);
	return rc ? rc : compress(e, NULL, 0, ZSTD_e_end);
}

static int (*const encode[MFS_DELTA_ENCODINGS])(struct mfs_delta_encoder *e,
						struct mfs_delta_tensor *t) = {
	[MFS_DELTA_XOR] = encode_xor,
	[MFS_DELTA_OVERWRITE] = encode_overwrite,
};

int mfs_delta_encode(struct mfs_delta_encoder *e, struct mfs_delta_tensor *t, int fd, uint64_t off,
		     struct mfs_error *err)
{
	int rc;

	e->fd = fd;
	e->at = off;
	e->err = err;
	t->changed = 0;
	for (int i = 0; i < 2; i++)
		mfs_delta_sum_begin(&e->sums[i]);
	rc = encode[e->meta.encoding](e, t);
	for (int i = 0; i < 2; i++)
		mfs_delta_sum_text(&e->sums[i], t->sums[i]);
	t->stored = t->changed ? e->at - off : 0;
	return rc;
}
