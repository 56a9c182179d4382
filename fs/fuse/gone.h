/*
 * Makes the kernel forget iterations that are no longer shown. The kernel keeps names and inodes
 * until it needs memory, which may be never. As long as it knows them, so must the daemon. A
 * process that looks the name up again makes the kernel drop everything below it that nobody has
 * open.
 *
 * A fetcher (fs/prefetch/fetcher.h) looks the name up and exists for that time only. It is a
 * process, since a thread that waits for its own mount keeps the daemon from being killed.
 */
#ifndef MFS_FS_FUSE_GONE_H
#define MFS_FS_FUSE_GONE_H

#include <stdbool.h>
#include <sys/types.h>

#include "fs/prefetch/fetcher.h"

struct mfs_tree;

/* Zero-filled: nothing is under way. */
struct mfs_gone {
	struct mfs_fetcher fetcher;
	bool leaving; /* it was stopped, and has not ended yet */
	bool kept;    /* it stays until the end */
	bool asked;   /* it has not answered */
};

/* Called now and then by one thread, which must live as long as the mount. Takes a second at most.
 * What it has no time for is left to the next time. */
void mfs_gone_forget(struct mfs_gone *g, struct mfs_tree *tree, const char *mountpoint, dev_t dev);

/* Starts the fetcher and keeps it, for a daemon that will have no right to start one. Called by a
 * thread that lives as long as the mount. -errno. */
int mfs_gone_keep(struct mfs_gone *g, const char *mountpoint, dev_t dev);
/* The mount is gone: so is a kept fetcher then. */
void mfs_gone_end(struct mfs_gone *g);

#endif
