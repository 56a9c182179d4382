/* `mcorefs sum`. */
#ifndef MFS_FS_SUM_COMMAND_H
#define MFS_FS_SUM_COMMAND_H

int mfs_cmd_sum(int argc, char **argv);

#endif
