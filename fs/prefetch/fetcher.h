/*
 * A fetcher is a small process that runs with the daemon. It opens a file of the daemon's own mount
 * and asks the kernel to read a range of it (posix_fadvise WILLNEED), so that the range is in the
 * page cache when its reader comes. The fetcher itself reads no byte.
 *
 * It is a process and not a thread, since a thread that waits for its own daemon keeps the daemon
 * from being killed. It runs the program anew and is not a fork, since a fork would keep the
 * daemon's mappings and /dev/fuse. It has a file of the mount open only while it works. It ends
 * with the daemon: the socket is closed, and the kernel kills it when the thread that started it
 * ends.
 *
 * It knows the mount point and the mount's device number. So it never opens a file of another file
 * system there, neither the one below the mount nor one that was mounted later.
 */
#ifndef MFS_FS_PREFETCH_FETCHER_H
#define MFS_FS_PREFETCH_FETCHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The command that makes the program a fetcher; only mfs_fetcher_start() uses it. */
#define MFS_FETCHER_COMMAND "--fetcher"

struct mfs_fetcher {
	pid_t pid;
	int fd; /* the socket to it: readable when a range is done, or when it has ended */
};

/* Starts a fetcher. It lives no longer than the thread that starts it. -errno. */
int mfs_fetcher_start(const char *mountpoint, dev_t dev, struct mfs_fetcher *ret);

/* Orders it to fetch [off, off+len) of the mount's file path
 * ("/iter_0000040/hf/model.safetensors"). It takes one order at a time. Never waits. -errno: the
 * fetcher has ended. */
int mfs_fetcher_send(const struct mfs_fetcher *f, const char *path, uint64_t off, uint64_t len);

/* Calls its order off; the fetcher will be done with it soon. Never waits. */
void mfs_fetcher_cancel(const struct mfs_fetcher *f);

/* Makes it end: fd is readable then, as when it ends by itself. Any thread. */
void mfs_fetcher_hang_up(const struct mfs_fetcher *f);

/* Asks how the order went. 0: it is done, the file is closed, and *ret_result is 0 or -errno.
 * -EAGAIN: it goes on. Other -errno: the fetcher has ended. Never waits. */
int mfs_fetcher_result(const struct mfs_fetcher *f, int *ret_result);

/* Ends it without waiting for its end. fd is -1 then. */
void mfs_fetcher_stop(struct mfs_fetcher *f);

/* True once a stopped fetcher has ended; call it until then. wait: waits for the end. This is
 * allowed only when the mount is gone, since the fetcher may be waiting for the mount's answer. */
bool mfs_fetcher_reap(struct mfs_fetcher *f, bool wait);

/* main() of a fetcher. */
int mfs_fetcher_main(int argc, char **argv);

#endif
