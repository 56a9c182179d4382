/* Functions of the text of a path; no file is looked at. */
#ifndef MFS_BASE_PATH_H
#define MFS_BASE_PATH_H

#include <stdbool.h>

/* The part after the last slash. */
const char *mfs_path_base(const char *path);

/* The directory that holds the last name; "." if the path is a name alone. The caller frees it.
 * NULL: out of memory. */
char *mfs_path_parent(const char *path);

/* Whether path is dir or lies in it. Both are absolute and have no links. */
bool mfs_path_contains(const char *dir, const char *path);

#endif
