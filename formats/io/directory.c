#define _GNU_SOURCE
#include "formats/io/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "formats/io/fence.h"

int mfs_open_directory(const char *path)
{
	int rc, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	rc = mfs_fence_check(AT_FDCWD, path, fd);
	if (!rc)
		return fd;
	close(fd);
	errno = -rc;
	return -1;
}

DIR *mfs_opendir(const char *path)
{
	DIR *dir = opendir(path);
	int rc = dir ? mfs_fence_check(AT_FDCWD, path, dirfd(dir)) : 0;

	if (!rc)
		return dir;
	closedir(dir);
	errno = -rc;
	return NULL;
}

int mfs_scandir(const char *path, struct dirent ***ret, int (*takes)(const struct dirent *e),
		int (*order)(const struct dirent **a, const struct dirent **b))
{
	int n, code, fd = mfs_open_directory(path);

	if (fd < 0)
		return -1;
	n = scandirat(fd, ".", ret, takes, order);
	code = errno;
	close(fd);
	errno = code;
	return n;
}
