/* `mcorefs diff`. Exit codes of its own: 0 equal, 1 different, 2 trouble, as diff(1). */
#ifndef MFS_FS_DIFF_COMMAND_H
#define MFS_FS_DIFF_COMMAND_H

int mfs_cmd_diff(int argc, char **argv);

#endif
