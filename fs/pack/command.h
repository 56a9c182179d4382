/* `mcorefs pack`. */
#ifndef MFS_FS_PACK_COMMAND_H
#define MFS_FS_PACK_COMMAND_H

int mfs_cmd_pack(int argc, char **argv);

#endif
