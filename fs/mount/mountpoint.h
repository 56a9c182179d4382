/*
 * What is mounted at a place, and making room there: a dead mount of ours is taken away, a live one
 * is kept.
 *
 * A daemon that was killed leaves a mount behind that answers nobody. The kernel goes on to answer
 * stat() of it for as long as attributes are kept (a second), so statfs() is what tells: it is
 * always asked.
 */
#ifndef MFS_FS_MOUNT_MOUNTPOINT_H
#define MFS_FS_MOUNT_MOUNTPOINT_H

#include <stdbool.h>

#include "formats/base/error.h"

/* The type that the kernel shows for mounts of this program. */
#define MFS_MOUNT_TYPE "fuse.mcorefs"

/* One line of /proc/self/mountinfo (proc_pid_mountinfo(5)); strings are owned. */
struct mfs_mount_entry {
	char *place;   /* where it is mounted */
	char *flags;   /* of this mount: "ro,nosuid,nodev,relatime" */
	char *type;    /* "fuse.mcorefs" */
	char *source;  /* "/runs/llama" */
	char *options; /* of the file system: "ro,user_id=0,group_id=0,allow_other" */
};

/* The mount that place (resolved, absolute) is the top of. -ENOENT: it is a directory like any
 * other; -errno. */
int mfs_mountpoint_find(const char *place, struct mfs_mount_entry *ret, struct mfs_error *err);
void mfs_mount_entry_release(struct mfs_mount_entry *entry);

/* The entry of a mount's number in text, which is in mountinfo's form. -ENOENT; -EINVAL: it is in
 * no such form. */
int mfs_mount_entry_parse(const char *text, int id, struct mfs_mount_entry *ret);

/* Whether the file system at place has lost the program that served it. */
bool mfs_mountpoint_is_dead(const char *place);

/*
 * Makes place free for a mount: dead mounts of ours are detached, with a line in the log. What
 * others have mounted there stays, an automounter's trigger above all, and will be covered as
 * mount(8) does it. -EBUSY: a mount of ours serves it; -errno: a dead one cannot be taken away.
 */
int mfs_mountpoint_clear(const char *place, struct mfs_error *err);

#endif
