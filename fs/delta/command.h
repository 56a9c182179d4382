/* `mcorefs delta`. */
#ifndef MFS_FS_DELTA_COMMAND_H
#define MFS_FS_DELTA_COMMAND_H

int mfs_cmd_delta(int argc, char **argv);

#endif
