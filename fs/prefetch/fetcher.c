#define _GNU_SOURCE
#include "fs/prefetch/fetcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/daemon/child.h"
#include "fs/prefetch/fetcher_i.h"

int mfs_fetcher_start(const char *mountpoint, dev_t dev, struct mfs_fetcher *ret)
{
	char device[32];
	char *argv[] = {"mcorefs-fetcher", MFS_FETCHER_COMMAND, (char *)mountpoint, device, NULL};

	snprintf(device, sizeof(device), "%llu", (unsigned long long)dev);
	return mfs_child_start(argv, &ret->pid, &ret->fd);
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
