#include "fs/fsck/scan.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/guard.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"
#include "fs/fsck/scan_i.h"

#define JOBLIB "joblib.numpy_pickle"

int mfs_scan_read(const struct mfs_fsck_scan *s, uint64_t at, void *to, size_t len)
{
	int rc = mfs_pread_whole(s->fd, at, to, len);

	return rc ? mfs_fail(s->whole->err, rc, "cannot read byte %llu: %s", (unsigned long long)at,
			     strerror(-rc))
		  : 0;
}

int mfs_scan_begin(const struct mfs_fsck_scan *s, uint64_t at, void *to, size_t len)
{
	const size_t there = at < s->size ? mfs_min_u64(len, s->size - at) : 0;

	memset((uint8_t *)to + there, 0, len - there);
	return there ? mfs_scan_read(s, at, to, there) : 0;
}

int mfs_scan_walk(struct mfs_fsck_scan *s, uint64_t at, uint64_t len)
{
	s->walked += len;
	return s->walked > MFS_SCAN_MAX_WALKED(s->size)
		       ? mfs_fail(s->whole->err, -EFBIG,
				  "its pickles lie in one another: what follows byte %llu is not "
				  "scanned",
				  (unsigned long long)at)
		       : 0;
}

static void count_import(void *arg, const char *module, size_t module_len, const char *name,
			 size_t name_len)
{
	struct mfs_fsck_scan *s = arg;

	s->imports++;
	s->joblib |= module && module_len == strlen(JOBLIB) && !memcmp(module, JOBLIB, module_len);
	s->whole->found(s->whole->arg, module, module_len, name, name_len);
}

/* ---- one pickle ---- */

struct job {
	struct mfs_fsck_scan *s;
	uint64_t at;
	struct mfs_pickle_walked walked;
	int rc;
};

static void walk_mapped(void *arg)
{
	struct job *j = arg;

	j->rc = mfs_pickle_walk(j->s->map + j->at, j->s->size - j->at, count_import, j->s,
				&j->walked, j->s->whole->err);
}

/* *ret_end: where it ends, or the file's end, since no pickle follows one that is broken. */
static int scan_pickle(struct mfs_fsck_scan *s, uint64_t at, uint64_t *ret_end)
{
	const uint32_t before = s->imports;
	struct job j = {.s = s, .at = at};

	/* The file may be cut meanwhile. What the walk has allocated is lost then. */
	if (mfs_guard_run(walk_mapped, &j))
		return mfs_fail(s->whole->err, -EIO, "cannot read what follows byte %llu",
				(unsigned long long)at);
	s->whole->pickles += !j.rc || s->imports > before;
	if (s->joblib)
		return mfs_fail(s->whole->err, -ENOTSUP,
				"joblib's arrays stand between the opcodes of the pickle at byte "
				"%llu: what follows them is not scanned",
				(unsigned long long)at);
	*ret_end = j.rc ? s->size : at + j.walked.end;
	/* An unpickler that fails before it has imported anything has done nothing. */
	if ((j.rc == -ENODATA || j.rc == -EINVAL) && s->imports == before)
		j.rc = 0;
	if (j.rc)
		return j.rc;
	return mfs_scan_walk(s, at, j.walked.seen);
}

/* torch before 1.6 wrote four pickles and then the storages. Of a ZIP's record it ends where the
 * next header may begin. */
static int scan_stream(struct mfs_fsck_scan *s, uint64_t at, enum mfs_scan_kind within)
{
	uint8_t next[2] = {0, 0};
	int rc = 0;

	for (unsigned i = 0; i < MFS_SCAN_MAX_PICKLES && at < s->size && !rc; i++) {
		if (within == MFS_SCAN_ZIP && i && !(rc = mfs_scan_begin(s, at, next, 2)) &&
		    !memcmp(next, "PK", 2))
			return 0;
		if (!rc)
			rc = scan_pickle(s, at, &at);
	}
	if (!rc && at < s->size)
		rc = mfs_fail(s->whole->err, -EFBIG,
			      "more than %d pickles one after the other: those from byte %llu on "
			      "are not scanned",
			      MFS_SCAN_MAX_PICKLES, (unsigned long long)at);
	return rc;
}

