/*
 * Roots that several users share, by path and options: one that is asked for is opened unless it is
 * open. Those that nobody uses stay open up to a number, and the one that was used longest ago is
 * closed. The gateway and a mount of many runs hold theirs here.
 */
#ifndef MFS_FS_SOURCE_ROOTS_H
#define MFS_FS_SOURCE_ROOTS_H

#include <stdbool.h>

#include "formats/base/error.h"

struct mfs_cache_stats;
struct mfs_keeper;
struct mfs_root;
struct mfs_roots;
struct mfs_view_options;

/* How many roots stay open without users, unless another number is given. */
#define MFS_ROOTS_OPEN 32

/* What a user keeps with each root, as long as it is open. open() runs before the root is opened,
 * once at a time for each. */
struct mfs_attached_ops {
	int (*open)(const struct mfs_view_options *options, void **ret, struct mfs_error *err);
	void (*close)(void *attached);
};

/* All but the users are as they were when it was opened. */
struct mfs_shared_root {
	struct mfs_root *root;
	void *attached; /* NULL: nothing */
	const struct mfs_view_options *options;
};

/* open 0: MFS_ROOTS_OPEN. attached NULL: nothing is kept with a root. keeper: it keeps the
 * iterations of all roots, and must outlive them; NULL: each root has its own. Returns NULL without
 * memory. */
struct mfs_roots *mfs_roots_new(unsigned open, const struct mfs_attached_ops *attached,
				struct mfs_keeper *keeper);
/* Closes all, used or not. */
void mfs_roots_free(struct mfs_roots *roots);

/* Opens a root or shares an open one, until mfs_roots_drop(). options are borrowed, and are told
 * apart by their addresses. Errors: those of open() and of mfs_root_open(); then the next call
 * opens the root again. Any thread. */
int mfs_roots_hold(struct mfs_roots *roots, const char *path,
		   const struct mfs_view_options *options, struct mfs_shared_root **ret,
		   struct mfs_error *err);
/* Like mfs_roots_hold(), of one that is open already: NULL if none is. It does not count as a
 * use. */
struct mfs_shared_root *mfs_roots_hold_open(struct mfs_roots *roots, const char *path,
					    const struct mfs_view_options *options);
/* This may close it, or one that was used longer ago. */
void mfs_roots_drop(struct mfs_roots *roots, struct mfs_shared_root *s);
/* Its sources have changed: the next who asks gets a new root, and this one goes with its last
 * user. */
void mfs_roots_stale(struct mfs_roots *roots, struct mfs_shared_root *s);

/* What was counted of all that are URLs, those that are closed included: it never goes back. False:
 * none was a URL. */
bool mfs_roots_remote(struct mfs_roots *roots, struct mfs_cache_stats *ret);

/* Roots that are open or being opened, and how often they are held. */
void mfs_roots_count(struct mfs_roots *roots, unsigned *ret_open, unsigned *ret_users);

#endif
