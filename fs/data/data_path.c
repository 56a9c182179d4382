/* What a path holds that a person has named. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/dataset/rows/hf_dataset.h"
#include "formats/indexed/indexed_dataset.h"
#include "fs/data/data_i.h"

static bool is_prefix(const char *path)
{
	char idx[PATH_MAX];
	struct stat st;

	return (size_t)snprintf(idx, sizeof(idx), "%s.idx", path) < sizeof(idx) &&
	       !stat(idx, &st) && S_ISREG(st.st_mode);
}

/* "PREFIX.idx" and "PREFIX.bin" name PREFIX, as a shell completes file names. */
static char *stripped(const char *path)
{
	char *copy = strdup(path), *dot = copy ? strrchr(copy, '.') : NULL;

	if (mfs_str_is(dot, ".idx") || mfs_str_is(dot, ".bin")) {
		*dot = '\0';
		if (!*copy || !is_prefix(copy))
			*dot = '.';
	}
	return copy;
}

/* The directory of a prefix can be resolved; its last part stays as it was written. */
static char *resolve_prefix(const char *prefix)
{
	char *parent = mfs_path_parent(prefix), *full = NULL;
	char *dir = parent ? realpath(parent, NULL) : NULL;

	if (dir && asprintf(&full, "%s/%s", strcmp(dir, "/") ? dir : "", mfs_path_base(prefix)) < 0)
		full = NULL;
	free(parent);
	free(dir);
	return full;
}

int mfs_data_path(const char *path, char **ret, struct mfs_error *err)
{
	char *copy = stripped(path), *full;

	if (!copy)
		return mfs_fail_nomem(err);
	full = is_prefix(copy) ? resolve_prefix(copy) : realpath(path, NULL);
	free(copy);
	if (!full)
		return mfs_fail(err, -errno, "'%s': %s", path, strerror(errno));
	*ret = full;
	return 0;
}

static bool has_prefixes(const char *dir)
{
	char **prefixes = NULL;
	size_t count = 0;
	struct stat st;
	const bool has = !stat(dir, &st) && S_ISDIR(st.st_mode) &&
			 !mfs_indexed_dataset_list(dir, &prefixes, &count, NULL);

	free(prefixes);
	return has;
}

enum mfs_data_path_kind mfs_data_holds(const char *path)
{
	if (is_prefix(path))
		return MFS_DATA_HOLDS_PREFIX;
	if (mfs_hf_dataset_looks_like_one(path))
		return MFS_DATA_HOLDS_HF;
	return has_prefixes(path) ? MFS_DATA_HOLDS_PREFIXES : MFS_DATA_HOLDS_NONE;
}

bool mfs_data_looks_like_one(const char *path)
{
	char *prefix = stripped(path);
	const bool found = prefix && mfs_data_holds(prefix);

	free(prefix);
	return found;
}
