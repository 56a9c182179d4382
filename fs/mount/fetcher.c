#define _GNU_SOURCE
#include "fs/mount/fetcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/mount/fetcher_i.h"

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

/* The fetcher inherits only one end of a socket. */
static int set_files(posix_spawn_file_actions_t *files, int fd)
{
	int rc = 0;

	for (int i = 0; i < 3 && !rc; i++)
		rc = posix_spawn_file_actions_addopen(files, i, "/dev/null", O_RDWR, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, fd, MFS_FETCHER_FD);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(files, MFS_FETCHER_FD + 1);
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

int mfs_fetcher_start(const char *mountpoint, dev_t dev, struct mfs_fetcher *ret)
{
	char device[32];
	char *argv[] = {"mcorefs-fetcher", MFS_FETCHER_COMMAND, (char *)mountpoint, device, NULL};
	int ends[2], rc;

	snprintf(device, sizeof(device), "%llu", (unsigned long long)dev);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	rc = spawn(argv, ends[1], &ret->pid);
	close(ends[1]);
	if (rc)
		close(ends[0]);
	else
		ret->fd = ends[0];
	return rc;
}

static int send_order(const struct mfs_fetcher *f, const struct mfs_fetcher_order *order)
{
	size_t len = offsetof(struct mfs_fetcher_order, path) + strlen(order->path) + 1;
	ssize_t n = send(f->fd, order, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	return n < 0 ? -errno : 0;
}

int mfs_fetcher_send(const struct mfs_fetcher *f, const char *path, uint64_t off, uint64_t len)
{
	struct mfs_fetcher_order order = {.off = off, .len = len};

	if (strlen(path) >= sizeof(order.path))
		return -ENAMETOOLONG;
	strcpy(order.path, path);
	return send_order(f, &order);
}

void mfs_fetcher_cancel(const struct mfs_fetcher *f)
{
	const struct mfs_fetcher_order nothing = {0};

	send_order(f, &nothing);
}

void mfs_fetcher_hang_up(const struct mfs_fetcher *f)
{
	shutdown(f->fd, SHUT_RDWR);
}

int mfs_fetcher_result(const struct mfs_fetcher *f, int *ret_result)
{
	ssize_t n = recv(f->fd, ret_result, sizeof(*ret_result), MSG_DONTWAIT);

	if (n < 0)
		return -errno;
	return n == sizeof(*ret_result) ? 0 : -EPIPE;
}

void mfs_fetcher_stop(struct mfs_fetcher *f)
{
	close(f->fd);
	f->fd = -1;
	kill(f->pid, SIGKILL);
}

bool mfs_fetcher_reap(struct mfs_fetcher *f, bool wait)
{
	pid_t pid;

	do {
		pid = waitpid(f->pid, NULL, wait ? 0 : WNOHANG);
	} while (pid < 0 && errno == EINTR);
	return pid != 0;
}
