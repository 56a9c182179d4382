/*
 * `mount -o remount`: a mount that serves keeps what it was mounted with; the kernel's own flags
 * alone can change, and only to less. For this a mount tells who asks what it was mounted with.
 */
#ifndef MFS_FS_MOUNT_REMOUNT_H
#define MFS_FS_MOUNT_REMOUNT_H

#include <stdint.h>
#include <sys/ioctl.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "fs/cli/options.h"

/* A mount's settings: "rw" (dataset_cache takes files) or "ro", then each option that counts,
 * "name" or "name=value" with paths absolute, in the order given; a NUL behind each. */
int mfs_settings_make(const struct mfs_options *opt, bool writable, struct mfs_buf *ret);

/* They are read in pieces from a mount's root directory, by root and by who mounted. */
struct mfs_settings_page {
	uint32_t offset; /* in: of text within the settings */
	uint32_t total;	 /* out: length of the settings, bytes */
	char text[4080]; /* out; zeros behind their end */
};
#define MFS_IOC_SETTINGS _IOWR('m', 0x73, struct mfs_settings_page)

/* Fills in what is out. */
void mfs_settings_page(const struct mfs_buf *settings, struct mfs_settings_page *page);

/*
 * Remounts what is mounted on opt->mountpoint. Options that are in force already change nothing,
 * whatever else is in force stays; ro and noexec are put in force. -EINVAL: another SOURCE, or an
 * option, which is named, that is not in force; -ENOENT: nothing of ours is mounted there;
 * -ENOTCONN: it is dead; -errno of mount(2).
 */
int mfs_remount(const struct mfs_options *opt, struct mfs_error *err);

#endif
