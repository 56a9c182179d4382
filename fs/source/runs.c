#include "fs/source/runs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/io/directory.h"
#include "fs/source/root.h"

/* 1, 0 or -errno: a storage that does not answer is not one without the directory. */
static int look(const char *dir, const char *name, char *path, size_t size, struct stat *st)
{
	if (*name == '.' || (size_t)snprintf(path, size, "%s/%s", dir, name) >= size)
		return 0;
	if (!stat(path, st))
		return S_ISDIR(st->st_mode);
	if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
		return -errno;
	return stat(dir, st) ? -EIO : 0;
}

int mfs_runs_find(const char *dir, const char *name, char *path, size_t size)
{
	struct stat st;

	return look(dir, name, path, size, &st);
}

int mfs_runs_each(const char *dir, int (*each)(void *arg, const char *name, const struct stat *st),
		  void *arg)
{
	struct dirent **list;
	char path[PATH_MAX];
	struct stat st;
	int count = mfs_scandir(dir, &list, NULL, alphasort), rc = 0;

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		const int found = rc ? 0 : look(dir, list[i]->d_name, path, sizeof(path), &st);

		if (found < 0)
			rc = found;
		else if (found)
			rc = each(arg, list[i]->d_name, &st);
		free(list[i]);
	}
	free(list);
	return rc;
}

static int is_source(void *arg, const char *name, const struct stat *st)
{
	char path[PATH_MAX];

	(void)st;
	return (size_t)snprintf(path, sizeof(path), "%s/%s", (const char *)arg, name) <
		       sizeof(path) &&
	       mfs_root_looks_like_one(path);
}

bool mfs_runs_look_like_some(const char *dir)
{
	return mfs_runs_each(dir, is_source, (void *)dir) > 0;
}