/* ---- arrays of NumPy (numpy/lib/format.py) ---- */

#define NPY_MAGIC "\x93NUMPY"
#define NPY_FIXED 12 /* bytes up to the header's text, at most */

/* Where the text of the header begins and ends; 0: it is no such array. */
static size_t npy_header(const uint8_t *h, uint64_t *ret_end)
{
	const size_t fixed = h[6] == 1 ? 10 : 12;

	if (memcmp(h, NPY_MAGIC, sizeof(NPY_MAGIC) - 1))
		return 0;
	*ret_end = fixed + (h[6] == 1 ? mfs_le16(h + 8) : (uint64_t)mfs_le32(h + 8));
	return fixed;
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

bool mfs_scan_is_plain_array(const uint8_t *bytes, size_t size)
{
	char head[512 + 1];
	uint64_t end = 0;
	const size_t fixed = size < NPY_FIXED ? 0 : npy_header(bytes, &end);

	if (!fixed || end > size || end >= sizeof(head))
		return false;
	memcpy(head, bytes, end);
	head[end] = '\0';
	return is_plain_header(head + fixed, head + end);
}

/* An array may have objects, as a pickle after its header. *at: where the file begins, and where
 * its elements do. *ret_plain: there are none. */
static int skip_npy_header(const struct mfs_fsck_scan *s, uint64_t *at, bool *ret_plain)
{
	uint8_t h[512];
	uint64_t end;
	int rc = mfs_scan_begin(s, *at, h, sizeof(h));

	if (rc || !npy_header(h, &end))
		return rc;
	*ret_plain = mfs_scan_is_plain_array(h, mfs_min_u64(sizeof(h), s->size - *at));
	if (end <= s->size - *at)
		*at += end;
	return 0;
}

/* ---- a place, a file ---- */

int mfs_scan_place(struct mfs_fsck_scan *s, uint64_t at, enum mfs_scan_kind within)
{
	bool plain = false;
	int rc = mfs_scan_packed(s, at);

	if (!rc && within != MFS_SCAN_TAR)
		rc = mfs_scan_tar(s, at);
	if (!rc)
		rc = skip_npy_header(s, &at, &plain);
	return rc || plain ? rc : scan_stream(s, at, within);
}

static int scan_mapped(struct mfs_fsck_scan *s)
{
	int rc = mfs_scan_place(s, 0, MFS_SCAN_FILE);

	/* A file may be both. */
	return rc ? rc : mfs_scan_zip(s);
}

int mfs_scan_all(struct mfs_fsck_scan *s)
{
	void *map;
	int rc;

	if (!s->size)
		return 0;
	map = mmap(NULL, s->size, PROT_READ, MAP_SHARED, s->fd, 0);
	if (map == MAP_FAILED)
		return mfs_fail(s->whole->err, -errno, "cannot map it: %s", strerror(errno));
	s->map = map;
	rc = scan_mapped(s);
	munmap(map, s->size);
	return rc;
}

int mfs_scan_file(int dirfd, const char *path, mfs_pickle_found found, void *arg,
		  uint32_t *ret_pickles, struct mfs_error *err)
{
	struct mfs_scan_whole whole = {.found = found, .arg = arg, .err = err};
	struct mfs_fsck_scan s = {.whole = &whole};
	struct stat st;
	int rc = mfs_open_regular(dirfd, path, 0, &s.fd, &st);

	if (rc)
		return mfs_fail(err, rc, "cannot open it: %s", mfs_open_regular_why(rc));
	s.size = (uint64_t)st.st_size;
	rc = mfs_scan_all(&s);
	close(s.fd);
	*ret_pickles = whole.pickles;
	return rc;
}
