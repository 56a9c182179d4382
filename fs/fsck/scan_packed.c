/*
 * Files that are compressed as a whole: joblib.load() and pandas.read_pickle() unpack them by
 * themselves, and others do it with one call. What zlib packs is unpacked here, into memory; of
 * the rest it is known by its first bytes that nobody can say what is in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/io/whole.h"
#include "fs/fsck/scan_i.h"

#define CHUNK (64u << 10)

/* ---- what is not unpacked ---- */

static const struct magic {
	const char *bytes;
	size_t len;
	const char *name;
} magics[] = {
	{"BZh", 3, "bzip2"},
	{"\xfd"
	 "7zXZ\0",
	 6, "xz"},
	{"LZIP", 4, "lzip"},
	{"\x28\xb5\x2f\xfd", 4, "zstd"},
	{"\x04\x22\x4d\x18", 4, "lz4"},
	{"\x02\x21\x4c\x18", 4, "lz4"},
	{"\xff\x06\x00\x00sNaPpY", 10, "snappy"},
	{"ZF0x", 4, "joblib's own zlib"},
	{"\x1f\x9d", 2, "compress"},
	{"7z\xbc\xaf\x27\x1c", 6, "7z"},
	{"Rar!\x1a\x07", 6, "rar"},
};

/* BZh is a word like others: a size, and the first or the last block follow it. */
static bool is_bzip2(const uint8_t *h)
{
	return h[3] >= '1' && h[3] <= '9' &&
	       (!memcmp(h + 4, "1AY&SY", 6) || !memcmp(h + 4, "\x17rE8P\x90", 6));
}

/* A frame of any content, which zstd and lz4 pass over. */
static bool is_skipped_frame(const uint8_t *h)
{
	return (h[0] & 0xf0) == 0x50 && !memcmp(h + 1, "\x2a\x4d\x18", 3);
}

/* lzma before xz has no magic: a byte of settings (joblib knows the usual one alone), the size of
 * the dictionary, that of the content or -1, and a first byte that is always 0. */
static bool is_lzma(const uint8_t *h)
{
	const uint64_t size = mfs_le64(h + 5);

	return h[0] == 0x5d && !h[1] && size && (size == UINT64_MAX || size < (1ull << 38)) &&
	       !h[13];
}

/* compress has a byte of settings, of which three bits are free. */
static bool is_compress(const uint8_t *h)
{
	return !(h[2] & 0x60) && (h[2] & 0x1f) >= 9 && (h[2] & 0x1f) <= 16;
}

/* NULL: nothing that is known. */
static const char *packer(const uint8_t *h)
{
	if (is_lzma(h))
		return "lzma";
	if (is_skipped_frame(h))
		return "zstd or lz4";
	for (const struct magic *m = magics; m < magics + MFS_ARRAY_SIZE(magics); m++)
		if (!memcmp(h, m->bytes, m->len))
			return (*m->bytes == 'B' && !is_bzip2(h)) ||
					       (m->len == 2 && !is_compress(h))
				       ? NULL
				       : m->name;
	return NULL;
}

/* ---- what is unpacked ---- */

struct unpacking {
	struct mfs_fsck_scan *from;
	struct mfs_fsck_scan to; /* what has come out, in memory */
	z_stream z;
	uint64_t at; /* the next byte that goes in */
	bool plain;  /* an array of numbers comes out */
	uint8_t in[CHUNK], out[CHUNK];
};

static int feed(struct unpacking *u)
{
	int rc;

	if (u->z.avail_in || u->at >= u->from->size)
		return 0;
	u->z.next_in = u->in;
	u->z.avail_in = (uInt)mfs_min_u64(CHUNK, u->from->size - u->at);
	rc = mfs_scan_read(u->from, u->at, u->in, u->z.avail_in);
	u->at += u->z.avail_in;
	return rc;
}

static int keep(struct unpacking *u, size_t len)
{
	struct mfs_scan_whole *whole = u->from->whole;
	int rc;

	if (!u->to.size && mfs_scan_is_plain_array(u->out, len)) {
		u->plain = true;
		return 0;
	}
	whole->unpacked += len;
	if (whole->unpacked > MFS_SCAN_MAX_UNPACKED)
		return mfs_fail(whole->err, -EFBIG,
				"more than %u bytes come out of what is compressed in it: the rest "
				"is not scanned",
				MFS_SCAN_MAX_UNPACKED);
	rc = mfs_write_whole(u->to.fd, u->out, len);
	if (rc)
		return mfs_fail(whole->err, rc, "cannot keep what is unpacked: %s", strerror(-rc));
	u->to.size += len;
	return 0;
}

/* gzip goes on after an end, with another member. */
static bool another(struct unpacking *u, int window_bits)
{
	return window_bits > 15 && (u->z.avail_in || u->at < u->from->size) &&
	       inflateReset(&u->z) == Z_OK;
}

