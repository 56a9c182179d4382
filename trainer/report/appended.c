#define _GNU_SOURCE
#include "trainer/report/appended.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "formats/base/path.h"
#include "formats/io/beneath.h"

static int write_all(struct mft_appended *a, struct mfs_error *err)
{
	for (size_t done = 0; done < a->records.len;) {
		const ssize_t n = pwrite(a->fd, a->records.data + done, a->records.len - done,
					 a->end + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return mfs_fail(err, n ? -errno : -EIO, "%s: %s", a->path,
					strerror(n ? errno : EIO));
		done += (size_t)n;
	}
	a->end += (off_t)a->records.len;
	return 0;
}

int mft_appended_flush(struct mft_appended *a, struct mfs_error *err)
{
	int rc = a->records.failed ? mfs_fail_nomem(err) : write_all(a, err);

	/* A reader waits for the rest of half a record for ever. */
	if (rc && ftruncate(a->fd, a->end))
		mfs_fail_in(err, "half a record stays");
	mfs_buf_release(&a->records);
	a->records = (struct mfs_buf){0};
	return rc;
}

static int create(struct mft_appended *a, int dirfd, const char *dir, const char *prefix,
		  const char *suffix, struct mfs_error *err)
{
	char host[256] = "host";
	struct timeval now;

	gethostname(host, sizeof(host) - 1);
	gettimeofday(&now, NULL);
	/* The last number tells apart what one process begins in one second. */
	for (unsigned i = 0; i < 1000; i++) {
		free(a->path);
		if (asprintf(&a->path, "%s/%s.%010lld.%s.%ld.%u%s", dir, prefix,
			     (long long)now.tv_sec, host, (long)getpid(), i, suffix) < 0) {
			a->path = NULL;
			return mfs_fail_nomem(err);
		}
		a->fd = mfs_beneath_open(dirfd, mfs_path_base(a->path), O_WRONLY | O_CREAT | O_EXCL,
					 0666);
		if (a->fd != -EEXIST)
			break;
	}
	return a->fd < 0 ? mfs_fail(err, a->fd, "%s: %s", a->path, strerror(-a->fd)) : 0;
}

/* A directory in a person's one is no person's path: it is no link. */
static int open_dir(const char *dir, const char *below)
{
	const int fd = mfs_open_path(dir, 0777, 0777);
	int inner;

	if (fd < 0 || !below)
		return fd;
	inner = mfs_beneath_make_dirs(fd, below, 0777);
	close(fd);
	return inner;
}

int mft_appended_open(struct mft_appended *a, const char *dir, const char *below,
		      const char *prefix, const char *suffix, struct mfs_error *err)
{
	char path[PATH_MAX];
	int fd, rc;

	*a = (struct mft_appended){.fd = -1};
	snprintf(path, sizeof(path), "%s%s%s", dir, below ? "/" : "", below ? below : "");
	fd = open_dir(dir, below);
	if (fd < 0)
		return mfs_fail(err, fd, "cannot make the directory '%s': %s", path, strerror(-fd));
	rc = create(a, fd, path, prefix, suffix, err);
	close(fd);
	return rc;
}

void mft_appended_close(struct mft_appended *a)
{
	if (a->fd >= 0) {
		mft_appended_flush(a, NULL);
		close(a->fd);
	}
	mfs_buf_release(&a->records);
	free(a->path);
}
