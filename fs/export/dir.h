/*
 * The directories of an export: those that a view's names have, what an export has left in them, and what
 * else may be found beside it.
 *
 * Every file and directory that an export makes bears the extended attribute MFS_EXPORT_MARK, where the file
 * system has such. So one that is exported again with other options knows its predecessor, whose names are
 * others; the files' bytes are nothing but the view's.
 */
#ifndef MFS_FS_EXPORT_DIR_H
#define MFS_FS_EXPORT_DIR_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

#define MFS_EXPORT_MARK "user.mcorefs.export"

/* Marks an open file or directory. Where that cannot be, names alone will tell. */
void mfs_export_mark(int fd);

/* Those who may read the files may search their directories; without the umask. */
mode_t mfs_export_dir_mode(const struct mfs_view *view);
/* Makes those of the view below the open directory, where they are missing. */
int mfs_export_make_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err);
/* Marks them, and makes their entries durable. */
int mfs_export_sync_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err);

/* -EEXIST: the directory at path holds what no export has left: a file or directory without the
 * mark (where there are none: without a name of the view), a link, something else. The sentence names it. */
int mfs_export_check_known(const char *path, const struct mfs_view *view, struct mfs_error *err);

enum mfs_sweep {
	MFS_SWEEP_FOREIGN, /* what the view does not have, but for the journal, whatever it is */
	MFS_SWEEP_ALL,	   /* everything */
	MFS_SWEEP_KNOWN, /* what an export has left; -EEXIST, and nothing is removed, if there is more */
};

/* Removes what is in a directory. Links are removed, never followed. */
int mfs_export_sweep(const char *path, const struct mfs_view *view, enum mfs_sweep what,
		     struct mfs_error *err);

#endif
