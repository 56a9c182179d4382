/*
 * Rights that a daemon gives up once its mount stands, or a gateway once it listens: `-o
 * setuid=USER`, `-o drop_privileges` (as mount.fuse3(8) has them) and `-o sandbox`.
 *
 * They cannot be taken back, and they count for the thread that gives them up and for those that it
 * starts. So it must be the only one.
 */
#ifndef MFS_FS_RIGHTS_RIGHTS_H
#define MFS_FS_RIGHTS_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"
#include "fs/cli/options.h"

/* True if opt asks for less than all rights. */
bool mfs_rights_are_dropped(const struct mfs_options *opt);

/* setuid= alone. -EPERM: not root; -EINVAL: there is no such user. */
int mfs_rights_check_user(const struct mfs_options *opt, struct mfs_error *err);
/* Called before the mount. -EINVAL: a user that does not exist, or an option or SOURCE that goes
 * with none of these. */
int mfs_rights_check(const struct mfs_options *opt, struct mfs_error *err);

/*
 * setuid: user, group and groups become USER's. drop_privileges: no capabilities, and none can be
 * gained (no_new_privs). sandbox: that too, but for reading what others may not
 * (CAP_DAC_READ_SEARCH) where the daemon has it; files are opened below source and what opt names,
 * and for reading alone except in dataset_cache (Landlock); no program is executed, nothing is
 * mounted, traced or changed in the kernel, no other process is signalled, and attributes of files
 * are left as they are, but for those of dataset_cache (seccomp). source is a real path. The daemon
 * never opens what it shows.
 * -EBUSY: there are other threads; -ENOSYS: the kernel has no Landlock; -errno.
 */
int mfs_rights_drop(const struct mfs_options *opt, const char *source, struct mfs_error *err);

/* What is opened in a sandbox by a daemon that serves several sources. */
struct mfs_rights_served {
	const struct mfs_options *opt; /* of this source */
	const char *source;
};
struct mfs_rights_needs {
	const struct mfs_rights_served *served;
	size_t served_count;
	/* Lists of files, ended by NULL, whose directories are allowed because other files may take
	 * their places. Directories of read_again are allowed for reading, with those that links
	 * lead to now. Directories of logs are allowed for files that are made and written. */
	const char *const *read_again, *const *logs;
};
/* The same as mfs_rights_drop() for these; of opt what is not of one source. */
int mfs_rights_drop_for(const struct mfs_options *opt, const struct mfs_rights_needs *needs,
			struct mfs_error *err);

#endif
