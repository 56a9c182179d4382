/*
 * Tells a service manager that asks for it (WatchdogSec=) that the mount answers. A second process
 * asks the mount with listxattr(2) and tells the daemon, which tells the manager. The kernel always
 * passes this request on, and asks nothing else first, not even for permissions. It is answered
 * without SOURCE: a mount that waits for SOURCE, as for a server that comes back, is in order. When
 * the mount does not answer, nothing is told, and the manager starts the service anew.
 */
#ifndef MFS_FS_DAEMON_WATCHDOG_H
#define MFS_FS_DAEMON_WATCHDOG_H

/* The command that makes the program the process that asks. */
#define MFS_WATCHDOG_COMMAND "--watchdog"

struct mfs_watchdog;

/* Starts the process that asks, where a manager wants it; it ends with the thread that starts it.
 * The mount stands, and need not answer yet. NULL: nobody asks, or it failed, which is logged. */
struct mfs_watchdog *mfs_watchdog_start(const char *mountpoint);
/* The mount has answered: the manager is told from now on. w may be NULL. */
void mfs_watchdog_feed(struct mfs_watchdog *w);
/* The mount is gone. w may be NULL. */
void mfs_watchdog_stop(struct mfs_watchdog *w);

/* main() of the process that asks. */
int mfs_watchdog_main(int argc, char **argv);

#endif
