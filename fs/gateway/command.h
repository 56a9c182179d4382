/* `mcorefs serve` */
#ifndef MFS_FS_GATEWAY_COMMAND_H
#define MFS_FS_GATEWAY_COMMAND_H

int mfs_cmd_serve(int argc, char **argv);

#endif
