#define _GNU_SOURCE
#include "fs/daemon/unmounter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/cli/commands.h"
#include "fs/daemon/child.h"
#include "fs/daemon/mountpoint.h"

int mfs_unmounter_main(int argc, char **argv)
{
	char byte;
	int rc = 0, code = mfs_child_begin(argc, MFS_UNMOUNTER_COMMAND);

	if (code)
		return code;
	/* By the mount's number: somebody may have unmounted it, and mounted another. */
	if (recv(MFS_CHILD_FD, &byte, 1, 0) == 1 && mfs_mountpoint_id(argv[1]) == atoi(argv[2]))
		rc = mfs_mountpoint_detach(argv[1], true, NULL);
	return -rc; /* below 256, as an exit status */
}

int mfs_unmounter_start(const char *mountpoint, struct mfs_unmounter *ret)
{
	char id[16];
	char *argv[] = {"mcorefs-unmounter", MFS_UNMOUNTER_COMMAND, (char *)mountpoint, id, NULL};
	int number = mfs_mountpoint_id(mountpoint);

	if (number < 0)
		return number;
	ret->mount = number;
	snprintf(id, sizeof(id), "%d", number);
	return mfs_child_start(argv, &ret->pid, &ret->fd);
}

/* 0: it has done what it was asked to; -ESRCH: it ended before that, as when it was killed. */
static int ask(const struct mfs_unmounter *u)
{
	int status = 0;

	send(u->fd, "", 1, MSG_NOSIGNAL);
	while (waitpid(u->pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ESRCH;
}

int mfs_unmounter_end(struct mfs_unmounter *u)
{
	int rc;

	if (u->fd < 0)
		return 0;
	rc = ask(u);
	close(u->fd);
	u->fd = -1;
	/* Somebody else may have unmounted it, to whom this process was of no use. */
	return rc && mfs_mountpoint_stands(u->mount) ? rc : 0;
}
