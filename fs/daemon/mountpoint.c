#define _GNU_SOURCE
#include "fs/daemon/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "fs/cli/log.h"

#define STACKED_MAX 64 /* dead mounts on one place */

extern char **environ;

/* ---- mountinfo ---- */

/* Reads a file of /proc, which has no size. NULL: failed, with errno. */
static char *read_text(const char *path)
{
	FILE *f = fopen(path, "re");
	size_t cap = 0;
	char *text = NULL;

	if (!f)
		return NULL;
	if (getdelim(&text, &cap, '\0', f) < 0) {
		free(text);
		text = NULL;
		errno = EIO;
	}
	fclose(f);
	return text;
}

/* Blanks, newlines and backslashes are written as a backslash and three octal digits. */
static char *unescape(const char *word, size_t len)
{
	char *ret = malloc(len + 1), *to = ret;

	for (size_t i = 0; ret && i < len; i++) {
		if (word[i] == '\\' && len - i > 3) {
			*to++ = (char)((word[i + 1] - '0') << 6 | (word[i + 2] - '0') << 3 |
				       (word[i + 3] - '0'));
			i += 3;
		} else {
			*to++ = word[i];
		}
	}
	if (ret)
		*to = '\0';
	return ret;
}

/* Word n of a line, from 0; "" if there are fewer. */
static char *word_at(const char *line, unsigned n)
{
	while (n--) {
		line += strcspn(line, " \n");
		line += *line == ' ';
	}
	return unescape(line, strcspn(line, " \n"));
}

/* Between a mount's flags and its type there may be any number of words, then a hyphen. */
static int parse_line(const char *line, struct mfs_mount_entry *ret)
{
	const char *rest = strstr(line, " - ");

	if (!rest || rest > line + strcspn(line, "\n"))
		return -EINVAL;
	*ret = (struct mfs_mount_entry){.id = atoi(line),
					.place = word_at(line, 4),
					.flags = word_at(line, 5),
					.type = word_at(rest + 3, 0),
					.source = word_at(rest + 3, 1),
					.options = word_at(rest + 3, 2)};
	if (ret->place && ret->flags && ret->type && ret->source && ret->options)
		return 0;
	mfs_mount_entry_release(ret);
	return -ENOMEM;
}

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

int mfs_mount_entry_parse(const char *text, int id, struct mfs_mount_entry *ret)
{
	for (const char *line = text; *line; line = next_line(line)) {
		char *end;

		if (strtol(line, &end, 10) == id && end > line)
			return parse_line(line, ret);
	}
	return -ENOENT;
}

static int parse_all(const char *text, struct mfs_mount_entry *list, size_t *count)
{
	int rc = 0;

	for (const char *line = text; *line && !rc; line = next_line(line)) {
		rc = parse_line(line, &list[*count]);
		*count += !rc;
	}
	return rc;
}

int mfs_mount_entries(struct mfs_mount_entry **ret, size_t *ret_count, struct mfs_error *err)
{
	char *text = read_text("/proc/self/mountinfo");
	size_t lines = 0;
	int rc;

	if (!text)
		return mfs_fail_errno(err, "/proc/self/mountinfo");
	for (const char *line = text; *line; line = next_line(line))
		lines++;
	*ret = calloc(lines + 1, sizeof(**ret));
	*ret_count = 0;
	rc = *ret ? parse_all(text, *ret, ret_count) : -ENOMEM;
	free(text);
	if (!rc)
		return 0;
	mfs_mount_entries_free(*ret, *ret_count);
	return mfs_fail(err, rc, "/proc/self/mountinfo: %s", strerror(-rc));
}

void mfs_mount_entries_free(struct mfs_mount_entry *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		mfs_mount_entry_release(&list[i]);
	free(list);
}

void mfs_mount_entry_release(struct mfs_mount_entry *entry)
{
	free(entry->place);
	free(entry->flags);
	free(entry->type);
	free(entry->source);
	free(entry->options);
	*entry = (struct mfs_mount_entry){0};
}

/* ---- a place ---- */

/* The number of the mount that place is in; for a mount point its own. An O_PATH descriptor asks
 * nothing of the file system, which may be dead or not permitted, and does not trigger an
 * automounter. */
static int mount_id(const char *place, int *ret, struct mfs_error *err)
{
	int fd = open(place, O_PATH | O_CLOEXEC);
	char path[64], *text;
	const char *at;

	if (fd < 0)
		return mfs_fail_errno(err, "%s", place);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	text = read_text(path);
	close(fd);
	at = text ? strstr(text, "mnt_id:") : NULL;
	if (at)
		*ret = atoi(at + strlen("mnt_id:"));
	free(text);
	return at ? 0 : mfs_fail(err, -EIO, "%s: %s does not name a mount", place, path);
}

