/* `mcorefs SOURCE MOUNTPOINT`, `mcorefs umount`, `mcorefs mounts`. */
#ifndef MFS_FS_MOUNT_COMMAND_H
#define MFS_FS_MOUNT_COMMAND_H

struct mfs_options;

int mfs_cmd_mount(int argc, char **argv);
int mfs_cmd_umount(int argc, char **argv);
int mfs_cmd_mounts(int argc, char **argv);

/* Mounts or remounts what opt says. Unless opt says foreground, a child serves, and this process
 * exits with its report. Returns an exit code of fs/cli/commands.h. */
int mfs_mount(struct mfs_options *opt);

#endif
