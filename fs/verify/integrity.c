#include "fs/verify/integrity.h"

#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "formats/base/str.h"
#include "formats/io/regular.h"

#define MANIFEST   "integrity.json"
#define READ_BYTES (1u << 20)

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

static int check_file(int dirfd, const char *name, const char *want, EVP_MD_CTX *md,
		      struct mfs_error *err)
{
	char hex[2 * EVP_MAX_MD_SIZE + 1];
	int fd, rc;

	if (!want || strchr(name, '/') || !strcmp(name, ".."))
		return mfs_fail(err, -EINVAL, "%s: '%s' is not a file of the iteration", MANIFEST,
				name);
	rc = mfs_open_regular(dirfd, name, O_NOFOLLOW, &fd, NULL);
	if (rc)
		return mfs_fail(err, rc, "%s names '%s': %s", MANIFEST, name,
				mfs_open_regular_why(rc));
	rc = digest_fd(fd, md, hex);
	close(fd);
	if (rc)
		return mfs_fail(err, rc, "cannot read '%s': %s", name, strerror(-rc));
	if (strcasecmp(hex, want))
		return mfs_fail(err, -EINVAL, "'%s': SHA-256 is %s, %s says %.64s", name, hex,
				MANIFEST, want);
	return 0;
}

static int load(int dirfd, json_t **ret, struct mfs_error *err)
{
	int fd, rc = mfs_open_regular(dirfd, MANIFEST, O_NOFOLLOW, &fd, NULL);
	const char *algorithm;
	json_error_t why;
	json_t *root;

	if (rc)
		return mfs_fail(err, rc, "%s: %s", MANIFEST, mfs_open_regular_why(rc));
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

int mfs_integrity_check(const char *dir, void (*bad)(void *arg, const struct mfs_error *err),
			void *arg, uint32_t *ret_checked, struct mfs_error *err)
{
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	json_t *root = NULL, *want;
	struct mfs_error problem;
	uint32_t checked = 0;
	const char *name;

	if (dirfd < 0 || !md)
		rc = mfs_fail(err, dirfd < 0 ? -errno : -ENOMEM, "cannot open '%s'", dir);
	else
		rc = load(dirfd, &root, err);
	if (!rc) {
		json_object_foreach(json_object_get(root, "files"), name, want)
		{
			if (check_file(dirfd, name, json_string_value(want), md, &problem))
				bad(arg, &problem);
			checked++;
		}
		*ret_checked = checked;
	}
	json_decref(root);
	EVP_MD_CTX_free(md);
	if (dirfd >= 0)
		close(dirfd);
	return rc;
}
