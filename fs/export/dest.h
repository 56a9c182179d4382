/* Where an export may go: neither into what it reads, nor over what is a person's. */
#ifndef MFS_FS_EXPORT_DEST_H
#define MFS_FS_EXPORT_DEST_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/source/root.h"

/* Before anything is read. What stands at dest must be nothing, an empty directory, or, to be replaced, a
 * directory; and no mount point, which cannot be renamed over, nor below a mount of mcorefs, which shows what
 * others have. -EEXIST, -EBUSY, -EROFS. */
int mfs_export_check_dest(const char *dest, bool replace, struct mfs_error *err);

/* dest and SOURCE must not lie in each other, by whatever links, or by bind mounts of the whole of them; and what is said of
 * the tokenizer (ref=) and of datasets must not be replaced. -EINVAL. */
int mfs_export_check_apart(const char *dest, bool replace, const struct mfs_root *root,
			   const struct mfs_view_options *opt, struct mfs_error *err);

#endif
