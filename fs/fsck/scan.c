#define _GNU_SOURCE
#include "fs/fsck/scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/base/bytes.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"

#define WINDOW	     (8u << 20)
#define LOCAL_HEADER 30 /* bytes before the name: PKWARE APPNOTE 4.3.7 */
#define MAX_PICKLES  64 /* of a stream that is no ZIP */
#define FIRST_READ   (4u << 10)
/* Pickles of an honest file do not overlap: each of its bytes is gone through less than twice. */
#define MAX_WALKED(size) (4 * (size) + (1u << 20))

struct scan {
	int fd;
	uint64_t size;
	mfs_pickle_found found;
	void *arg;
	uint32_t pickles, imports;
	uint64_t walked; /* bytes of pickles that were gone through */
	struct mfs_error *err;
};

static int read_at(const struct scan *s, uint64_t at, void *to, size_t len)
{
	int rc = mfs_pread_whole(s->fd, at, to, len);

	return rc ? mfs_fail(s->err, rc, "cannot read byte %llu: %s", (unsigned long long)at,
			     strerror(-rc))
		  : 0;
}

static void count_import(void *arg, const char *module, size_t module_len, const char *name,
			 size_t name_len)
{
	struct scan *s = arg;

	s->imports++;
	s->found(s->arg, module, module_len, name, name_len);
}

/* ---- one pickle ---- */

/* The first len bytes of it. *ret_end: where it ends, or where it is wrong. */
static int scan_bytes(struct scan *s, uint64_t at, size_t len, uint64_t *ret_end)
{
	uint8_t *bytes = malloc(len + 1);
	size_t end = 0;
	int rc = bytes ? read_at(s, at, bytes, len) : mfs_fail_nomem(s->err);

	if (!rc)
		rc = mfs_pickle_globals(bytes, len, count_import, s, &end, s->err);
	free(bytes);
	*ret_end = at + end;
	s->walked += rc == -ENODATA ? len : end;
	if ((!rc || rc == -ENODATA || rc == -EINVAL) && s->walked > MAX_WALKED(s->size))
		return mfs_fail(s->err, -EFBIG,
				"its pickles lie in one another: what is behind byte %llu is not "
				"scanned",
				(unsigned long long)at);
	return rc;
}

/* Most pickles are small, and what follows may be tensors: more is read as long as it goes on.
 * -EINVAL: it is broken, and *ret_end is where it began, since no pickle follows. */
static int scan_pickle(struct scan *s, uint64_t at, uint64_t *ret_end)
{
	const uint64_t left = s->size - at;
	const uint32_t before = s->imports;
	size_t len = FIRST_READ;
	int rc;

	while ((rc = scan_bytes(s, at, mfs_min_u64(left, len), ret_end)) == -ENODATA &&
	       len < left) {
		if (len >= MFS_SCAN_MAX_PICKLE)
			return mfs_fail(s->err, -EFBIG,
					"the pickle at byte %llu has more than %u bytes",
					(unsigned long long)at, MFS_SCAN_MAX_PICKLE);
		s->imports = before; /* they are found again */
		len *= 8;
	}
	s->pickles += !rc || s->imports > before;
	if (rc != -ENODATA && rc != -EINVAL)
		return rc;
	*ret_end = s->size;
	/* An unpickler that fails before it has imported anything has done nothing. */
	return s->imports == before ? 0 : rc;
}

/* An array of NumPy may have objects, as a pickle behind its header (numpy/lib/format.py). *at:
 * where the file begins, and where its elements do. */
static int skip_npy_header(const struct scan *s, uint64_t *at)
{
	uint8_t h[12];
	uint64_t to;
	int rc;

	if (s->size - *at < sizeof(h))
		return 0;
	rc = read_at(s, *at, h, sizeof(h));
	if (rc || memcmp(h, "\x93NUMPY", 6))
		return rc;
	to = *at + (h[6] == 1 ? 10u + mfs_le16(h + 8) : 12u + (uint64_t)mfs_le32(h + 8));
	if (to <= s->size)
		*at = to;
	return 0;
}

/* ---- archives ---- */

static bool ends_in(const char *const *ends, const char *name, size_t len)
{
	for (; *ends; ends++) {
		const size_t end = strlen(*ends);

		if (len >= end && !memcmp(name + len - end, *ends, end))
			return true;
	}
	return false;
}

/* A record of such a name is a pickle, however it begins. */
static bool is_pickle_name(const char *name, size_t len)
{
	static const char *const ends[] = {".pkl", ".pickle", ".joblib", ".dat", ".data", NULL};

	return ends_in(ends, name, len);
}

/* A record of such a name may have pickles in it. */
static bool may_hold_pickles(const char *name, size_t len)
{
	static const char *const ends[] = {".npy", ".npz",  ".pt",  ".pth",
					   ".bin", ".ckpt", ".zip", NULL};

	return is_pickle_name(name, len) || ends_in(ends, name, len);
}

static bool take(const char **at, const char *text)
{
	const size_t len = strlen(text);

	if (strncmp(*at, text, len))
		return false;
	*at += len;
	return true;
}

