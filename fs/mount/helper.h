/*
 * `mcorefs --mount-helper SOURCE MOUNTPOINT [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE]`: what mount(8)
 * asks of a helper for a file system (mount(8), EXTERNAL HELPERS). mount-helpers/mount.mcorefs
 * starts it.
 *
 * Words and options may come in any order: mount(8) puts options after MOUNTPOINT, autofs and
 * people also before SOURCE. mount(8) has taken x-*, noauto and comment= out of the options, but
 * leaves _netdev, nofail and user, and adds rw when ro is not given.
 */
#ifndef MFS_FS_MOUNT_HELPER_H
#define MFS_FS_MOUNT_HELPER_H

/* The command that makes the program a helper. */
#define MFS_HELPER_COMMAND "--mount-helper"

/* What mount(8) understands. */
enum mfs_helper_exit {
	MFS_HELPER_OK = 0,
	MFS_HELPER_USAGE = 1,  /* the command line or an option is wrong */
	MFS_HELPER_FAILED = 32 /* there is no mount */
};

/* The exit status of the helper for one of our own commands' (fs/cli/commands.h). */
int mfs_helper_exit_of(int code);

/* main() of the helper. */
int mfs_helper_main(int argc, char **argv);

#endif
