/* `mcorefs families`. */
#ifndef MFS_FS_FAMILIES_COMMAND_H
#define MFS_FS_FAMILIES_COMMAND_H

int mfs_cmd_families(int argc, char **argv);

#endif
