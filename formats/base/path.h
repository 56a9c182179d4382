/* What the text of a path says; no file is looked at. */
#ifndef MFS_BASE_PATH_H
#define MFS_BASE_PATH_H

#include <stdbool.h>

/* Behind the last slash. */
const char *mfs_path_base(const char *path);

/* The directory that holds the last name, as memory that the caller frees; "." of a name alone.
 * NULL: no memory. */
char *mfs_path_parent(const char *path);

/* Whether a path is dir or lies in it, both of them absolute and without links. */
bool mfs_path_contains(const char *dir, const char *path);

#endif
