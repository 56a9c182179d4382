/* Where an export may go: not into what it reads, and not over what a person has made. */
#ifndef MFS_FS_EXPORT_DEST_H
#define MFS_FS_EXPORT_DEST_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/source/root.h"

/* Called before anything is read. dest must not exist, or be an empty directory, or be a directory
 * if it is to be replaced (-EEXIST). It must not be a mount point, which nothing can be renamed
 * over (-EBUSY), and not lie in a mount of mcorefs (-EROFS). */
int mfs_export_check_dest(const char *dest, bool replace, struct mfs_error *err);

/* dest and SOURCE must not lie in each other, whatever links or bind mounts of them lead there, and
 * what ref= and data= name must not be replaced. -EINVAL. */
int mfs_export_check_apart(const char *dest, bool replace, const struct mfs_root *root,
			   const struct mfs_view_options *opt, struct mfs_error *err);

#endif
