/*
 * Finds what is mounted at a place, and makes room there: a dead mount of mcorefs is detached, a
 * live one is kept.
 *
 * A daemon that was killed leaves a dead mount, which answers nobody. The kernel may answer a
 * stat() of it from its cache for a second. It always passes statfs() on, so statfs() shows whether
 * a mount is dead.
 */
#ifndef MFS_FS_DAEMON_MOUNTPOINT_H
#define MFS_FS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>

#include "formats/base/error.h"

/* The file system type of mounts of mcorefs. */
#define MFS_MOUNT_TYPE "fuse.mcorefs"

/* One line of /proc/self/mountinfo (proc_pid_mountinfo(5)); strings are owned. */
struct mfs_mount_entry {
	int id;	       /* of the mount, while it stands */
	char *place;   /* where it is mounted */
	char *flags;   /* of this mount: "ro,nosuid,nodev,relatime" */
	char *type;    /* "fuse.mcorefs" */
	char *source;  /* "/runs/llama" */
	char *options; /* of the file system: "ro,user_id=0,group_id=0,allow_other" */
};

/* The real path of a directory, absolute, without asking a mount that stands there, which may be
 * dead. ret has PATH_MAX bytes. -errno. */
int mfs_mountpoint_resolve(const char *dir, char *ret, struct mfs_error *err);

/* The mount whose root is place (resolved, absolute). -ENOENT: place is no mount point; -errno. */
int mfs_mountpoint_find(const char *place, struct mfs_mount_entry *ret, struct mfs_error *err);
void mfs_mount_entry_release(struct mfs_mount_entry *entry);

/* The entry of mount id in text, which has the form of mountinfo. -ENOENT: there is none; -EINVAL:
 * text has another form. */
int mfs_mount_entry_parse(const char *text, int id, struct mfs_mount_entry *ret);

/* All mounts that this process sees, in the order in which they were mounted. */
int mfs_mount_entries(struct mfs_mount_entry **ret, size_t *ret_count, struct mfs_error *err);
void mfs_mount_entries_free(struct mfs_mount_entry *list, size_t count);

/* The number of the mount that place is in; of several mounted there, the uppermost one. -errno. */
int mfs_mountpoint_id(const char *place);

/* True if the mount of this number is there, or nobody can say. */
bool mfs_mountpoint_stands(int id);

/* Unmounts place, by fusermount3 where the user may not himself. lazy: also while it is in use.
 * -EBUSY, -EPERM. */
int mfs_mountpoint_detach(const char *place, bool lazy, struct mfs_error *err);

/* True if the program that served the mount at place is gone. */
bool mfs_mountpoint_is_dead(const char *place);

/*
 * Makes place free for a mount. Dead mounts of mcorefs are detached, with a line in the log. Other
 * mounts stay, such as an automounter's trigger, and the new mount covers them as mount(8) does.
 * -EBUSY: a live mount of mcorefs is there; -errno: a dead one cannot be detached.
 */
int mfs_mountpoint_clear(const char *place, struct mfs_error *err);

#endif
