#define _GNU_SOURCE
#include "formats/io/commit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/path.h"
#include "formats/io/whole.h"

int mfs_sync_path(const char *path, struct mfs_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0)
		return mfs_fail_errno(err, "cannot open '%s'", path);
	if (fsync(fd))
		rc = mfs_fail_errno(err, "cannot make '%s' durable", path);
	close(fd);
	return rc;
}

static int write_file(int dirfd, const char *name, const void *bytes, size_t len)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int rc;

	if (fd < 0)
		return -errno;
	rc = mfs_write_whole(fd, bytes, len);
	if (!rc && fsync(fd))
		rc = -errno;
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

int mfs_commit_file(int dirfd, const char *name, const void *bytes, size_t len,
		    struct mfs_error *err)
{
	char tmp[256];
	int rc;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", name) >= sizeof(tmp))
		return mfs_fail(err, -ENAMETOOLONG, "file name '%s' is too long", name);
	rc = write_file(dirfd, tmp, bytes, len);
	if (!rc && renameat(dirfd, tmp, dirfd, name))
		rc = -errno;
	if (!rc && fsync(dirfd))
		rc = -errno;
	if (rc) {
		unlinkat(dirfd, tmp, 0);
		return mfs_fail(err, rc, "cannot write '%s': %s", name, strerror(-rc));
	}
	return 0;
}

/* Exchanges both names in one step if the file system can. Otherwise the old one makes room
 * first. */
static int exchange(const char *from, const char *to)
{
	char *aside = NULL;
	int rc = 0;

	if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (asprintf(&aside, "%s.old", from) < 0)
		return -ENOMEM;
	if (rename(to, aside))
		rc = -errno;
	else if (rename(from, to)) {
		rc = -errno;
		rename(aside, to);
	} else if (rename(aside, from)) {
		rc = -errno;
	}
	free(aside);
	return rc;
}

int mfs_commit_dir(const char *from, const char *to, bool replace, bool *ret_replaced,
		   struct mfs_error *err)
{
	char *parent = mfs_path_parent(to);
	bool replaced = false;
	int rc;

	if (!parent)
		return mfs_fail_nomem(err);
	rc = mfs_sync_path(from, err);
	if (rc)
		goto done;
	/* rename(2) itself refuses all but an empty directory at the new name. */
	if (rename(from, to)) {
		rc = -errno;
		if (replace && (rc == -ENOTEMPTY || rc == -EEXIST || rc == -ENOTDIR)) {
			rc = exchange(from, to);
			replaced = !rc;
		}
		if (rc == -ENOTEMPTY || rc == -ENOTDIR)
			rc = -EEXIST;
	}
	if (rc) {
		mfs_error_set(err, rc, "cannot rename '%s' to '%s': %s", from, to, strerror(-rc));
		goto done;
	}
	rc = mfs_sync_path(parent, err);
	if (!rc)
		*ret_replaced = replaced;
done:
	free(parent);
	return rc;
}
