/*
 * Names beneath an open directory: opened, made, replaced and removed without following a link.
 *
 * Anyone who may write in a directory may put a link in the place of any name in it, between any
 * two calls. So a path that a person gives is followed once, when its directory is opened. What
 * lies beneath is reached by descriptors, name by name, and a link on the way is an error. A link
 * that stands in the way of something new is removed like a file, and what it leads to stays.
 *
 * tests/lint.sh keeps calls that remove, rename and make by whole paths out of other files.
 */
#ifndef MFS_IO_BENEATH_H
#define MFS_IO_BENEATH_H

#include <stdbool.h>
#include <sys/types.h>

#include "formats/base/error.h"

/* All take a relative path ("a/b") without "." and "..", and answer with -errno. A link or a file
 * in the place of a directory on the way is -ENOTDIR or -ELOOP. Descriptors are for the caller to
 * close. */

/* Opens the directory that holds the path's last name. *ret_name: that name, in path. */
int mfs_beneath_parent(int dirfd, const char *path, const char **ret_name);

/* openat(2), with O_NOFOLLOW and O_CLOEXEC for all names. */
int mfs_beneath_open(int dirfd, const char *path, int flags, mode_t mode);

/* A new file: what stands at its name, a link or a file, is removed first. flags: as open(2) has
 * them, without O_CREAT and O_EXCL. */
int mfs_beneath_create(int dirfd, const char *path, int flags, mode_t mode);

/* Opens a file for writing that an earlier run may have begun: a regular file that has no other
 * name. What else stands there is replaced by an empty one. *ret_new: it is an empty one. */
int mfs_beneath_continue(int dirfd, const char *path, int flags, mode_t mode, bool *ret_new);

/* Makes the directories that are missing, and opens the last one. */
int mfs_beneath_make_dirs(int dirfd, const char *path, mode_t mode);

/* unlinkat(2) with an argument: 0 or -errno. */
typedef int mfs_unlink_at(void *arg, int dirfd, const char *name, int flags);

/* Directories in one another that are removed at once: each holds a descriptor. */
#define MFS_BENEATH_DEPTH 100

/* Removes a name, and what lies in it if it is a directory. What is mounted there stays, with
 * -EBUSY, and what lies deeper than MFS_BENEATH_DEPTH with -E2BIG. unlink: what to call; NULL:
 * unlinkat(2). */
int mfs_beneath_remove(int dirfd, const char *name, mfs_unlink_at *unlink, void *arg);

/* A path that a person gives, whose links are followed: makes the directories that are missing,
 * those above the last one with the mode `above`. */
int mfs_make_path(const char *path, mode_t above, mode_t mode);

/* Like mfs_make_path(), and opens it. */
int mfs_open_path(const char *path, mode_t above, mode_t mode);

#endif
