/* `mcorefs inspect` and `mcorefs ls`. */
#ifndef MFS_FS_INSPECT_COMMAND_H
#define MFS_FS_INSPECT_COMMAND_H

int mfs_cmd_inspect(int argc, char **argv);
int mfs_cmd_ls(int argc, char **argv);

#endif
