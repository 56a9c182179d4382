/* `mcorefs SOURCE MOUNTPOINT`. */
#ifndef MFS_FS_MOUNT_COMMAND_H
#define MFS_FS_MOUNT_COMMAND_H

int mfs_cmd_mount(int argc, char **argv);

#endif
