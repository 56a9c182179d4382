#define _GNU_SOURCE
#include "formats/io/commit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/beneath.h"
#include "formats/io/whole.h"

struct text {
	const void *bytes;
	size_t len;
};

static int write_text(void *arg, int fd)
{
	const struct text *t = arg;

	return mfs_write_whole(fd, t->bytes, t->len);
}

static int write_file(int dirfd, const char *name, int (*write)(void *arg, int fd), void *arg)
{
	int fd = mfs_beneath_create(dirfd, name, O_WRONLY, 0644), rc;

	if (fd < 0)
		return fd;
	rc = write(arg, fd);
	if (!rc && fsync(fd))
		rc = -errno;
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

int mfs_commit_file(int dirfd, const char *name, const void *bytes, size_t len,
		    struct mfs_error *err)
{
	struct text t = {bytes, len};

	return mfs_commit_written(dirfd, name, write_text, &t, err);
}

int mfs_commit_written(int dirfd, const char *name, int (*write)(void *arg, int fd), void *arg,
		       struct mfs_error *err)
{
	char tmp[256];
	int rc;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", name) >= sizeof(tmp))
		return mfs_fail(err, -ENAMETOOLONG, "file name '%s' is too long", name);
	rc = write_file(dirfd, tmp, write, arg);
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
static int exchange(int dirfd, const char *from, const char *to)
{
	char *aside = NULL;
	int rc = 0;

	if (!renameat2(dirfd, from, dirfd, to, RENAME_EXCHANGE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (asprintf(&aside, "%s.old", from) < 0)
		return -ENOMEM;
	if (renameat(dirfd, to, dirfd, aside))
		rc = -errno;
	else if (renameat(dirfd, from, dirfd, to)) {
		rc = -errno;
		renameat(dirfd, aside, dirfd, to);
	} else if (renameat(dirfd, aside, dirfd, from)) {
		rc = -errno;
	}
	free(aside);
	return rc;
}

static int sync_below(int dirfd, const char *name, struct mfs_error *err)
{
	const int fd = mfs_beneath_open(dirfd, name, O_RDONLY, 0);
	int rc = fd < 0 ? fd : 0;

	if (rc)
		return mfs_fail(err, rc, "cannot open '%s': %s", name, strerror(-rc));
	if (fsync(fd))
		rc = mfs_fail_errno(err, "cannot make '%s' durable", name);
	close(fd);
	return rc;
}

int mfs_commit_dir(int dirfd, const char *from, const char *to, bool replace, bool *ret_replaced,
		   struct mfs_error *err)
{
	bool replaced = false;
	int rc = sync_below(dirfd, from, err);

	if (rc)
		return rc;
	/* renameat(2) itself refuses all but an empty directory at the new name. */
	if (renameat(dirfd, from, dirfd, to)) {
		rc = -errno;
		if (replace && (rc == -ENOTEMPTY || rc == -EEXIST || rc == -ENOTDIR)) {
			rc = exchange(dirfd, from, to);
			replaced = !rc;
		}
		if (rc == -ENOTEMPTY || rc == -ENOTDIR)
			rc = -EEXIST;
	}
	if (rc)
		return mfs_fail(err, rc, "cannot rename '%s' to '%s': %s", from, to, strerror(-rc));
	if (fsync(dirfd))
		return mfs_fail_errno(err, "cannot make the directory of '%s' durable", to);
	*ret_replaced = replaced;
	return 0;
}
