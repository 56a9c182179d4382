/* The inside of an overlay. Private to overlay.c and overlay_file.c. */
#ifndef MFS_FS_MOUNT_OVERLAY_I_H
#define MFS_FS_MOUNT_OVERLAY_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "fs/mount/overlay.h"

#define MFS_OVERLAY_BUCKETS 1024

struct mfs_overlay_file {
	struct mfs_overlay_file *next; /* in its bucket */
	dev_t dev;
	ino_t ino;
	int fd;		  /* O_PATH: holds the file, and its number, whatever becomes of its name */
	uint64_t lookups; /* under the lock */
	_Atomic(struct mfs_readers *) readers; /* of the sources beside which it lies; NULL: all */
	struct timespec opened_ctime;	       /* when it was last opened, under the lock */
	off_t opened_size;		       /* likewise; -1: never */
};

struct mfs_overlay {
	char *name; /* DIR, for messages */
	int dir;    /* O_PATH */
	bool is_root;

	pthread_mutex_t lock;
	struct mfs_overlay_file *buckets[MFS_OVERLAY_BUCKETS]; /* by device and inode number */
};

/* What is left of a mode that a file of that owner and group has beside sources of these
 * readers. */
mode_t mfs_overlay_narrow(struct mfs_readers *readers, mode_t mode, uid_t uid, gid_t gid);

/* The file that an O_PATH descriptor is of, known or new, with one more lookup. The descriptor is
 * the callee's, whatever happens. -ENOMEM. */
int mfs_overlay_adopt(struct mfs_overlay *o, int fd, const struct stat *st,
		      struct mfs_overlay_file **ret);

#endif
