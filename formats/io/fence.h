/*
 * Where the links of a source may lead: nowhere but into that source.
 *
 * A mount tells the kernel who may read what it shows (access.h). A program that reads for others
 * with rights of its own, as a gateway does, cannot: a link that somebody has put into a source
 * would give its readers what its writer may not read, or what they may not. Such a program fences
 * its sources in. What is opened by walk.h, regular.h or directory.h below a fence must lie there:
 * the file that was opened is asked where it is (/proc/self/fd), not its name, so it does not
 * matter what becomes of the name. Without fences nothing is asked.
 */
#ifndef MFS_IO_FENCE_H
#define MFS_IO_FENCE_H

#include <limits.h>
#include <stdbool.h>

enum mfs_fence_kind {
	MFS_FENCE_DIR,	  /* a directory */
	MFS_FENCE_EACH,	  /* each directory in it has its own fence */
	MFS_FENCE_PREFIX, /* a dataset's: PREFIX.bin, PREFIX.idx */
	MFS_FENCE_COMMON, /* a directory into which links of all others may lead */
};

struct mfs_fence;

/* path: as it is named when files below it are opened; what it leads to now is fenced in. A
 * snapshot has its blobs, too (below). It holds until it is removed; of several the narrowest
 * counts. -errno of realpath(3). */
int mfs_fence_add(enum mfs_fence_kind kind, const char *path, struct mfs_fence **ret);
void mfs_fence_remove(struct mfs_fence *f); /* NULL: nothing */

/* The blobs to which the links of a snapshot lead in HuggingFace's cache: X/blobs of
 * X/snapshots/NAME and of X/snapshots (huggingface_hub/file_download.py). False: dir is named in
 * another way. */
bool mfs_fence_blobs(const char *dir, char ret[PATH_MAX]);

/* Whether what was opened as name (below dirfd, unless it is absolute) may be: 0; -ENOLINK: it lies
 * beyond the fence, or it is not known where; -errno. Any thread. */
int mfs_fence_check(int dirfd, const char *name, int fd);
/* Like mfs_fence_check(), for a path, if there is anything. */
int mfs_fence_check_path(const char *path);
/* Whether a path may lead to the real path. */
bool mfs_fence_allows(const char *path, const char *real);

#endif
