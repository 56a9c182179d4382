/*
 * Tells a service manager about this process, in the protocol of sd_notify(3): a datagram to the
 * socket that $NOTIFY_SOCKET names, which is a path or '@' and an abstract name. The protocol is
 * written here because it is all that libsystemd would be needed for.
 */
#ifndef MFS_FS_CLI_NOTIFY_H
#define MFS_FS_CLI_NOTIFY_H

#include <stdint.h>

/* Sends lines like "READY=1\nSTATUS=...". -ENOENT: nobody asked ($NOTIFY_SOCKET is not set);
 * -errno. Never waits for the manager. */
int mfs_notify(const char *lines);

/* How often the manager wants "WATCHDOG=1" at the latest, microseconds (sd_watchdog_enabled(3)).
 * 0: never. */
uint64_t mfs_notify_watchdog_us(void);

#endif
