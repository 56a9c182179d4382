/*
 * `mount -o remount`. A mount keeps the options that it was mounted with. Only flags of the kernel
 * can change, and only towards fewer rights. An ioctl of the mount's root says what it was mounted
 * with.
 */
#ifndef MFS_FS_FUSE_REMOUNT_H
#define MFS_FS_FUSE_REMOUNT_H

#include <stdint.h>
#include <sys/ioctl.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "fs/cli/options.h"

/* A mount's settings: "rw" (dataset_cache takes files) or "ro", then each option that has an
 * effect, as "name" or "name=value", in the order given. Paths are absolute. A NUL ends each. */
int mfs_settings_make(const struct mfs_options *opt, bool writable, struct mfs_buf *ret);

/* The ioctl of a mount's root directory that reads a page of the settings. Only root and the user
 * who mounted may call it. */
struct mfs_settings_page {
	uint32_t offset; /* in: where text begins in the settings, bytes */
	uint32_t total;	 /* out: length of the settings, bytes */
	char text[4080]; /* out: filled up with zeros */
};
#define MFS_IOC_SETTINGS _IOWR('m', 0x73, struct mfs_settings_page)

/* Fills in total and text. */
void mfs_settings_page(const struct mfs_buf *settings, struct mfs_settings_page *page);

/*
 * Remounts the mount on opt->mountpoint. It keeps all its options. ro and noexec are set if opt has
 * them; every other option of opt must be in force already. -EINVAL: another SOURCE, or an option
 * that is not in force, which the message names; -ENOENT: no mount of mcorefs is there; -ENOTCONN:
 * it is dead; -errno of mount(2).
 */
int mfs_remount(const struct mfs_options *opt, struct mfs_error *err);

#endif