/* True for the header of an array of numbers or texts, exactly as NumPy writes it. */
static bool is_plain_header(const char *at, const char *end)
{
	bool plain = take(&at, "{'descr': '") && *at && strchr("<>|=", *at++) && *at &&
		     strchr("biufcSU", *at++);

	at += strspn(at, "0123456789");
	plain = plain && take(&at, "', 'fortran_order': ") &&
		(take(&at, "False") || take(&at, "True")) && take(&at, ", 'shape': (");
	return plain && at + strspn(at, "0123456789, )}\n") == end;
}

/* True if an array lies compressed at payload, and no object is in it: there is no pickle. */
static bool is_plain_array(const struct scan *s, uint64_t payload)
{
	uint8_t packed[1024];
	char head[512 + 1] = "";
	z_stream z = {.next_in = packed,
		      .avail_in = (uInt)mfs_min_u64(sizeof(packed), s->size - payload),
		      .next_out = (uint8_t *)head,
		      .avail_out = sizeof(head) - 1};
	size_t end;

	if (read_at(s, payload, packed, z.avail_in) || inflateInit2(&z, -MAX_WBITS) != Z_OK)
		return false;
	inflate(&z, Z_SYNC_FLUSH);
	inflateEnd(&z);
	end = 10u + mfs_le16((const uint8_t *)head + 8);
	if (memcmp(head, "\x93NUMPY\1", 7) || end >= sizeof(head))
		return false;
	head[end] = '\0';
	return is_plain_header(head + 10, head + end);
}

/* A local header may stand here. What begins like a pickle is one, whatever its name is. */
static int scan_header(struct scan *s, uint64_t at)
{
	uint8_t h[LOCAL_HEADER], begin[2] = {0, 0};
	char name[1024];
	uint64_t end, payload;
	size_t name_len, shown;
	int rc;

	if (s->size - at < LOCAL_HEADER)
		return 0;
	rc = read_at(s, at, h, sizeof(h));
	if (rc)
		return rc;
	name_len = mfs_le16(h + 26);
	payload = at + LOCAL_HEADER + name_len + mfs_le16(h + 28);
	shown = mfs_min_u64(name_len, sizeof(name));
	if (payload > s->size)
		return 0;
	rc = read_at(s, at + LOCAL_HEADER + name_len - shown, name, shown);
	if (!rc && s->size - payload >= sizeof(begin))
		rc = read_at(s, payload, begin, sizeof(begin));
	if (rc)
		return rc;
	if (mfs_le16(h + 8))
		return may_hold_pickles(name, shown) && !is_plain_array(s, payload)
			       ? mfs_fail(s->err, -ENOTSUP,
					  "the record at byte %llu of the archive is compressed",
					  (unsigned long long)at)
			       : 0;
	if (!is_pickle_name(name, shown) && !(begin[0] == 0x80 && begin[1] <= 5) &&
	    !(begin[0] == 0x93 && begin[1] == 'N'))
		return 0;
	rc = skip_npy_header(s, &payload);
	return rc ? rc : scan_pickle(s, payload, &end);
}

/* Every place where a local header may begin, whether or not a directory names it: readers of ZIP
 * files do not agree which one counts. */
static int scan_archive(struct scan *s)
{
	static const char magic[4] = "PK\3\4";
	uint8_t *window = malloc(WINDOW);
	int rc = window ? 0 : mfs_fail_nomem(s->err);

	for (uint64_t at = 0; at + sizeof(magic) <= s->size && !rc;) {
		const size_t len = mfs_min_u64(WINDOW, s->size - at);
		const uint8_t *p = window;

		rc = read_at(s, at, window, len);
		while (!rc && (p = memmem(p, (size_t)(window + len - p), magic, sizeof(magic)))) {
			rc = scan_header(s, at + (uint64_t)(p - window));
			p++;
		}
		at += len < WINDOW ? len : len - (sizeof(magic) - 1);
	}
	free(window);
	return rc;
}

/* ---- streams ---- */

/* torch before 1.6 wrote four pickles and then the storages. */
static int scan_stream(struct scan *s)
{
	uint64_t at = 0;
	int rc = skip_npy_header(s, &at);

	for (unsigned i = 0; i < MAX_PICKLES && at < s->size && !rc; i++)
		rc = scan_pickle(s, at, &at);
	if (!rc && at < s->size)
		rc = mfs_fail(s->err, -EFBIG,
			      "more than %d pickles one behind the other: those from byte %llu on "
			      "are not scanned",
			      MAX_PICKLES, (unsigned long long)at);
	return rc;
}

static int scan(struct scan *s)
{
	int rc = scan_stream(s);

	/* A file may be both. */
	return rc ? rc : scan_archive(s);
}

int mfs_scan_file(int dirfd, const char *path, mfs_pickle_found found, void *arg,
		  uint32_t *ret_pickles, struct mfs_error *err)
{
	struct scan s = {.found = found, .arg = arg, .err = err};
	struct stat st;
	int rc = mfs_open_regular(dirfd, path, 0, &s.fd, &st);

	if (rc)
		return mfs_fail(err, rc, "cannot open it: %s", mfs_open_regular_why(rc));
	s.size = (uint64_t)st.st_size;
	rc = scan(&s);
	close(s.fd);
	*ret_pickles = s.pickles;
	return rc;
}
