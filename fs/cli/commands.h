/* What the programs behind `mcorefs COMMAND` have in common; each is in a command.h of its own
 * folder. */
#ifndef MFS_FS_CLI_COMMANDS_H
#define MFS_FS_CLI_COMMANDS_H

/* Exit codes, as mcorefs(1) lists them. */
enum mfs_exit {
	MFS_EXIT_OK = 0,
	MFS_EXIT_FAILED = 1, /* SOURCE cannot be shown, or a command found or met a fault */
	MFS_EXIT_USAGE = 2,  /* the command line is wrong */
	MFS_EXIT_MOUNT = 3,  /* SOURCE is fine, the mount itself failed */
};

/* Whose --help a wrong command line is told of: argv[0] of a command; NULL, at first: the
 * program's. Borrowed. */
void mfs_usage_of(const char *command);
/* Prints "mcorefs: sentence" and, for a wrong command line, where help is; both return the code. */
int mfs_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int mfs_command_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What the last of these has said, for --json; NULL: none has. */
const char *mfs_command_failure(void);

/* What was printed so far is on its way. The first failure is remembered for mfs_print_end(). */
void mfs_print_flush(void);
/* The last thing that a command does: code, unless what it printed did not reach standard output,
 * which is said, and then failed is returned. */
int mfs_print_end(int code, int failed);

#endif
