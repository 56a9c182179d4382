/* Opens directories of sources, to list what is in them. No source's is opened in another way: a
 * link may lead out of its source (fence.h). */
#ifndef MFS_IO_DIRECTORY_H
#define MFS_IO_DIRECTORY_H

#include <dirent.h>

/* As open(2) with O_DIRECTORY; the caller closes the descriptor. -1: errno says why, which may be
 * ENOLINK. */
int mfs_open_directory(const char *path);
/* As opendir(3) and scandir(3). */
DIR *mfs_opendir(const char *path);
int mfs_scandir(const char *path, struct dirent ***ret, int (*takes)(const struct dirent *e),
		int (*order)(const struct dirent **a, const struct dirent **b));

#endif
