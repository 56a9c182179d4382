/*
 * Files and directories that appear whole or not at all. They are written under another name, made
 * durable and renamed; then the directory that holds the new name is made durable, too.
 */
#ifndef MFS_IO_COMMIT_H
#define MFS_IO_COMMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"

/* fsync of a file or a directory by its path. -errno. */
int mfs_sync_path(const char *path, struct mfs_error *err);

/* Writes bytes as the file name of an open directory, in place of an old one. A crash leaves the
 * old bytes or the new ones; "name.tmp" may stay behind. */
int mfs_commit_file(int dirfd, const char *name, const void *bytes, size_t len,
		    struct mfs_error *err);

/*
 * Renames the directory `from` to `to`, on one file system. The files inside must be durable
 * already. An empty directory at `to` is replaced. If anything else stands there: with `replace` it
 * changes places with `from` in one step, and *ret_replaced says that the old one is now at `from`;
 * without, -EEXIST.
 */
int mfs_commit_dir(const char *from, const char *to, bool replace, bool *ret_replaced,
		   struct mfs_error *err);

#endif
