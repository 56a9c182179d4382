/* `mcorefs mounts`. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/cli/cmdline.h"
#include "fs/cli/commands.h"
#include "fs/cli/json.h"
#include "fs/cli/text.h"
#include "fs/mount/command.h"
#include "fs/daemon/mountpoint.h"
#include "fs/fuse/mount_status.h"

#define PATIENCE_MS 2000 /* with all mounts together */

enum state { SERVES, DEAD, SILENT, CLOSED, COVERED };

static const struct {
	const char *word, *sentence;
} states[] = {
	[SERVES] = {"serves", ""},
	[DEAD] = {"dead", "dead: its process has ended"},
	[SILENT] = {"silent", "does not answer"},
	[CLOSED] = {"closed", "another user's: nothing is known of it"},
	[COVERED] = {"covered", "another mount lies over it"},
};

struct answer {
	enum state state;
	struct mfs_mount_status status; /* if it serves */
};

struct asked {
	struct mfs_mount_entry entry;
	struct answer answer;
	pid_t pid; /* of who asks; 0: nobody */
	int fd;	   /* his answer */
};

/* ---- asking ---- */

static struct answer ask(const struct mfs_mount_entry *entry)
{
	struct answer a = {.state = SERVES};
	int rc;

	if (mfs_mountpoint_id(entry->place) != entry->id) {
		a.state = COVERED;
	} else if (mfs_mountpoint_is_dead(entry->place)) {
		a.state = DEAD;
	} else {
		rc = mfs_mount_status_ask(entry->place, &a.status);
		if (rc)
			a.state = rc == -EACCES || rc == -EPERM ? CLOSED : SILENT;
	}
	return a;
}

/* A process that asks a mount that does not answer waits for ever, and cannot even be killed once
 * the daemon has read the request. So child processes ask. They keep nothing open but their end of
 * the pipe: a program that reads our output to its end must not wait for them, and neither must one
 * that waits for a lock of ours. */
static void send_out(struct asked *m)
{
	int ends[2];
	struct answer a;
	ssize_t n;

	m->answer.state = SILENT;
	m->pid = 0;
	if (pipe(ends))
		return;
	m->pid = fork();
	if (!m->pid) {
		if (dup2(ends[1], STDIN_FILENO) < 0 || close_range(1, ~0u, 0))
			_exit(1);
		a = ask(&m->entry);
		n = write(STDIN_FILENO, &a, sizeof(a));
		_exit(n == sizeof(a) ? 0 : 1);
	}
	close(ends[1]);
	m->fd = ends[0];
}

static int ms_since(const struct timespec *began)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int)((now.tv_sec - began->tv_sec) * 1000 +
		     (now.tv_nsec - began->tv_nsec) / 1000000);
}

static void hear(struct asked *m, const struct timespec *began)
{
	struct pollfd p = {.fd = m->fd, .events = POLLIN};
	int left = PATIENCE_MS - ms_since(began);
	struct answer a;

	if (m->pid <= 0)
		return;
	if (poll(&p, 1, left > 0 ? left : 0) > 0 && read(m->fd, &a, sizeof(a)) == sizeof(a))
		m->answer = a;
	close(m->fd);
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, WNOHANG); /* one that cannot be killed is left to init */
}

static void ask_all(struct asked *list, size_t count)
{
	struct timespec began;

	clock_gettime(CLOCK_MONOTONIC, &began);
	for (size_t i = 0; i < count; i++)
		send_out(&list[i]);
	for (size_t i = 0; i < count; i++)
		hear(&list[i], &began);
}

/* ---- saying ---- */

static json_t *json_of(const struct asked *m)
{
	const struct mfs_mount_status *s = &m->answer.status;
	json_t *o = json_object();

	json_object_set_new(o, "mountpoint", mfs_json_string(m->entry.place));
	json_object_set_new(o, "source", mfs_json_string(m->entry.source));
	json_object_set_new(o, "options", mfs_json_string(m->entry.options));
	json_object_set_new(o, "state", mfs_json_string(states[m->answer.state].word));
	if (m->answer.state != SERVES)
		return o;
	json_object_set_new(o, "pid", mfs_json_number(s->pid));
	json_object_set_new(o, "since", mfs_json_number((uint64_t)s->began));
	json_object_set_new(o, "reads", mfs_json_number(s->reads));
	json_object_set_new(o, "bytes", mfs_json_number(s->bytes));
	json_object_set_new(o, "errors", mfs_json_number(s->errors));
	json_object_set_new(o, "open_files", mfs_json_number(s->open_files));
	return o;
}

