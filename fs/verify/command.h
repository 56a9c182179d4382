/* `mcorefs verify`. */
#ifndef MFS_FS_VERIFY_COMMAND_H
#define MFS_FS_VERIFY_COMMAND_H

int mfs_cmd_verify(int argc, char **argv);

#endif
