/*
 * Files and directories that appear whole, or not at all: written under another name, made durable,
 * then renamed, and the directory that holds the new name made durable too.
 */
#ifndef MFS_IO_COMMIT_H
#define MFS_IO_COMMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"

/* fsync of a file or a directory by its path. -errno. */
int mfs_sync_path(const char *path, struct mfs_error *err);

/* Puts bytes in place as the file name of the open directory, over an old one. A crash leaves the
 * old bytes or the new ones; "name.tmp" may stay behind. */
int mfs_commit_file(int dirfd, const char *name, const void *bytes, size_t len,
		    struct mfs_error *err);

/*
 * Renames directory from to the name to, both of one parent's file system. The files inside must be
 * durable already. If something stands at to: an empty directory is replaced; with replace,
 * anything else changes places with from in one step and *ret_replaced tells that the old one is
 * now at from; without, -EEXIST.
 */
int mfs_commit_dir(const char *from, const char *to, bool replace, bool *ret_replaced,
		   struct mfs_error *err);

#endif
