#include "formats/ckpt/read/integrity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/str.h"
#include "formats/base/threads.h"
#include "formats/io/directory.h"
#include "formats/io/regular.h"

#define MANIFEST   "integrity.json"
#define BYTES_MAX  (64u << 20) /* of it: 150 for each file of a save */
#define READ_BYTES (1u << 20)
#define THREADS	   16u

/* A file that the manifest names. */
struct named {
	const char *name, *want;
	struct mfs_error problem; /* code 0: it is what it was */
};

struct check {
	int dirfd;
	json_t *files; /* of the manifest */
	struct named *named;
	size_t count;
	atomic_size_t next;
};

/* ---- sums ---- */

static int digest_fd(int fd, EVP_MD_CTX *md, char *hex)
{
	uint8_t *buf = malloc(READ_BYTES), sum[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	ssize_t n = -1;

	if (!buf)
		return -ENOMEM;
	EVP_DigestInit_ex(md, EVP_sha256(), NULL);
	while ((n = read(fd, buf, READ_BYTES)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0)
			EVP_DigestUpdate(md, buf, (size_t)n);
	free(buf);
	if (n < 0)
		return -errno;
	EVP_DigestFinal_ex(md, sum, &len);
	mfs_str_hex(sum, len, hex);
	return 0;
}

static int check_file(int dirfd, const struct named *f, EVP_MD_CTX *md, struct mfs_error *err)
{
	char hex[2 * EVP_MAX_MD_SIZE + 1];
	int fd, rc;

	if (!md)
		return mfs_fail_nomem(err);
	if (!f->want || strchr(f->name, '/') || !strcmp(f->name, ".."))
		return mfs_fail(err, -EINVAL, "%s: '%s' is not a file of the iteration", MANIFEST,
				f->name);
	rc = mfs_open_regular(dirfd, f->name, O_NOFOLLOW, &fd, NULL);
	if (rc)
		return mfs_fail(err, rc, "%s names '%s': %s", MANIFEST, f->name,
				mfs_open_regular_why(rc));
	rc = digest_fd(fd, md, hex);
	close(fd);
	if (rc)
		return mfs_fail(err, rc, "cannot read '%s': %s", f->name, strerror(-rc));
	if (strcasecmp(hex, f->want))
		return mfs_fail(err, -EINVAL, "'%s': SHA-256 is %s, %s says %.64s", f->name, hex,
				MANIFEST, f->want);
	return 0;
}

static void *check_files(void *arg)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	struct check *c = arg;
	size_t i;

	while ((i = atomic_fetch_add(&c->next, 1)) < c->count) {
		struct named *f = &c->named[i];

		f->problem.code = check_file(c->dirfd, f, md, &f->problem);
	}
	EVP_MD_CTX_free(md);
	return NULL;
}

/* ---- the manifest ---- */

static int load(int dirfd, json_t **ret, struct mfs_error *err)
{
	int fd, rc = mfs_open_regular(dirfd, MANIFEST, O_NOFOLLOW, &fd, NULL);
	const char *algorithm;
	json_error_t why;
	struct stat st;
	json_t *root;

	if (rc)
		return mfs_fail(err, rc, "%s: %s", MANIFEST, mfs_open_regular_why(rc));
	if (fstat(fd, &st) || st.st_size > BYTES_MAX) {
		close(fd);
		return mfs_fail(err, -EFBIG,
				"%s: its size is not known, or above the %u bytes "
				"that are read",
				MANIFEST, BYTES_MAX);
	}
	root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &why);
	close(fd);
	if (!root)
		return mfs_fail(err, -EINVAL, "%s: %s in line %d", MANIFEST, why.text, why.line);
	algorithm = json_string_value(json_object_get(root, "algorithm"));
	if (!algorithm || strcmp(algorithm, "sha256")) {
		mfs_error_set(err, -ENOTSUP, "%s: algorithm '%s' instead of sha256", MANIFEST,
			      algorithm ? algorithm : "none");
		json_decref(root);
		return -ENOTSUP;
	}
	*ret = root;
	return 0;
}

