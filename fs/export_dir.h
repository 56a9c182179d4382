/* The directories of an export: those that a view's names have, and what else may be found beside them. */
#ifndef MFS_FS_EXPORT_DIR_H
#define MFS_FS_EXPORT_DIR_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/view.h"

/* Makes those of the view below the open directory, where they are missing. */
int mfs_export_make_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err);
/* Makes their entries durable. */
int mfs_export_sync_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err);

/* -EEXIST: the directory at path holds a directory that the view does not have. */
int mfs_export_check_dirs(const char *path, const struct mfs_view *view, struct mfs_error *err);

enum mfs_sweep {
	MFS_SWEEP_FOREIGN, /* what the view does not have, but for the journal, whatever it is */
	MFS_SWEEP_ALL,	   /* everything */
	MFS_SWEEP_KNOWN,   /* files, and the directories that the view has; -EEXIST at any other */
};

/* Removes what is in a directory. Links are removed, never followed. */
int mfs_export_sweep(const char *path, const struct mfs_view *view, enum mfs_sweep what);

#endif
