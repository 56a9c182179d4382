/* `mcorefs stub`. */
#ifndef MFS_FS_STUB_COMMAND_H
#define MFS_FS_STUB_COMMAND_H

int mfs_cmd_stub(int argc, char **argv);

#endif
