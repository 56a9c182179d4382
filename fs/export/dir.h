/*
 * The directories of an export: those that a view's names have, what an export has left in them,
 * and what else is there.
 *
 * Every file and directory that an export makes bears the extended attribute MFS_EXPORT_MARK, where
 * the file system has such attributes. By it an export with other options knows its predecessor,
 * whose files have other names. The bytes of the files are the view's alone.
 */
#ifndef MFS_FS_EXPORT_DIR_H
#define MFS_FS_EXPORT_DIR_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

#define MFS_EXPORT_MARK "user.mcorefs.export"

/* Marks an open file or directory. Where the file system keeps no mark, names alone tell. */
void mfs_export_mark(int fd);

/* The mode of directories: who may read the files may search them. The umask is not taken off. */
mode_t mfs_export_dir_mode(const struct mfs_view *view);
/* Makes the view's directories below the open one, where they are missing. */
int mfs_export_make_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err);
/* Marks them, and makes their entries durable. */
int mfs_export_sync_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err);

/* Fails if the directory `path` in an open one holds something that no export has left: a link, or
 * a file or directory without the mark (where the file system has no marks, one without a name of
 * the view). -EEXIST: it does, and the sentence names it. */
int mfs_export_check_known(int dirfd, const char *path, const struct mfs_view *view,
			   struct mfs_error *err);

enum mfs_sweep_kind {
	MFS_SWEEP_FOREIGN, /* everything that is neither the view's nor the journal */
	MFS_SWEEP_ALL,	   /* everything */
	MFS_SWEEP_KNOWN, /* what an export has left. If there is more: -EEXIST, and nothing goes */
};

/* Removes what is in the directory `path` of an open one. Links are removed, never followed. */
int mfs_export_sweep(int dirfd, const char *path, const struct mfs_view *view,
		     enum mfs_sweep_kind what, struct mfs_error *err);

#endif
