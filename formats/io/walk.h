/*
 * Opens a path step by step, as the kernel does, and counts each directory on the way in a fold
 * (access.h), also directories that symbolic links lead to. The file that is opened is the one that
 * the walk reached. If a link changes meanwhile, it leads the walk elsewhere, and the fold with it.
 */
#ifndef MFS_IO_WALK_H
#define MFS_IO_WALK_H

#include <sys/stat.h>

#include "formats/io/access.h"

/* Symbolic links that are followed: as many as the kernel does (fs/namei.c: MAXSYMLINKS). */
#define MFS_WALK_LINKS 40

/*
 * Opens path (below dirfd, unless it is absolute; AT_FDCWD: from the working directory) as an
 * O_PATH descriptor. *st is the file's, never a symbolic link's. The directories passed are counted
 * in fold with MFS_ACCESS_SEARCH. What stands at the end is not counted: mfs_walk_count() does
 * that. Only directories are opened for more than their name, so the walk waits for nobody. 0 or
 * -errno, as open(2) says it: -ENOENT, -ENOTDIR, -ELOOP, -EACCES, -ENAMETOOLONG; -ENOLINK
 * (fence.h).
 */
int mfs_walk(int dirfd, const char *path, struct mfs_access_fold *fold, int *ret_fd,
	     struct stat *st);

/* Counts one more inode in fold, for those who want all bits of `want`. fd may be O_PATH; st is
 * its. If its ACL cannot be read (for lack of /proc), the owner passes at most. */
void mfs_walk_count(int fd, const struct stat *st, unsigned want, struct mfs_access_fold *fold);

#endif