static int list(struct check *c, struct mfs_error *err)
{
	const char *name;
	json_t *want;

	c->named = calloc(json_object_size(c->files) + 1, sizeof(*c->named));
	if (!c->named)
		return mfs_fail_nomem(err);
	json_object_foreach(c->files, name, want) c->named[c->count++] =
		(struct named){name, json_string_value(want), {0}};
	return 0;
}

bool mfs_integrity_must_name(const char *name)
{
	return !strcmp(name, ".metadata") || !strcmp(name, "metadata.json") ||
	       !strcmp(name, "common.pt") || mfs_str_ends(name, ".distcp");
}

/* Files that nothing is known of. */
static void check_unnamed(const struct check *c, void (*bad)(void *, const struct mfs_error *),
			  void *arg)
{
	const int fd = openat(c->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct mfs_error problem;
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		if (!mfs_integrity_must_name(d->d_name) || json_object_get(c->files, d->d_name))
			continue;
		mfs_error_set(&problem, -EINVAL, "%s does not name '%s'", MANIFEST, d->d_name);
		bad(arg, &problem);
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}

static int check_all(struct check *c, void (*bad)(void *arg, const struct mfs_error *err),
		     void *arg, struct mfs_error *err)
{
	int rc = list(c, err);

	if (rc)
		return rc;
	mfs_threads_run(mfs_threads_count(0, c->count < THREADS ? (unsigned)c->count : THREADS),
			check_files, c);
	for (size_t i = 0; i < c->count; i++)
		if (c->named[i].problem.code)
			bad(arg, &c->named[i].problem);
	check_unnamed(c, bad, arg);
	free(c->named);
	return 0;
}

int mfs_integrity_check(const char *dir, void (*bad)(void *arg, const struct mfs_error *err),
			void *arg, uint32_t *ret_checked, struct mfs_error *err)
{
	struct check c = {.dirfd = mfs_open_directory(dir)};
	json_t *root = NULL;
	int rc;

	if (c.dirfd < 0)
		return mfs_fail_errno(err, "cannot open '%s'", dir);
	rc = load(c.dirfd, &root, err);
	if (!rc) {
		c.files = json_object_get(root, "files");
		rc = check_all(&c, bad, arg, err);
		*ret_checked = (uint32_t)c.count;
	}
	json_decref(root);
	close(c.dirfd);
	return rc;
}

/* ---- sums of files that are to be proved (proof.h) ---- */

static bool parse_sum(const char *hex, struct mfs_file_sum *ret)
{
	unsigned char *bytes;
	long len = 0;

	if (!hex || strlen(hex) != 2 * MFS_SHA256_BYTES)
		return false;
	bytes = OPENSSL_hexstr2buf(hex, &len);
	if (bytes && len == MFS_SHA256_BYTES) {
		memcpy(ret->sha256, bytes, MFS_SHA256_BYTES);
		ret->known = true;
	}
	OPENSSL_free(bytes);
	return ret->known;
}

static int find_sums(json_t *named, const struct mfs_fileset *files, struct mfs_file_sum *ret,
		     struct mfs_error *err)
{
	for (uint32_t i = 0; i < mfs_fileset_count(files); i++) {
		const char *name = mfs_fileset_name(files, i);
		json_t *sum = json_object_get(named, name);

		ret[i] = (struct mfs_file_sum){.known = false};
		if (sum && !parse_sum(json_string_value(sum), &ret[i]))
			return mfs_fail(err, -EINVAL, "%s: the sum of '%s' is no SHA-256", MANIFEST,
					name);
	}
	return 0;
}

int mfs_integrity_sums(const char *dir, const struct mfs_fileset *files, struct mfs_file_sum *ret,
		       struct mfs_error *err)
{
	const int dirfd = mfs_open_directory(dir);
	json_t *root = NULL;
	int rc;

	if (dirfd < 0)
		return mfs_fail_errno(err, "cannot open '%s'", dir);
	rc = load(dirfd, &root, err);
	if (!rc)
		rc = find_sums(json_object_get(root, "files"), files, ret, err);
	json_decref(root);
	close(dirfd);
	return rc;
}
