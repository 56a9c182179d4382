/*
 * Input: a letter that says what comes from another machine, or lies in a cache, and its bytes.
 *
 *	s  a page of S3's listing    j  an index in JSON    h  an index as a page of links
 *	w  an index of weights       H  headers of an answer
 *	i  a credentials file        q  a query that is signed
 *	m  the map of an object of 3 MiB in a cache
 *	r  the body of a refusal
 */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "formats/net/sigv4.h"
#include "formats/remote/blocks.h"
#include "formats/remote/headers.h"
#include "formats/remote/ini.h"
#include "formats/remote/listing.h"
#include "formats/remote/refusal.h"

/* No name leads out of the directory, nor breaks a header. */
static int check_listing(struct mfs_listing *l, int rc)
{
	for (size_t i = 0; i < l->count; i++) {
		const struct mfs_listed *item = &l->items[i];
		const size_t len = strlen(item->name);

		fuzz_require(*item->name && *item->name != '/');
		fuzz_require(!strstr(item->name, "//"));
		fuzz_require(strncmp(item->name, "../", 3) && !strstr(item->name, "/../"));
		fuzz_require(len < 3 || strcmp(item->name + len - 3, "/.."));
		fuzz_require(!item->etag || !strpbrk(item->etag, "\r\n"));
	}
	mfs_listing_release(l);
	return rc;
}

static int read_s3(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_listing l = {0};
	char *next;
	int rc = mfs_listing_read_s3(&l, text, len, "runs/", &next, err);

	fuzz_require(!rc || !next);
	free(next);
	return check_listing(&l, rc);
}

static int read_with(int (*read)(struct mfs_listing *l, const char *text, size_t len,
				 struct mfs_error *err),
		     const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_listing l = {0};
	const int rc = read(&l, text, len, err);

	return check_listing(&l, rc);
}

static int read_headers(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_headers h = {0};

	while (len) {
		const char *end = memchr(text, '\n', len);
		const size_t n = end ? (size_t)(end - text) + 1 : len;

		mfs_headers_line(&h, text, n);
		text += n;
		len -= n;
	}
	fuzz_require(h.status < 1000);
	fuzz_require(!h.has_range || (h.first <= h.last && h.last < h.total));
	fuzz_require(!strpbrk(h.etag, "\r\n") && !strpbrk(h.last_modified, "\r\n"));
	fuzz_require(!*h.etag || strlen(h.etag) >= 2);
	return h.status == 206 && h.has_range && *h.etag
		       ? 0
		       : mfs_fail(err, -EINVAL, "not the answer to a range");
}

static int read_ini(const char *text, size_t len, struct mfs_error *err)
{
	char id[64], secret[64];

	if (!mfs_ini_find(text, len, "default", "aws_access_key_id", id, sizeof(id)) ||
	    !mfs_ini_find(text, len, "default", "aws_secret_access_key", secret, sizeof(secret)))
		return mfs_fail(err, -EINVAL, "no key");
	fuzz_require(*id && strlen(id) < sizeof(id) && !strpbrk(id, "\r\n"));
	return 0;
}

/* One spelling is signed: what was encoded anew is encoded anew as itself. */
static int read_query(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_sigv4_request r = {
		.method = "GET", .payload = MFS_SIGV4_EMPTY, .time = "20130524T000000Z"};
	char *query = strndup(text, len), *canonical, *again, *line;
	int rc;

	r.query = query;
	rc = mfs_sigv4_canonical(&r, &canonical, err);
	if (!rc) {
		line = strndup(canonical + 6, strcspn(canonical + 6, "\n")); /* after "GET\n/\n" */
		r.query = line;
		fuzz_require(!mfs_sigv4_canonical(&r, &again, err));
		fuzz_require(!strcmp(canonical, again));
		free(line);
		free(again);
		free(canonical);
	}
	free(query);
	return rc;
}

/* One file in memory, in a directory of its own. */
static int map_dir(void)
{
	static int dir = -1;
	char name[] = "/tmp/fuzz-remote-XXXXXX";

	if (dir < 0) {
		fuzz_require(mkdtemp(name));
		dir = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	return dir;
}

static int read_map(const char *bytes, size_t len, struct mfs_error *err)
{
	const int dir = map_dir();
	int fd = openat(dir, "map", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), rc;
	struct mfs_blocks b;

	fuzz_require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
	rc = mfs_blocks_open(dir, "map", "key", 3u << 20, &b);
	if (rc)
		return mfs_fail(err, -EINVAL, "not a map: %s", strerror(-rc));
	fuzz_require(b.count == 3);
	for (uint32_t i = 0; i < b.count; i++) {
		atomic_load(&b.states[i]);
		atomic_load(&b.sums[i]);
	}
	mfs_blocks_close(&b);
	return 0;
}

static int read_refusal(const char *text, size_t len, struct mfs_error *err)
{
	char code[MFS_REFUSAL];

	mfs_refusal_read(text, len, code);
	fuzz_require(strlen(code) < sizeof(code) && !strpbrk(code, "<>&% \r\n\033"));
	return *code ? 0 : mfs_fail(err, -EINVAL, "no code");
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const char *text = (const char *)bytes + 1;

	if (!len--)
		return mfs_fail(err, -EINVAL, "nothing");
	switch (*bytes) {
	case 's':
		return read_s3(text, len, err);
	case 'j':
		return read_with(mfs_listing_read_json, text, len, err);
	case 'h':
		return read_with(mfs_listing_read_html, text, len, err);
	case 'w':
		return read_with(mfs_listing_read_weights, text, len, err);
	case 'H':
		return read_headers(text, len, err);
	case 'i':
		return read_ini(text, len, err);
	case 'q':
		return read_query(text, len, err);
	case 'm':
		return read_map(text, len, err);
	case 'r':
		return read_refusal(text, len, err);
	default:
		return mfs_fail(err, -EINVAL, "not one of the letters");
	}
}

FUZZ_TARGET