/* *ret_whole: its end was there. */
static int unpack(struct unpacking *u, int window_bits, bool *ret_whole)
{
	uInt in;
	int rc, z = Z_OK;

	while (!(rc = feed(u)) && z == Z_OK && !u->plain && u->z.avail_in) {
		u->z.next_out = u->out;
		u->z.avail_out = CHUNK;
		in = u->z.avail_in;
		z = inflate(&u->z, Z_SYNC_FLUSH);
		if (z == Z_BUF_ERROR && u->z.avail_in < in)
			z = Z_OK;
		rc = mfs_scan_walk(u->from, u->at, in - u->z.avail_in);
		if (!rc && u->z.avail_out < CHUNK)
			rc = keep(u, CHUNK - u->z.avail_out);
		if (rc)
			return rc;
		*ret_whole |= z == Z_STREAM_END;
		if (z == Z_STREAM_END && another(u, window_bits))
			z = Z_OK;
	}
	return rc;
}

static int scan_unpacked(struct unpacking *u, bool whole, bool sure)
{
	int rc = u->to.size && !u->plain ? mfs_scan_all(&u->to) : 0;

	u->from->imports += u->to.imports;
	if (rc || whole || u->plain || !sure)
		return rc;
	return mfs_fail(u->from->whole->err, -EINVAL,
			"what is compressed in it is damaged at byte %llu",
			(unsigned long long)(u->at - u->z.avail_in));
}

static int inflate_and_scan(struct unpacking *u, int window_bits, bool sure)
{
	struct mfs_error *err = u->from->whole->err;
	bool whole = false;
	int rc;

	u->to.fd = memfd_create("unpacked", MFD_CLOEXEC);
	if (u->to.fd < 0)
		return mfs_fail(err, -errno, "cannot keep what is unpacked: %s", strerror(errno));
	if (inflateInit2(&u->z, window_bits) != Z_OK) {
		close(u->to.fd);
		return mfs_fail_nomem(err);
	}
	rc = unpack(u, window_bits, &whole);
	if (!rc)
		rc = scan_unpacked(u, whole, sure);
	inflateEnd(&u->z);
	close(u->to.fd);
	return rc;
}

/* True if anything comes out: most bytes that are no such stream end at once. */
static bool begins(const struct mfs_fsck_scan *s, uint64_t at, int window_bits)
{
	uint8_t in[512], out[64];
	z_stream z = {.next_in = in,
		      .avail_in = (uInt)mfs_min_u64(sizeof(in), s->size - at),
		      .next_out = out,
		      .avail_out = sizeof(out)};
	bool any;

	if (mfs_scan_begin(s, at, in, sizeof(in)) || inflateInit2(&z, window_bits) != Z_OK)
		return true;
	any = inflate(&z, Z_SYNC_FLUSH) >= Z_OK || z.avail_out < sizeof(out);
	inflateEnd(&z);
	return any;
}

int mfs_scan_inflate(struct mfs_fsck_scan *s, uint64_t at, int window_bits, bool sure)
{
	struct unpacking *u;
	int rc;

	if (!sure && !begins(s, at, window_bits))
		return 0;
	if (s->depth == MFS_SCAN_DEPTH)
		return mfs_fail(s->whole->err, -EFBIG,
				"what is compressed in it is compressed again more than %d times",
				MFS_SCAN_DEPTH);
	u = calloc(1, sizeof(*u));
	if (!u)
		return mfs_fail_nomem(s->whole->err);
	u->from = s;
	u->at = at;
	u->to = (struct mfs_fsck_scan){.whole = s->whole, .depth = s->depth + 1};
	rc = inflate_and_scan(u, window_bits, sure);
	free(u);
	return rc;
}

int mfs_scan_packed(struct mfs_fsck_scan *s, uint64_t at)
{
	uint8_t h[16];
	const char *name;
	int rc = mfs_scan_begin(s, at, h, sizeof(h));

	if (rc)
		return rc;
	name = packer(h);
	if (name)
		return mfs_fail(s->whole->err, -ENOTSUP,
				"what begins at byte %llu is compressed with %s, which is not "
				"unpacked",
				(unsigned long long)at, name);
	if (h[0] == 0x1f && h[1] == 0x8b && h[2] == 8)
		return mfs_scan_inflate(s, at, 15 + 16, false);
	/* RFC 1950: deflate, a window of 32 KiB at most, no dictionary, and a sum. */
	if ((h[0] & 0x0f) == 8 && h[0] >> 4 <= 7 && !(h[1] & 0x20) && (h[0] * 256 + h[1]) % 31 == 0)
		return mfs_scan_inflate(s, at, 15, false);
	return 0;
}
