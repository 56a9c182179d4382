#define _GNU_SOURCE
#include "fs/fsck/scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"

#define WINDOW	     (8u << 20)
#define LOCAL_HEADER 30 /* bytes before the name: PKWARE APPNOTE 4.3.7 */
#define MAX_PICKLES  64 /* of a stream that is no ZIP */

struct scan {
	int fd;
	uint64_t size;
	mfs_pickle_found found;
	void *arg;
	uint32_t pickles, imports;
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
	return rc;
}

/* Most pickles are small, and what follows may be tensors: more is read as long as it goes on.
 * -EINVAL: it is broken, and *ret_end is where it began, since no pickle follows. */
static int scan_pickle(struct scan *s, uint64_t at, uint64_t *ret_end)
{
	const uint64_t left = s->size - at;
	const uint32_t before = s->imports;
	size_t len = 64u << 10;
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

static bool is_pickle_name(const char *name, size_t len)
{
	static const char *const ends[] = {".pkl", ".pickle", ".joblib", ".dat", ".data"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		const size_t end = strlen(ends[i]);

		if (len >= end && !memcmp(name + len - end, ends[i], end))
			return true;
	}
	return false;
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
	if (!is_pickle_name(name, shown) && !(begin[0] == 0x80 && begin[1] <= 5) &&
	    !(begin[0] == 0x93 && begin[1] == 'N'))
		return 0;
	if (mfs_le16(h + 8))
		return is_pickle_name(name, shown)
			       ? mfs_fail(s->err, -ENOTSUP,
					  "the record at byte %llu of the archive is compressed",
					  (unsigned long long)at)
			       : 0;
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
