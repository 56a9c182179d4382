/*
 * A fetcher: a small process beside the daemon that opens a file of the daemon's own mount and asks
 * the kernel for a piece of it (posix_fadvise WILLNEED), so that it is in the page cache when its
 * reader comes. It reads no byte itself and hands none to anybody.
 *
 * It is a process and not a thread, since a thread that waits for its own daemon keeps that from
 * being killed; and another program, not a fork, since a fork would keep the daemon's mappings, and
 * with /dev/fuse the mount, alive. It has nothing of the mount open but while it works. It ends
 * with the daemon: its socket comes to its end, and the kernel kills it when the thread that
 * started it is gone.
 *
 * It is told where the mount is and its device number, and touches nothing else there: neither what
 * lies below the mount once that is gone, nor another one in its place.
 */
#ifndef MFS_FS_MOUNT_FETCHER_H
#define MFS_FS_MOUNT_FETCHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The command of the program that is a fetcher; for mfs_fetcher_start() alone. */
#define MFS_FETCHER_COMMAND "--fetcher"

struct mfs_fetcher {
	pid_t pid;
	int fd; /* the socket to it: readable when a piece is done, or when it has ended */
};

/* The thread that starts one must live as long as it is to live. -errno. */
int mfs_fetcher_start(const char *mountpoint, dev_t dev, struct mfs_fetcher *ret);

/* Has it fetch [off, off+len) of the mount's file path ("/iter_0000040/hf/model.safetensors");
 * one piece at a time. Never waits. -errno: it is not there any more. */
int mfs_fetcher_send(const struct mfs_fetcher *f, const char *path, uint64_t off, uint64_t len);

/* The piece that it is at is not needed any more; it will be done with it soon. Never waits. */
void mfs_fetcher_cancel(const struct mfs_fetcher *f);

/* Has it end; it is readable then, as when it has ended by itself. Any thread. */
void mfs_fetcher_hang_up(const struct mfs_fetcher *f);

/* What became of the piece. 0 with *ret_result 0 or -errno: it has let go of the file. -EAGAIN:
 * it is at it. Other -errno: it has ended. Never waits. */
int mfs_fetcher_result(const struct mfs_fetcher *f, int *ret_result);

/* Ends it, but does not wait until it has ended. fd is -1 then. */
void mfs_fetcher_stop(struct mfs_fetcher *f);

/* Whether a stopped one has ended, which is asked until it has. wait: not before the mount is
 * gone, for whose answer it may be waiting. */
bool mfs_fetcher_reap(struct mfs_fetcher *f, bool wait);

/* The process itself. */
int mfs_fetcher_main(int argc, char **argv);

#endif
