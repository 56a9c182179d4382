#include "fs/pack/input/unpack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "formats/base/array.h"

struct mfs_unpacker {
	const struct way *way;
	const char *name;
	bool between; /* frames or members: the input may end here */
	z_stream gzip;
	ZSTD_DStream *zstd;
};

struct way {
	const char *name;
	size_t len;
	uint8_t magic[6];
	/* NULL: not known here. */
	int (*begin)(struct mfs_unpacker *u);
	void (*end)(struct mfs_unpacker *u);
	/* Moves in and out. The sentence's end, or NULL. */
	const char *(*step)(struct mfs_unpacker *u, ZSTD_inBuffer *in, ZSTD_outBuffer *out);
};

/* ---- gzip ---- */

static int gzip_begin(struct mfs_unpacker *u)
{
	return inflateInit2(&u->gzip, 15 + 16) == Z_OK ? 0 : -ENOMEM; /* 16: gzip's header */
}

static void gzip_end(struct mfs_unpacker *u)
{
	inflateEnd(&u->gzip);
}

/* A file may be several members, one after the other, and zeros after the last, as tape drives left
 * them (RFC 1952; gzip(1)). */
static const char *gzip_step(struct mfs_unpacker *u, ZSTD_inBuffer *in, ZSTD_outBuffer *out)
{
	const uint8_t *from = in->src;
	int rc;

	if (u->between) {
		while (in->pos < in->size && !from[in->pos])
			in->pos++;
		if (in->pos == in->size)
			return NULL;
		inflateReset(&u->gzip);
		u->between = false;
	}
	u->gzip.next_in = (uint8_t *)from + in->pos;
	u->gzip.avail_in = (unsigned)(in->size - in->pos);
	u->gzip.next_out = (uint8_t *)out->dst + out->pos;
	u->gzip.avail_out = (unsigned)(out->size - out->pos);
	rc = inflate(&u->gzip, Z_NO_FLUSH);
	in->pos = in->size - u->gzip.avail_in;
	out->pos = out->size - u->gzip.avail_out;
	u->between = rc == Z_STREAM_END;
	if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)
		return NULL;
	return u->gzip.msg ? u->gzip.msg : "out of memory";
}

/* ---- zstd ---- */

static int zstd_begin(struct mfs_unpacker *u)
{
	u->zstd = ZSTD_createDStream();
	return u->zstd ? 0 : -ENOMEM;
}

static void zstd_end(struct mfs_unpacker *u)
{
	ZSTD_freeDStream(u->zstd);
}

static const char *zstd_step(struct mfs_unpacker *u, ZSTD_inBuffer *in, ZSTD_outBuffer *out)
{
	const size_t rc = ZSTD_decompressStream(u->zstd, out, in);

	u->between = rc == 0;
	return ZSTD_isError(rc) ? ZSTD_getErrorName(rc) : NULL;
}

/* ---- both ---- */

static const struct way ways[] = {
	{"gzip", 2, {0x1f, 0x8b}, gzip_begin, gzip_end, gzip_step},
	{"zstd", 4, {0x28, 0xb5, 0x2f, 0xfd}, zstd_begin, zstd_end, zstd_step},
	{"bzip2", 3, {'B', 'Z', 'h'}, NULL, NULL, NULL},
	{"xz", 6, {0xfd, '7', 'z', 'X', 'Z', 0}, NULL, NULL, NULL},
	{"lz4", 4, {0x04, 0x22, 0x4d, 0x18}, NULL, NULL, NULL},
	{"zip", 4, {'P', 'K', 3, 4}, NULL, NULL, NULL},
};

static const struct way *way_of(const uint8_t *first, size_t len)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(ways); i++)
		if (len >= ways[i].len && !memcmp(first, ways[i].magic, ways[i].len))
			return &ways[i];
	return NULL;
}

int mfs_unpacker_new(const uint8_t *first, size_t len, const char *name, struct mfs_unpacker **ret,
		     struct mfs_error *err)
{
	const struct way *way = way_of(first, len);
	struct mfs_unpacker *u;

	*ret = NULL;
	if (!way)
		return 0;
	if (!way->begin)
		return mfs_fail(err, -ENOTSUP,
				"%s is compressed with %s: only gzip and zstd are unpacked here; "
				"pipe the unpacked text in",
				name, way->name);
	u = calloc(1, sizeof(*u));
	if (u)
		*u = (struct mfs_unpacker){.way = way, .name = name};
	if (!u || way->begin(u)) {
		free(u);
		return mfs_fail_nomem(err);
	}
	*ret = u;
	return 0;
}

void mfs_unpacker_free(struct mfs_unpacker *u)
{
	if (!u)
		return;
	u->way->end(u);
	free(u);
}

int mfs_unpack(struct mfs_unpacker *u, const uint8_t **in, size_t *in_len, uint8_t *out,
	       size_t room, size_t *ret_len, struct mfs_error *err)
{
	ZSTD_inBuffer from = {*in, *in_len, 0};
	ZSTD_outBuffer to = {out, room, 0};
	const char *wrong = NULL;

	/* Without input there may still be output, if the last call had no room for it. */
	if (*in_len || !u->between)
		do
			wrong = u->way->step(u, &from, &to);
		while (!wrong && from.pos < from.size && !to.pos);
	*in += from.pos;
	*in_len -= from.pos;
	*ret_len = to.pos;
	return wrong ? mfs_fail(err, -EINVAL, "%s: its %s data is damaged: %s", u->name,
				u->way->name, wrong)
		     : 0;
}

int mfs_unpack_end(const struct mfs_unpacker *u, struct mfs_error *err)
{
	return u->between ? 0
			  : mfs_fail(err, -EINVAL, "%s: its %s data ends too early", u->name,
				     u->way->name);
}
