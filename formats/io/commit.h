/*
 * Files and directories that appear whole or not at all. They are written under another name, made
 * durable and renamed; then the directory that holds the new name is made durable, too.
 */
#ifndef MFS_IO_COMMIT_H
#define MFS_IO_COMMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"

/* Writes bytes as the file name of an open directory, in place of an old one. A crash leaves the
 * old bytes or the new ones; "name.tmp" may be left over. What stands at either name, a link or a
 * file, is replaced. */
int mfs_commit_file(int dirfd, const char *name, const void *bytes, size_t len,
		    struct mfs_error *err);
/* Like mfs_commit_file(), with the bytes that a function writes. write: 0 or -errno. */
int mfs_commit_written(int dirfd, const char *name, int (*write)(void *arg, int fd), void *arg,
		       struct mfs_error *err);

/*
 * Renames the directory `from` to `to`, names in an open directory. The files inside must be
 * durable already. An empty directory at `to` is replaced. If anything else stands there: with
 * `replace` it changes places with `from` in one step, and *ret_replaced says that the old one is
 * now at `from`; without, -EEXIST.
 */
int mfs_commit_dir(int dirfd, const char *from, const char *to, bool replace, bool *ret_replaced,
		   struct mfs_error *err);

#endif
