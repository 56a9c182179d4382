#define _GNU_SOURCE
#include "formats/io/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/backing.h"
#include "formats/io/fence.h"

/* Of a thread's last call, if the bytes of a file did not come from where they are: why. It is not
 * thread-local: of such bytes a library that is opened late finds few. */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_failed;

static void make_key(void)
{
	key_failed = pthread_key_create(&key, free);
}

/* NULL: there was none yet. */
static struct mfs_error *known_why(void)
{
	pthread_once(&once, make_key);
	return key_failed ? NULL : pthread_getspecific(key);
}

/* NULL: out of memory. */
static struct mfs_error *own_why(void)
{
	struct mfs_error *why = known_why();

	if (why || key_failed)
		return why;
	why = calloc(1, sizeof(*why));
	if (why && pthread_setspecific(key, why)) {
		free(why);
		return NULL;
	}
	return why;
}

static int check(int fd, struct stat *ret)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (ret)
		*ret = st;
	return 0;
}

/* Somebody holds a lease on the file. What O_PATH has found cannot become another file, so it is
 * safe to wait if it is regular. */
static int open_leased(int dirfd, const char *name, int flags)
{
	int path = openat(dirfd, name, O_PATH | O_CLOEXEC | flags), fd = -1, rc;
	char self[40];

	if (path < 0)
		return -errno;
	rc = check(path, NULL);
	if (!rc) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
		fd = open(self, O_RDONLY | O_CLOEXEC);
		rc = fd < 0 ? -errno : 0;
	}
	close(path);
	return rc ? rc : fd;
}

static int open_at_once(int dirfd, const char *name, int flags)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);

	if (fd >= 0)
		return fd;
	if (errno == EWOULDBLOCK)
		return open_leased(dirfd, name, flags);
	return errno == ENXIO ? -EINVAL : -errno; /* a socket, or a device that nothing serves */
}

int mfs_open_regular_as_is(int dirfd, const char *name, int flags, int *ret_fd, struct stat *ret)
{
	int fd = open_at_once(dirfd, name, flags), rc;
	struct mfs_error *why = known_why();

	if (why)
		why->code = 0;
	if (fd < 0)
		return fd;
	rc = check(fd, ret);
	if (!rc)
		rc = mfs_fence_check(dirfd, name, fd);
	/* Sources on other file systems need not know what the open was careful for. */
	if (!rc && fcntl(fd, F_SETFL, flags & O_DIRECT))
		rc = -errno;
	if (rc) {
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

static int open_backing(const struct mfs_backing *b, int *ret_fd)
{
	struct mfs_error *why = own_why();
	int rc = b->ops->keep(b->object, why);

	return rc ? rc : b->ops->open(b->object, ret_fd, why);
}

int mfs_open_regular(int dirfd, const char *name, int flags, int *ret_fd, struct stat *ret)
{
	const struct mfs_backing *b;
	struct stat st;
	int fd, rc = mfs_open_regular_as_is(dirfd, name, flags, &fd, &st);

	if (rc)
		return rc;
	b = mfs_backing_of(&st);
	if (b) {
		close(fd);
		rc = open_backing(b, &fd);
	}
	if (rc)
		return rc;
	if (ret)
		*ret = st;
	*ret_fd = fd;
	return 0;
}

const char *mfs_open_regular_why(int rc)
{
	const struct mfs_error *why = known_why();

	if (why && why->code && why->code == rc)
		return why->msg;
	return rc == -EINVAL ? "not a regular file" : mfs_errno_text(-rc);
}
