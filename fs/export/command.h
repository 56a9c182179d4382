/* `mcorefs export`. */
#ifndef MFS_FS_EXPORT_COMMAND_H
#define MFS_FS_EXPORT_COMMAND_H

int mfs_cmd_export(int argc, char **argv);

#endif
