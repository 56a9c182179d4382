/* The inside of an overlay. Private to overlay.c and overlay_file.c. */
#ifndef MFS_FS_OVERLAY_OVERLAY_I_H
#define MFS_FS_OVERLAY_OVERLAY_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "fs/overlay/overlay.h"

#define MFS_OVERLAY_BUCKETS 1024

struct mfs_overlay_file {
	struct mfs_overlay_file *next; /* in its bucket */
	dev_t dev;
	ino_t ino;
	int fd;		     /* O_PATH: keeps the file and its inode number, even without a name */
	uint32_t generation; /* no other file has it */
	uint64_t lookups;    /* under the lock */
	_Atomic(struct mfs_readers *) readers; /* readers of the sources; NULL: everybody */
	struct timespec opened_ctime;	       /* change time at the last open, under the lock */
	off_t opened_size;		       /* size at the last open; -1: never opened */
};

struct mfs_overlay {
	char *name; /* DIR, for messages */
	int dir;    /* O_PATH */
	bool is_root;

	pthread_mutex_t lock;
	uint32_t generation; /* of the next file; begins at random, for each daemon */
	struct mfs_overlay_file *buckets[MFS_OVERLAY_BUCKETS]; /* by device and inode number */
};

/* mode without the rights of users who are no readers of the sources. uid, gid: of the file. */
mode_t mfs_overlay_narrow(struct mfs_readers *readers, mode_t mode, uid_t uid, gid_t gid);

/* Counts a lookup of the file of an O_PATH descriptor. The file may be new. The callee owns the
 * descriptor, even if it fails. -ENOMEM. */
int mfs_overlay_adopt(struct mfs_overlay *o, int fd, const struct stat *st,
		      struct mfs_overlay_file **ret);

#endif
