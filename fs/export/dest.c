#define _GNU_SOURCE
#include "fs/export/dest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "formats/base/path.h"
#include "fs/data/data.h"

/* ---- what stands there ---- */

/* 1: the directory has an entry. */
static int has_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	int rc = 0;

	if (!dir)
		return -errno;
	while (!rc && (d = readdir(dir)))
		rc = strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
	closedir(dir);
	return rc;
}

static bool is_mount_point(const char *path)
{
	struct statx st;

	return !statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, 0, &st) &&
	       st.stx_attributes_mask & st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

static int check_standing(const char *dest, bool replace, struct mfs_error *err)
{
	struct stat st;
	int rc;

	if (lstat(dest, &st))
		return errno == ENOENT ? 0 : mfs_fail_errno(err, "'%s'", dest);
	if (!S_ISDIR(st.st_mode))
		return mfs_fail(err, -EEXIST, "'%s' exists and is not a directory", dest);
	if (is_mount_point(dest))
		return mfs_fail(err, -EBUSY,
				"'%s' is a mount point, which no directory can replace: name a new "
				"directory in it",
				dest);
	rc = replace ? 0 : has_entries(dest);
	if (rc < 0)
		return mfs_fail(err, rc, "cannot read '%s': %s", dest, strerror(-rc));
	if (rc)
		return mfs_fail(err, -EEXIST, "'%s' exists and is not empty (--force replaces it)",
				dest);
	return 0;
}

/* ---- mounts of mcorefs ---- */

/* "36 35 0:31 / /mnt ro,nosuid shared:1 - fuse.mcorefs /ckpt ro,user_id=0" */
static bool is_ours(const char *line, dev_t dev)
{
	const char *type = strstr(line, " - ");
	unsigned major_number, minor_number;

	return type && sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) == 2 &&
	       makedev(major_number, minor_number) == dev && !strncmp(type + 3, "fuse", 4) &&
	       strstr(type, "mcorefs");
}

static bool on_mcorefs(const char *path)
{
	size_t room = 0;
	char *line = NULL;
	bool found = false;
	struct statfs fs;
	struct stat st;
	FILE *mounts;

	if (statfs(path, &fs) || fs.f_type != FUSE_SUPER_MAGIC || stat(path, &st))
		return false;
	mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && !found && getline(&line, &room, mounts) > 0)
		found = is_ours(line, st.st_dev);
	free(line);
	if (mounts)
		fclose(mounts);
	return found;
}

/* ---- paths ---- */

/* Absolute and without links; its last part need not exist. NULL: its directory does not exist. */
static char *resolve(const char *dest)
{
	char *there = realpath(dest, NULL), *above, *parent;

	if (there)
		return there;
	above = mfs_path_parent(dest);
	parent = above ? realpath(above, NULL) : NULL;
	if (parent &&
	    asprintf(&there, "%s/%s", strcmp(parent, "/") ? parent : "", mfs_path_base(dest)) < 0)
		there = NULL;
	free(above);
	free(parent);
	return there;
}

/* The same where a bind mount gives a directory two names. */
static bool contains_object(const char *dir, const char *path)
{
	struct stat wanted, st;
	char at[PATH_MAX];
	char *slash;

	if (stat(dir, &wanted) || strlen(path) >= sizeof(at))
		return false;
	strcpy(at, path);
	do {
		if (!stat(at, &st) && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino)
			return true;
		slash = strrchr(at, '/');
		if (slash)
			*slash = '\0';
	} while (slash && slash != at);
	return false;
}

static bool lies_in(const char *path, const char *dir)
{
	return mfs_path_contains(dir, path) || contains_object(dir, path);
}

/* Whether a path, as it was given, lies in dest. */
static bool is_replaced(const char *dest, const char *given)
{
	char *path = given ? resolve(given) : NULL;
	bool replaced = path && lies_in(path, dest);

	free(path);
	return replaced;
}

/* The path of something else that is read and lies in dest; NULL: there is nothing. */
static const char *find_replaced(const char *dest, const struct mfs_root *root,
				 const struct mfs_view_options *opt)
{
	const struct mfs_data *data = mfs_root_data(root);

	if (is_replaced(dest, opt->ref))
		return opt->ref;
	if (is_replaced(dest, opt->tokenizer))
		return opt->tokenizer;
	for (unsigned i = 0; opt->data && i < opt->data->path_count; i++)
		if (is_replaced(dest, opt->data->paths[i]))
			return opt->data->paths[i];
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++)
		if (is_replaced(dest, mfs_dataset_path(mfs_data_at(data, i))))
			return mfs_dataset_path(mfs_data_at(data, i));
	return NULL;
}

/* ---- both ---- */

int mfs_export_check_dest(const char *dest, bool replace, struct mfs_error *err)
{
	char *parent = mfs_path_parent(dest);
	int rc = 0;

	if (!parent)
		return mfs_fail_nomem(err);
	if (on_mcorefs(parent))
		rc = mfs_fail(err, -EROFS,
			      "'%s' lies in a mount of mcorefs: name a directory elsewhere", dest);
	free(parent);
	return rc ? rc : check_standing(dest, replace, err);
}

int mfs_export_check_apart(const char *dest, bool replace, const struct mfs_root *root,
			   const struct mfs_view_options *opt, struct mfs_error *err)
{
	const char *source = mfs_root_source(root), *read;
	char *path = resolve(dest);
	int rc = 0;

	if (!path)
		return 0;
	read = replace ? find_replaced(path, root, opt) : NULL;
	if (lies_in(path, source) || lies_in(source, path))
		rc = mfs_fail(err, -EINVAL,
			      "'%s' lies in SOURCE or contains it: name a directory elsewhere",
			      dest);
	else if (read)
		rc = mfs_fail(err, -EINVAL, "'%s' is being read: '%s' cannot be replaced", read,
			      dest);
	free(path);
	return rc;
}
