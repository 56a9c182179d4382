/*
 * The command line: -o lists, sizes, and the options of a mount.
 *
 * One table in options.c says what every -o name means; mount, inspect, ls, verify and export
 * accept the same names, so that a line of fstab can be tried with any of them.
 */
#ifndef MFS_FS_CLI_OPTIONS_H
#define MFS_FS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "fs/data/data.h"
#include "fs/view/view.h"

#define MFS_PREFETCH_FETCHERS 8 /* at most */

struct mfs_options {
	struct mfs_view_options view; /* arch and ref are owned by the options */
	struct mfs_data_options
		data; /* what view.data points to once an option was parsed; strings are owned */
	const char *source;	/* borrowed from argv */
	const char *mountpoint; /* borrowed from argv */
	bool foreground;	/* -f */
	bool debug;		/* -d */
	bool single_thread;	/* -s */
	bool allow_other;
	bool read_only;	 /* ro, the last word on it: not even what dataset_cache takes is written */
	bool said_rw;	 /* rw was the last word */
	const char *log; /* log=FILE, absolute; NULL: syslog. Owned */
	bool remount;	 /* change a mount that is there */
	/* each option that counts but ro and rw, as fs/mount/remount.h has them */
	struct mfs_buf settings;
	unsigned prefetch;   /* processes; 0: the kernel alone reads ahead */
	struct mfs_buf fuse; /* what libfuse is to know, as a list: "allow_other,max_read=65536" */
};

/* A zero-filled struct is a valid start. Later values replace earlier ones. -EINVAL with the
 * option's name: unknown, without its value, or with a value that makes no sense; -EROFS for rw
 * without dataset_cache, which alone makes anything writable. */
int mfs_options_parse_o(const char *list, struct mfs_options *opt, struct mfs_error *err);

/* SOURCE MOUNTPOINT [-o list] [-f] [-d] [-s], in any order; argv[0] is skipped. -EINVAL. */
int mfs_options_parse_mount(int argc, char **argv, struct mfs_options *opt, struct mfs_error *err);

void mfs_options_release(struct mfs_options *opt);

/* Appends name or name=value to a list for libfuse, the value's commas and backslashes escaped. */
void mfs_fuse_list_add(struct mfs_buf *list, const char *name, const char *value);

/* "5GB", "512MiB", "4096": decimal KB MB GB TB, binary KiB MiB GiB TiB, or bytes. -EINVAL. */
int mfs_parse_size(const char *text, uint64_t *ret);

#endif
