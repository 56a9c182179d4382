/*
 * Records of ZIP archives (PKWARE APPNOTE 4.3). Readers do not agree on what counts: torch and
 * Python's zipfile go by the directory, others by the local headers, and each of both may lie. So
 * what lies at a local header is scanned whatever its name is, as it stands and as if it were
 * deflated, and both headers are asked for what cannot be unpacked here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "fs/fsck/scan_i.h"

#define WINDOW (8u << 20)

#define LOCAL_SIGNATURE	    "PK\3\4"
#define LOCAL_HEADER	    30 /* bytes before the name */
#define DIRECTORY_SIGNATURE "PK\1\2"
#define DIRECTORY_HEADER    46

enum { STORED = 0, DEFLATED = 8, ENCRYPTED = 1, HIGHEST_METHOD = 99 };

/* What either header says of a record. */
struct record {
	uint64_t header; /* the byte where it begins */
	unsigned flags, method;
	size_t name_len;
	char name[1024]; /* its beginning */
};

static int read_record(const struct mfs_fsck_scan *s, uint64_t at, const uint8_t *fields,
		       const uint8_t *name_len, size_t fixed, struct record *r)
{
	r->header = at;
	r->flags = mfs_le16(fields);
	r->method = mfs_le16(fields + 2);
	r->name_len = mfs_le16(name_len);
	return mfs_scan_begin(s, at + fixed, r->name,
			      r->name_len < sizeof(r->name) ? r->name_len : sizeof(r->name));
}

/* The four bytes of a header stand in tensors as well, by chance. */
static bool is_real(const struct record *r)
{
	for (size_t i = 0; i < r->name_len && i < sizeof(r->name); i++)
		if ((uint8_t)r->name[i] < ' ')
			return false;
	return r->name_len && r->name_len <= sizeof(r->name) && r->method <= HIGHEST_METHOD;
}

static bool ends_in(const struct record *r, const char *end)
{
	const size_t len = strlen(end);

	return r->name_len >= len && r->name_len <= sizeof(r->name) &&
	       !strncasecmp(r->name + r->name_len - len, end, len);
}

static int check_record(const struct mfs_fsck_scan *s, const struct record *r)
{
	if (!is_real(r))
		return 0;
	if (r->flags & ENCRYPTED)
		return mfs_fail(s->whole->err, -ENOTSUP,
				"the record at byte %llu of the archive is encrypted",
				(unsigned long long)r->header);
	if (r->method != STORED && r->method != DEFLATED)
		return mfs_fail(s->whole->err, -ENOTSUP,
				"the record at byte %llu of the archive is compressed with method "
				"%u, which is not unpacked",
				(unsigned long long)r->header, r->method);
	if (ends_in(r, "/constants.pkl"))
		return mfs_fail(s->whole->err, -ENOTSUP,
				"it is a TorchScript program, and its code is not scanned");
	return 0;
}

static int scan_local(struct mfs_fsck_scan *s, uint64_t at)
{
	uint8_t h[LOCAL_HEADER];
	struct record r;
	uint64_t payload;
	int rc;

	if (s->size - at < sizeof(h))
		return 0;
	rc = mfs_scan_read(s, at, h, sizeof(h));
	if (!rc)
		rc = read_record(s, at, h + 6, h + 26, sizeof(h), &r);
	if (!rc)
		rc = check_record(s, &r);
	if (rc)
		return rc;
	payload = at + sizeof(h) + r.name_len + mfs_le16(h + 28);
	if (payload >= s->size)
		return 0;
	rc = mfs_scan_inflate(s, payload, -15, r.method == DEFLATED && is_real(&r));
	return rc ? rc : mfs_scan_place(s, payload, MFS_SCAN_ZIP);
}

/* An entry of a directory, before another one or the directory's end. */
static int scan_entry(struct mfs_fsck_scan *s, uint64_t at)
{
	static const char *const ends[] = {DIRECTORY_SIGNATURE, "PK\5\6", "PK\6\6", "PK\6\7"};
	uint8_t h[DIRECTORY_HEADER], next[4];
	struct record r;
	int rc;

	if (s->size - at < sizeof(h))
		return 0;
	rc = mfs_scan_read(s, at, h, sizeof(h));
	if (!rc)
		rc = read_record(s, at, h + 8, h + 28, sizeof(h), &r);
	if (!rc)
		rc = mfs_scan_begin(
			s, at + sizeof(h) + r.name_len + mfs_le16(h + 30) + mfs_le16(h + 32), next,
			sizeof(next));
	for (size_t i = 0; i < MFS_ARRAY_SIZE(ends) && !rc; i++)
		if (!memcmp(next, ends[i], sizeof(next)))
			return check_record(s, &r);
	return rc;
}

static int scan_window(struct mfs_fsck_scan *s, uint64_t at, const uint8_t *window, size_t len)
{
	const uint8_t *p = window, *end = window + len;
	int rc = 0;

	while (!rc && (p = memmem(p, (size_t)(end - p), "PK", 2)) && end - p >= 4) {
		if (!memcmp(p, LOCAL_SIGNATURE, 4))
			rc = scan_local(s, at + (uint64_t)(p - window));
		else if (!memcmp(p, DIRECTORY_SIGNATURE, 4))
			rc = scan_entry(s, at + (uint64_t)(p - window));
		p++;
	}
	return rc;
}

int mfs_scan_zip(struct mfs_fsck_scan *s)
{
	uint8_t *window = malloc(mfs_min_u64(WINDOW, s->size) + 1);
	int rc = window ? 0 : mfs_fail_nomem(s->whole->err);

	for (uint64_t at = 0; at + 4 <= s->size && !rc;) {
		const size_t len = mfs_min_u64(WINDOW, s->size - at);

		rc = mfs_scan_read(s, at, window, len);
		if (!rc)
			rc = scan_window(s, at, window, len);
		at += len < WINDOW ? len : len - 3;
	}
	free(window);
	return rc;
}
