/* The parts of rights.c. Private to rights*.c. */
#ifndef MFS_FS_RIGHTS_RIGHTS_I_H
#define MFS_FS_RIGHTS_RIGHTS_I_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/cli/options.h"
#include "fs/rights/rights.h"

/* Landlock: which files may be opened. */
int mfs_rights_limit_files(const struct mfs_options *opt, const struct mfs_rights_needs *needs,
			   struct mfs_error *err);
/* seccomp: which system calls are refused, with EPERM. has_cache: dataset_cache takes files. Needs
 * no_new_privs or CAP_SYS_ADMIN. */
int mfs_rights_limit_calls(bool has_cache, struct mfs_error *err);

#endif