static int print_json(const struct asked *list, size_t count)
{
	json_t *array = json_array(), *o = json_object();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(array, json_of(&list[i]));
	json_object_set_new(o, "mounts", array);
	return mfs_json_print(o);
}

static void print_one(const struct asked *m)
{
	const struct mfs_mount_status *s = &m->answer.status;
	char since[MFS_HUMAN], bytes[MFS_HUMAN], place[MFS_SHOWN], source[MFS_SHOWN];

	printf("%s: %s", mfs_shown(m->entry.place, place), mfs_shown(m->entry.source, source));
	if (m->answer.state != SERVES)
		printf("\n  %s\n", states[m->answer.state].sentence);
	else
		printf("\n  since %s, process %u, %s in %llu reads, %llu errors, %llu files open\n",
		       mfs_human_time(s->began * 1000000000, since), s->pid,
		       mfs_human_bytes(s->bytes, bytes), (unsigned long long)s->reads,
		       (unsigned long long)s->errors, (unsigned long long)s->open_files);
}

static int say(const struct asked *list, size_t count, bool json)
{
	bool good = true;
	int rc = 0;

	for (size_t i = 0; i < count; i++) {
		good = good && list[i].answer.state != DEAD && list[i].answer.state != SILENT;
		if (!json)
			print_one(&list[i]);
	}
	if (json)
		rc = print_json(list, count);
	if (rc)
		return mfs_command_failed("%s", strerror(-rc));
	return good ? MFS_EXIT_OK : MFS_EXIT_FAILED;
}

/* ---- the command ---- */

/* Keeps those of mcorefs, and of them those at place, unless that is NULL. */
static size_t keep(struct mfs_mount_entry *all, size_t count, const char *place, struct asked *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(all[i].type, MFS_MOUNT_TYPE) || (place && strcmp(all[i].place, place)))
			mfs_mount_entry_release(&all[i]);
		else
			ret[n++].entry = all[i];
	}
	return n;
}

static int show(const char *dir, bool json)
{
	struct mfs_mount_entry *all;
	struct mfs_error err;
	struct asked *list;
	char place[PATH_MAX];
	size_t count;
	int code;

	if ((dir && mfs_mountpoint_resolve(dir, place, &err)) ||
	    mfs_mount_entries(&all, &count, &err))
		return mfs_command_failed("%s%s%s", dir ? dir : "", dir ? ": " : "", err.msg);
	list = calloc(count + 1, sizeof(*list));
	if (!list) {
		mfs_mount_entries_free(all, count);
		return mfs_command_failed("%s", strerror(ENOMEM));
	}
	count = keep(all, count, dir ? place : NULL, list);
	free(all);
	ask_all(list, count);
	code = dir && !count ? mfs_command_failed("%s is not a mount of mcorefs", dir)
			     : say(list, count, json);
	for (size_t i = 0; i < count; i++)
		mfs_mount_entry_release(&list[i].entry);
	free(list);
	return code;
}

int mfs_cmd_mounts(int argc, char **argv)
{
	bool json = false;
	struct mfs_cmdline c = {
		.usage = "mounts [MOUNTPOINT] [--json]",
		.help = "Says what is mounted here, or what MOUNTPOINT is: since when, what was\n"
			"read, what failed. The exit status is 1 if a mount is dead or does not\n"
			"answer within 2 seconds, so that it can be a probe.\n",
		.help_end = "  --json  for programs\n",
		.max = 1,
		.switches = {{"json", &json}},
	};
	int code = MFS_EXIT_OK;

	if (mfs_cmdline_parse(&c, argc, argv, &code))
		code = show(c.arguments[0], json);
	return mfs_cmdline_end(&c, code);
}
