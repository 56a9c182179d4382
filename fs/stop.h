/* A person's wish that a long command stops: SIGINT, SIGTERM, SIGHUP. */
#ifndef MFS_FS_STOP_H
#define MFS_FS_STOP_H

#include <signal.h>

/* Not 0 once a signal has asked for it: stop as soon as may be, and leave everything in order. */
extern volatile sig_atomic_t mfs_stop_requested;

/* The first signal asks for an orderly stop, a second one kills. What is ignored, as nohup does with
 * SIGHUP, stays ignored. Blocking calls are interrupted (-EINTR). */
void mfs_stop_on_signals(void);

#endif
