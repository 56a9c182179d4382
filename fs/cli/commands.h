/* What all commands of `mcorefs COMMAND` share. Each command is declared in the command.h of its
 * folder. */
#ifndef MFS_FS_CLI_COMMANDS_H
#define MFS_FS_CLI_COMMANDS_H

/* Exit codes, as mcorefs(1) lists them. */
enum mfs_exit {
	MFS_EXIT_OK = 0,
	MFS_EXIT_FAILED = 1, /* SOURCE cannot be shown, or the command failed or found a fault */
	MFS_EXIT_USAGE = 2,  /* the command line is wrong */
	MFS_EXIT_MOUNT = 3,  /* SOURCE is good, but mounting failed */
};

/* Sets whose --help a message about a wrong command line names: argv[0] of a command (borrowed).
 * NULL, the initial value: the program. */
void mfs_usage_of(const char *command);
/* Print "mcorefs: sentence" and return the exit code. mfs_usage_error() also says where help is. */
int mfs_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int mfs_command_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The last sentence of these functions, for --json. NULL: there was none. */
const char *mfs_command_failure(void);

/* Flushes stdout. mfs_print_end() reports the first failure. */
void mfs_print_flush(void);
/* The last call of a command. Returns code. If stdout did not take all output, it prints the reason
 * and returns failed. */
int mfs_print_end(int code, int failed);

#endif