int mfs_mountpoint_id(const char *place)
{
	int id = -1, rc = mount_id(place, &id, NULL);

	return rc ? rc : id;
}

bool mfs_mountpoint_stands(int id)
{
	char *text = read_text("/proc/self/mountinfo");
	struct mfs_mount_entry entry;
	int rc;

	if (!text)
		return true;
	rc = mfs_mount_entry_parse(text, id, &entry);
	free(text);
	if (!rc)
		mfs_mount_entry_release(&entry);
	return rc != -ENOENT;
}

int mfs_mountpoint_resolve(const char *dir, char *ret, struct mfs_error *err)
{
	char name[PATH_MAX];
	size_t len = strlen(dir);

	/* realpath() of a name with a slash at its end asks the mount, and a dead one does not
	 * answer. */
	while (len > 1 && dir[len - 1] == '/')
		len--;
	if (len >= sizeof(name))
		return mfs_fail(err, -ENAMETOOLONG, "%s", strerror(ENAMETOOLONG));
	memcpy(name, dir, len);
	name[len] = '\0';
	return realpath(name, ret) ? 0 : mfs_fail(err, -errno, "%s", strerror(errno));
}

int mfs_mountpoint_find(const char *place, struct mfs_mount_entry *ret, struct mfs_error *err)
{
	int id = -1, rc = mount_id(place, &id, err);
	char *text;

	if (rc)
		return rc;
	text = read_text("/proc/self/mountinfo");
	if (!text)
		return mfs_fail_errno(err, "/proc/self/mountinfo");
	rc = mfs_mount_entry_parse(text, id, ret);
	free(text);
	if (rc)
		return mfs_fail(err, rc, "%s: nothing is known of its mount", place);
	if (!strcmp(ret->place, place))
		return 0;
	mfs_mount_entry_release(ret);
	return mfs_fail(err, -ENOENT, "%s is not a mount point", place);
}

bool mfs_mountpoint_is_dead(const char *place)
{
	struct statfs st;

	/* ECONNABORTED comes while the program is still ending. */
	return statfs(place, &st) && (errno == ENOTCONN || errno == ECONNABORTED);
}

/* ---- making room ---- */

/* fusermount3 is set-user-ID root and decides what a user may detach. It prints its own
 * messages. */
static int detach_by_helper(const char *place, bool lazy)
{
	char *argv[] = {"fusermount3", "-u", lazy ? "-zq" : "-q", "--", (char *)place, NULL};
	posix_spawn_file_actions_t quiet;
	pid_t pid;
	int rc, status;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (rc)
		return -rc;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status ? -EPERM : 0;
}

int mfs_mountpoint_detach(const char *place, bool lazy, struct mfs_error *err)
{
	int rc = umount2(place, (lazy ? MNT_DETACH : 0) | UMOUNT_NOFOLLOW) ? -errno : 0;

	if (rc != -EPERM)
		return rc ? mfs_fail(err, rc, "%s", strerror(-rc)) : 0;
	rc = detach_by_helper(place, lazy);
	if (rc == -EPERM)
		return mfs_fail(err, rc, "fusermount3 refuses: it is in use, or another user's");
	return rc ? mfs_fail(err, rc, "fusermount3: %s", strerror(-rc)) : 0;
}

static int remove_dead(const char *place, struct mfs_error *err)
{
	int rc = mfs_mountpoint_detach(place, true, err);

	if (rc)
		return mfs_fail_in(err, "a dead mount cannot be removed");
	mfs_log(LOG_NOTICE, "%s: a dead mount was removed", place);
	return 0;
}

/* Detaches one mount from place. 0: another may be below it; 1: place is free. */
static int clear_one(const char *place, struct mfs_error *err)
{
	struct mfs_mount_entry entry;
	int rc = mfs_mountpoint_find(place, &entry, err);

	if (rc)
		return rc == -ENOENT ? 1 : rc;
	if (strcmp(entry.type, MFS_MOUNT_TYPE))
		rc = 1;
	else if (mfs_mountpoint_is_dead(place))
		rc = remove_dead(place, err);
	else
		rc = mfs_fail(err, -EBUSY, "mcorefs has mounted %s there: umount it first",
			      entry.source);
	mfs_mount_entry_release(&entry);
	return rc;
}

int mfs_mountpoint_clear(const char *place, struct mfs_error *err)
{
	for (unsigned i = 0; i < STACKED_MAX; i++) {
		int rc = clear_one(place, err);

		if (rc)
			return rc < 0 ? rc : 0;
	}
	return mfs_fail(err, -EBUSY, "more than %u dead mounts", STACKED_MAX);
}
