/* Functions for builders of views (fs/view, fs/data). */
#ifndef MFS_FS_VIEW_BUILD_H
#define MFS_FS_VIEW_BUILD_H

#include <stddef.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_fileset;

/* Appends a file. The view owns data from the call on, even if it fails. */
int mfs_view_add(struct mfs_view *v, const char *name, struct mfs_vfile *data,
		 struct mfs_error *err);
/* Appends a file of bytes in memory. The view owns bytes from the call on, even if it fails. */
int mfs_view_add_bytes(struct mfs_view *v, const char *name, void *bytes, size_t len,
		       struct mfs_error *err);

/* Notes times, owners and permissions of source files. set may be NULL; it must outlive the
 * view. */
void mfs_view_note_sources(struct mfs_view *v, struct mfs_fileset *set);
/* Like mfs_view_note_sources(), of a checkpoint's files, and of its adapter's. */
void mfs_view_note_ckpt(struct mfs_view *v, const struct mfs_ckpt *ckpt);

/* Notes who may read a source that was read once and is not kept. It is not looked at again. */
void mfs_view_note_read(struct mfs_view *v, const struct mfs_access_fold *access);

/* Sorts the files. -ENOMEM: a source could not be noted; -EINVAL: a name is not possible in a
 * directory, or occurs twice. */
int mfs_view_finish(struct mfs_view *v, struct mfs_error *err);

#endif
