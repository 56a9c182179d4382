/* `mcorefs fsck`. */
#ifndef MFS_FS_FSCK_COMMAND_H
#define MFS_FS_FSCK_COMMAND_H

int mfs_cmd_fsck(int argc, char **argv);

#endif
