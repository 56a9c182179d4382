/* The process of a fetcher. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/regular.h"
#include "fs/cli/commands.h"
#include "fs/daemon/child.h"
#include "fs/prefetch/fetcher.h"
#include "fs/prefetch/fetcher_i.h"

#define READ_AHEAD_KB 128 /* the kernel's default */

struct mount {
	const char *mountpoint;
	dev_t dev;
	uint64_t step; /* bytes that the kernel reads for one advice: its read-ahead of the mount */
};

static uint64_t read_ahead(dev_t dev)
{
	char path[80], text[32] = "";
	unsigned long kb;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	if (!mfs_open_regular(AT_FDCWD, path, 0, &fd, NULL)) {
		if (read(fd, text, sizeof(text) - 1) < 0)
			*text = '\0';
		close(fd);
	}
	kb = strtoul(text, NULL, 10);
	return (uint64_t)(kb ? kb : READ_AHEAD_KB) << 10;
}

/* Opens the root of the mount if it has the device number. It asks for no attributes, since the
 * daemon may be gone. */
static int open_root(const struct mount *m)
{
	struct statx st;
	int fd = open(m->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st))
		rc = -errno;
	else if (makedev(st.stx_dev_major, st.stx_dev_minor) != m->dev)
		rc = -ENXIO;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

static int open_file(const struct mount *m, const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
	int root = open_root(m), fd;

	if (root < 0)
		return root;
	fd = (int)syscall(SYS_openat2, root, path + strspn(path, "/"), &how, sizeof(how));
	if (fd < 0)
		fd = -errno;
	close(root);
	return fd;
}

/* During an order the only message is that it is called off. receive() reads it later. */
static bool is_cancelled(void)
{
	char c;

	return recv(MFS_CHILD_FD, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static int fetch(const struct mount *m, const struct mfs_fetcher_order *order)
{
	uint64_t at = order->off, end = at + order->len, next;
	int fd = open_file(m, order->path), rc = 0;

	if (fd < 0)
		return fd;
	for (; at < end && !rc && !is_cancelled(); at = next) {
		next = mfs_min_u64(end, (at / m->step + 1) * m->step);
		rc = -posix_fadvise(fd, (off_t)at, (off_t)(next - at), POSIX_FADV_WILLNEED);
	}
	close(fd);
	return rc;
}

/* False: the daemon is gone. */
static bool receive(struct mfs_fetcher_order *order)
{
	const ssize_t head = offsetof(struct mfs_fetcher_order, path);
	ssize_t n;

	do {
		n = recv(MFS_CHILD_FD, order, sizeof(*order), 0);
	} while (n < 0 && errno == EINTR);
	return n > head && !((const char *)order)[n - 1];
}

int mfs_fetcher_main(int argc, char **argv)
{
	struct mfs_fetcher_order order;
	struct mount m;
	int rc = mfs_child_begin(argc, MFS_FETCHER_COMMAND);

	if (rc)
		return rc;
	if (chdir("/"))
		return MFS_EXIT_FAILED;
	m.mountpoint = argv[1];
	m.dev = (dev_t)strtoull(argv[2], NULL, 10);
	m.step = read_ahead(m.dev);
	while (receive(&order)) {
		if (!order.len)
			continue;
		rc = fetch(&m, &order);
		if (send(MFS_CHILD_FD, &rc, sizeof(rc), MSG_NOSIGNAL) < 0)
			break;
	}
	return MFS_EXIT_OK;
}
