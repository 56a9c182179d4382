/*
 * Members of a tar, as Python's tarfile reads it: torch.load() takes one whose members storages,
 * tensors and pickle are pickles, pandas.read_pickle() any. Members are found at every block that
 * has a header's sum, so that sizes which lie hide nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "fs/fsck/scan_i.h"

#define BLOCK  512
#define WINDOW (1u << 20)

enum { SUM_AT = 148, SUM_LEN = 8, TYPE_AT = 156 };

/* The field of the sum, as tarfile's nti() and Python's int(text, 8) read it. False: no number. */
static bool read_sum(const uint8_t *field, uint64_t *ret)
{
	bool digit = false;

	*ret = 0;
	if (field[0] == 0x80) {
		for (size_t i = 1; i < SUM_LEN; i++)
			*ret = *ret << 8 | field[i];
		return true;
	}
	for (size_t i = 0; i < SUM_LEN && field[i]; i++) {
		if (field[i] >= '0' && field[i] <= '7')
			*ret = *ret * 8 + field[i] - '0';
		else if (!strchr(" \t\r\n\f\v+_oO", field[i]))
			return false;
		digit |= field[i] >= '0' && field[i] <= '7';
	}
	return digit;
}

/* True for a block whose sum is right, of bytes with or without signs. */
static bool is_header(const uint8_t *b)
{
	uint64_t sum, plain = 0;
	int64_t with_signs = 0;

	if (!read_sum(b + SUM_AT, &sum))
		return false;
	for (size_t i = 0; i < BLOCK; i++) {
		const uint8_t byte = i >= SUM_AT && i < SUM_AT + SUM_LEN ? ' ' : b[i];

		plain += byte;
		with_signs += (int8_t)byte;
	}
	return sum == plain || (with_signs >= 0 && sum == (uint64_t)with_signs);
}

/* Members that are put together from pieces. */
static int check_sparse(const struct mfs_fsck_scan *s, const uint8_t *header, uint64_t at)
{
	char text[4096];
	int rc = 0;

	if (header[TYPE_AT] == 'x' || header[TYPE_AT] == 'X' || header[TYPE_AT] == 'g')
		rc = mfs_scan_begin(s, at + BLOCK, text, sizeof(text));
	else
		*text = '\0';
	if (rc)
		return rc;
	if (header[TYPE_AT] == 'S' || memmem(text, *text ? sizeof(text) : 0, "GNU.sparse", 10))
		return mfs_fail(
			s->whole->err, -ENOTSUP,
			"the member at byte %llu of the tar is sparse, which is not scanned",
			(unsigned long long)at);
	return 0;
}

static int scan_member(struct mfs_fsck_scan *s, const uint8_t *header, uint64_t at)
{
	int rc = check_sparse(s, header, at);

	return rc || s->size - at <= BLOCK ? rc : mfs_scan_place(s, at + BLOCK, MFS_SCAN_TAR);
}

static int scan_blocks(struct mfs_fsck_scan *s, uint64_t first)
{
	uint8_t *window = malloc(WINDOW);
	int rc = window ? 0 : mfs_fail_nomem(s->whole->err);

	for (uint64_t at = first; s->size - at >= BLOCK && !rc;) {
		const size_t len = mfs_min_u64(WINDOW, s->size - at) / BLOCK * BLOCK;

		rc = mfs_scan_read(s, at, window, len);
		for (size_t i = 0; i < len && !rc; i += BLOCK)
			if (is_header(window + i))
				rc = scan_member(s, window + i, at + i);
		at += len;
	}
	free(window);
	return rc;
}

int mfs_scan_tar(struct mfs_fsck_scan *s, uint64_t at)
{
	uint8_t header[BLOCK];
	int rc;

	if (s->size - at < BLOCK)
		return 0;
	rc = mfs_scan_read(s, at, header, sizeof(header));
	if (rc || !is_header(header))
		return rc;
	rc = mfs_scan_walk(s, at, s->size - at);
	return rc ? rc : scan_blocks(s, at);
}
