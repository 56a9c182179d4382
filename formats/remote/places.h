/*
 * What is read on this machine for a URL, in addition to the cache: how names of hosts are found,
 * whose certificates are believed, and the credentials that requests use. For code that limits
 * which files may be opened.
 */
#ifndef MFS_REMOTE_PLACES_H
#define MFS_REMOTE_PLACES_H

#include "formats/base/error.h"

/* Calls each() with files and directories until it fails. Some are not there. Of a file that others
 * replace it is the directory, unless that is HOME, "/etc" or its like, where more lies than
 * this. */
int mfs_remote_places(const char *url,
		      int (*each)(void *arg, const char *path, struct mfs_error *err), void *arg,
		      struct mfs_error *err);

#endif
