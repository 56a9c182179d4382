#define _GNU_SOURCE
#include "fs/daemon/users.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"

static bool leads_into(const char *link, const char *place)
{
	char to[PATH_MAX];
	const size_t len = strlen(place);
	const ssize_t n = readlink(link, to, sizeof(to) - 1);

	if (n < (ssize_t)len || strncmp(to, place, len) != 0)
		return false;
	to[n] = '\0';
	return !to[len] || to[len] == '/';
}

static bool has_open(const char *dir, const char *place)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char link[PATH_MAX];
	bool found = false;

	while (d && !found && (e = readdir(d))) {
		snprintf(link, sizeof(link), "%s/%s", dir, e->d_name);
		found = leads_into(link, place);
	}
	if (d)
		closedir(d);
	return found;
}

static bool uses(const char *proc, const char *place)
{
	static const char *const links[] = {"cwd", "root", "exe"};
	char path[64];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(links); i++) {
		snprintf(path, sizeof(path), "%s/%s", proc, links[i]);
		if (leads_into(path, place))
			return true;
	}
	snprintf(path, sizeof(path), "%s/fd", proc);
	if (has_open(path, place))
		return true;
	snprintf(path, sizeof(path), "%s/map_files", proc);
	return has_open(path, place);
}

static void name_of(const char *proc, char *ret, size_t size)
{
	char path[64], to[PATH_MAX];
	const char *name;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/exe", proc);
	n = readlink(path, to, sizeof(to) - 1);
	to[n < 0 ? 0 : n] = '\0';
	name = strrchr(to, '/');
	snprintf(ret, size, "%s", name ? name + 1 : "?");
	for (char *c = ret; *c; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?';
}

static void add(struct mfs_mount_users *users, const char *pid, const char *proc)
{
	if (users->count == MFS_MOUNT_USERS) {
		users->more++;
		return;
	}
	users->pids[users->count] = (pid_t)strtol(pid, NULL, 10);
	name_of(proc, users->names[users->count], sizeof(users->names[0]));
	users->count++;
}

void mfs_mount_users_find(const char *place, struct mfs_mount_users *ret)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	char proc[32];

	*ret = (struct mfs_mount_users){0};
	while (d && (e = readdir(d))) {
		if (!isdigit((unsigned char)*e->d_name) || strlen(e->d_name) > 20)
			continue;
		snprintf(proc, sizeof(proc), "/proc/%.20s", e->d_name);
		if (strtol(e->d_name, NULL, 10) == getpid())
			continue; /* a descriptor that it was started with */
		if (uses(proc, place))
			add(ret, e->d_name, proc);
	}
	if (d)
		closedir(d);
}
