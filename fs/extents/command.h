#ifndef MFS_FS_EXTENTS_COMMAND_H
#define MFS_FS_EXTENTS_COMMAND_H

/* mcorefs extents: argv[0] is the command's name. Returns the exit code. */
int mfs_cmd_extents(int argc, char **argv);

#endif
