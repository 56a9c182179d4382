#define _GNU_SOURCE
#include "fs/daemon/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/cli/commands.h"

static int set_signals(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	rc = posix_spawnattr_setsigmask(attr, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (!rc)
		rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return rc;
}

/* The child inherits only one end of a socket. */
static int set_files(posix_spawn_file_actions_t *files, int fd)
{
	int rc = 0;

	for (int i = 0; i < 3 && !rc; i++)
		rc = posix_spawn_file_actions_addopen(files, i, "/dev/null", O_RDWR, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, fd, MFS_CHILD_FD);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(files, MFS_CHILD_FD + 1);
	return rc;
}

static int spawn(char **argv, int fd, pid_t *ret)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc = posix_spawn_file_actions_init(&files);

	if (rc)
		return -rc;
	rc = posix_spawnattr_init(&attr);
	if (!rc) {
		rc = set_files(&files, fd);
		if (!rc)
			rc = set_signals(&attr);
		if (!rc)
			rc = posix_spawn(ret, "/proc/self/exe", &files, &attr, argv, environ);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

int mfs_child_start(char **argv, pid_t *ret_pid, int *ret_fd)
{
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	rc = spawn(argv, ends[1], ret_pid);
	close(ends[1]);
	if (rc)
		close(ends[0]);
	else
		*ret_fd = ends[0];
	return rc;
}

int mfs_child_begin(int argc, const char *command)
{
	if (argc != 3)
		return mfs_usage_error("unknown option '%s'", command);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	return 0;
}
