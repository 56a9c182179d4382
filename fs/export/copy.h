/*
 * Copies the files of a view into a directory: several files at a time, several writes of each in
 * flight. Large pieces go from the mapped sources to the page cache in one copy by the kernel; only
 * pieces below MFS_GATHER_COPY bytes pass through buffers of ours.
 */
#ifndef MFS_FS_EXPORT_COPY_H
#define MFS_FS_EXPORT_COPY_H

#include <signal.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_io_engine;

#define MFS_COPY_REQUEST (4u << 20) /* bytes of one write */
#define MFS_COPY_WRITES	 8	    /* in flight */
#define MFS_COPY_FILES	 4 /* being written at a time, each with one more request to sync */
#define MFS_COPY_BUFFERS ((uint64_t)MFS_COPY_REQUEST * MFS_COPY_WRITES) /* all memory for bytes */

/* Requests that the engine must have room for. */
#define MFS_COPY_DEPTH (MFS_COPY_WRITES + MFS_COPY_FILES)

struct mfs_copy {
	const struct mfs_view *view;
	int dirfd;
	uint64_t *durable; /* [view->count]: bytes from the start that are on disk for good; copying
			    * begins there, and keeps it up to date */
	mode_t mode;	   /* of every file, the umask taken off */
	struct mfs_io_engine *engine;
	const volatile sig_atomic_t *stop;  /* becomes non-zero: stop as soon as may be */
	void *arg;			    /* of those that follow */
	void (*created)(void *arg, int fd); /* a file, still empty; NULL: nobody wants to know */
	/* durable has grown; an error ends the copy. */
	int (*record)(void *arg, struct mfs_error *err);
	/* So many bytes of that file have been written. */
	void (*wrote)(void *arg, const char *name, uint64_t bytes);
};

/*
 * The directories that the view's names have must be there (fs/export/dir.h). 0: every file is
 * whole and durable and has its mode and the view's time. -EINTR: it was stopped; -ENOSPC; -ESTALE,
 * -EIO and others from the sources. After a failure durable is still right, and the caller records
 * it: a later call goes on from there.
 */
int mfs_copy_view(const struct mfs_copy *c, struct mfs_error *err);

#endif
