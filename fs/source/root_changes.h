/* The changes between two looks at SOURCE, as sentences for the log. */
#ifndef MFS_FS_SOURCE_ROOT_CHANGES_H
#define MFS_FS_SOURCE_ROOT_CHANGES_H

#include "fs/source/root.h"

/* Calls say() for each iteration that is new, is no longer shown, or was saved again, and if latest
 * has moved: "iter_0000040 is new", "latest is iter_0000040". */
void mfs_root_say_changes(const struct mfs_root_snapshot *before,
			  const struct mfs_root_snapshot *now,
			  void (*say)(void *arg, const char *sentence), void *arg);

#endif
