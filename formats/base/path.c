#include "formats/base/path.h"

#include <string.h>

const char *mfs_path_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *mfs_path_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return strdup(".");
	return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

bool mfs_path_contains(const char *dir, const char *path)
{
	const size_t len = strlen(dir);

	return !strncmp(dir, path, len) && (!path[len] || path[len] == '/' || len == 1);
}
