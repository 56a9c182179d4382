/*
 * -o lists, sizes, and the command line of a mount.
 *
 * One table in options.c has all -o names. All commands accept the same names, so a line of fstab
 * can be tried with any of them.
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
	struct mfs_data_options data; /* view.data points here after a parse; strings are owned */
	const char *source;	      /* borrowed from argv */
	const char *mountpoint;	      /* borrowed from argv */
	bool foreground;	      /* -f */
	bool debug;		      /* -d */
	bool single_thread;	      /* -s */
	bool allow_other;
	bool read_only;	     /* ro is given after any rw: dataset_cache takes no files either */
	bool rw_given;	     /* rw is given after any ro */
	const char *log;     /* log=FILE, absolute; NULL: syslog. Owned */
	bool log_json;	     /* log_format=json */
	const char *metrics; /* metrics=: ADDR, or the absolute path of a file; NULL: none. Owned */
	bool metrics_file;   /* it is a path */
	bool remount;	     /* change an existing mount */
	const char *run_as;  /* setuid=USER: who serves once it is mounted; NULL. Owned */
	bool drop_privileges;	 /* no capabilities then */
	bool sandbox;		 /* only what serving needs then (fs/rights/rights.h) */
	bool mount8;		 /* mount(8) gives the options: rw may mean nothing */
	bool sloppy;		 /* mount -s: options that nobody knows are passed over */
	struct mfs_buf settings; /* options with an effect, without ro and rw (fs/fuse/remount.h) */
	bool prefetch_given;	 /* prefetch=N is given */
	unsigned prefetch;	 /* its N, fetchers; 0: only the kernel reads ahead */
	struct mfs_buf fuse;	 /* a list for libfuse: "allow_other,max_read=65536" */
};

/* opt begins zero-filled. A later value of an option replaces an earlier one. -EINVAL: an option
 * is unknown, lacks its value or has a wrong one; the message names it. -EROFS: rw is given without
 * dataset_cache, so nothing is writable. */
int mfs_options_parse_o(const char *list, struct mfs_options *opt, struct mfs_error *err);

/* Prepares for lists of mount(8), before any is parsed. It gives rw wherever ro is not given: that
 * is no error here, and dataset_cache decides what can be written. SOURCE may be empty. sloppy:
 * options that nobody knows are passed over (mount -s). */
void mfs_options_for_mount8(struct mfs_options *opt, bool sloppy);

/* SOURCE MOUNTPOINT [-o list] [-f] [-d] [-s], in any order; argv[0] is skipped. -EINVAL. */
int mfs_options_parse_mount(int argc, char **argv, struct mfs_options *opt, struct mfs_error *err);

void mfs_options_release(struct mfs_options *opt);

/* Appends name or name=value to a list for libfuse, with commas and backslashes of value
 * escaped. */
void mfs_fuse_list_add(struct mfs_buf *list, const char *name, const char *value);

/* Parses a size: "5GB", "512MiB", "4096" (decimal KB MB GB TB, binary KiB MiB GiB TiB, or bytes).
 * -EINVAL. */
int mfs_parse_size(const char *text, uint64_t *ret);

#endif
