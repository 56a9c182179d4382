/* Filling a view, for those who build one: fs/view and fs/data. */
#ifndef MFS_FS_VIEW_BUILD_H
#define MFS_FS_VIEW_BUILD_H

#include <stddef.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_fileset;

/* Appends a file. data is taken over, also on failure. */
int mfs_view_add(struct mfs_view *v, const char *name, struct mfs_vfile *data,
		 struct mfs_error *err);
/* A file of bytes in memory, which are taken over, also on failure. */
int mfs_view_add_bytes(struct mfs_view *v, const char *name, void *bytes, size_t len,
		       struct mfs_error *err);

/* Notes files that the view is made of: their times, owners and permissions. set may be NULL; it
 * must outlive the view. */
void mfs_view_note_sources(struct mfs_view *v, struct mfs_fileset *set);

/* Notes who may read something else that the view was made of. It was read once, and counts as it
 * was. */
void mfs_view_note_read(struct mfs_view *v, const struct mfs_access_fold *access);

/* Orders the files. -ENOMEM: sources could not be noted; -EINVAL: a name that no directory can
 * hold, or that is there twice. */
int mfs_view_finish(struct mfs_view *v, struct mfs_error *err);

#endif
