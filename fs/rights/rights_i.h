/* The parts of rights.c. Private to rights*.c. */
#ifndef MFS_FS_RIGHTS_RIGHTS_I_H
#define MFS_FS_RIGHTS_RIGHTS_I_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "fs/cli/options.h"
#include "fs/rights/rights.h"

/* Whether a SOURCE has files in the cache (-o cache=): a URL, or a chain of deltas. */
bool mfs_rights_has_cache(const char *source);

/* Landlock: which files may be opened. */
int mfs_rights_limit_files(const struct mfs_options *opt, const struct mfs_rights_needs *needs,
			   struct mfs_error *err);
/* What is changed of files that are open: owner and mode; times. */
struct mfs_rights_changes {
	bool owners, times;
};
/* seccomp: which system calls are refused, with EPERM. Needs no_new_privs or CAP_SYS_ADMIN. */
int mfs_rights_limit_calls(struct mfs_rights_changes changes, struct mfs_error *err);

#endif
