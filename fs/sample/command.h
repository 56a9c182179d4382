/* `mcorefs sample`. */
#ifndef MFS_FS_SAMPLE_COMMAND_H
#define MFS_FS_SAMPLE_COMMAND_H

int mfs_cmd_sample(int argc, char **argv);

#endif
