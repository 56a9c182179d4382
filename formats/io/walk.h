/*
 * Opens a path step by step, as the kernel does, and sees what stands on the way: each directory,
 * those behind symbolic links included, is counted in a fold (access.h). What is opened is what was
 * walked: a link that is changed meanwhile leads the walk elsewhere, and the fold with it.
 */
#ifndef MFS_IO_WALK_H
#define MFS_IO_WALK_H

#include <sys/stat.h>

#include "formats/io/access.h"

/* symbolic links that are followed, as many as the kernel does (fs/namei.c: MAXSYMLINKS) */
#define MFS_WALK_LINKS 40

/*
 * Opens path (below dirfd, unless it is absolute; AT_FDCWD: from the working directory) as an
 * O_PATH descriptor. *st is the file's, and never a symbolic link's. The directories passed are
 * counted in fold with MFS_ACCESS_SEARCH; what stands at the end is not (mfs_walk_count()). Nothing
 * but directories is ever opened for more than its name, so nothing can be waited for. 0 or -errno,
 * as open(2) says it: -ENOENT, -ENOTDIR, -ELOOP, -EACCES, -ENAMETOOLONG.
 */
int mfs_walk(int dirfd, const char *path, struct mfs_access_fold *fold, int *ret_fd,
	     struct stat *st);

/* Counts one more inode: its readers need all bits of want. fd may be O_PATH; st is the inode's. If
 * its ACL cannot be read (for lack of /proc), the owner at most passes. */
void mfs_walk_count(int fd, const struct stat *st, unsigned want, struct mfs_access_fold *fold);

#endif
