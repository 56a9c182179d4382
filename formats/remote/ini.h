/* Values in files of AWS's command line (~/.aws/credentials, ~/.aws/config): "[section]", then
 * lines "key = value"; '#' and ';' begin comments. */
#ifndef MFS_REMOTE_INI_H
#define MFS_REMOTE_INI_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the value of a key in a section. False: there is none, it is empty, it has size bytes or
 * more, or a control character in it. text need not end with a NUL. */
bool mfs_ini_find(const char *text, size_t len, const char *section, const char *key, char *ret,
		  size_t size);

#endif
