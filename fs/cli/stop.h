/*
 * Stopping a command by SIGINT, SIGTERM or SIGHUP. Its exit code is then 128 plus the signal's
 * number, as in shells. A signal that is ignored at the start, such as SIGHUP under nohup, stays
 * ignored.
 */
#ifndef MFS_FS_CLI_STOP_H
#define MFS_FS_CLI_STOP_H

#include <signal.h>

/* The number of the first such signal; 0: none has come. If it is not 0, the command cleans up and
 * stops. */
extern volatile sig_atomic_t mfs_stop_requested;

/* From now on the first signal prints a line and ends the program at once. For a command, or a part
 * of it, that has nothing to clean up. */
void mfs_stop_at_once(void);
/* From now on the first signal sets mfs_stop_requested, and a second one kills. Blocking calls are
 * interrupted (-EINTR). */
void mfs_stop_on_signals(void);
/* The exit code: 128 plus the signal's number if one has come, else code. */
int mfs_stop_code(int code);

#endif
