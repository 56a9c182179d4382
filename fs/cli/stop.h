/*
 * A person's wish that a command stops: SIGINT, SIGTERM, SIGHUP. The exit code is then 128 and the
 * signal's number, as shells have it. What is ignored, as nohup does with SIGHUP, stays ignored.
 */
#ifndef MFS_FS_CLI_STOP_H
#define MFS_FS_CLI_STOP_H

#include <signal.h>

/* Not 0, but the signal's number, once one has asked for it: stop as soon as may be, and leave
 * everything in order. */
extern volatile sig_atomic_t mfs_stop_requested;

/* The first signal says so in a line and ends the program, wherever it is: of commands, or parts of
 * them, that have nothing to put in order. */
void mfs_stop_at_once(void);
/* From now on the first signal asks for an orderly stop, a second one kills. Blocking calls are
 * interrupted (-EINTR). */
void mfs_stop_on_signals(void);
/* The exit code of what has stopped, or failed with code, if nobody had asked for it. */
int mfs_stop_code(int code);

#endif
