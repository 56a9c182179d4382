/*
 * The keeper opens checkpoints and views when they are needed, and closes them when they were not
 * used for a while.
 *
 * An owner (an iteration or a dataset) has a set of things, each with a name. mfs_keeper_hold()
 * opens a thing unless it is open. If several threads ask for one name at once, one opens it and
 * the others wait. A holder uses the thing without a lock until mfs_keeper_drop(). Things without a
 * holder stay open for the next one who asks: the most recently used ones of all sets of a keeper.
 * The others are closed, and opened again when they are asked for.
 *
 * A failure that would come again (mfs_keeper_lasts) is kept too, and reported without another
 * attempt.
 */
#ifndef MFS_FS_VIEW_KEEPER_H
#define MFS_FS_VIEW_KEEPER_H

#include <stdbool.h>

#include "formats/base/error.h"

struct mfs_held;
struct mfs_keeper;

/* How an owner opens things. open() never runs twice at once for one name. It may hold things of
 * other sets; close() drops them. */
struct mfs_open_ops {
	int (*open)(void *owner, const char *name, void **ret, struct mfs_error *err);
	void (*close)(void *object);
};

struct mfs_open_set {
	struct mfs_keeper *keeper;
	const struct mfs_open_ops *ops;
	void *owner;
	struct mfs_held *first; /* this and the next fields: under the keeper's lock */
	bool leaving;		/* a thing without a holder is closed at once */
	unsigned closing;	/* things that are being closed to make room */
};

/* keep: how many things without a holder stay open. NULL: no memory. */
struct mfs_keeper *mfs_keeper_new(unsigned keep);
/* All sets must be released before. */
void mfs_keeper_free(struct mfs_keeper *keeper);

void mfs_open_set_init(struct mfs_open_set *set, struct mfs_keeper *keeper,
		       const struct mfs_open_ops *ops, void *owner);
/* Closes all things, held or not. Things of other sets that these hold must still be open. */
void mfs_open_set_release(struct mfs_open_set *set);

/* Holds the thing of that name, which is opened unless it is open. The holder drops it (below).
 * Errors of open(); -ENOMEM. */
int mfs_keeper_hold(struct mfs_open_set *set, const char *name, struct mfs_held **ret,
		    struct mfs_error *err);
/* Adds an object that is open already, and owns it. False: the name has a thing already. */
bool mfs_keeper_offer(struct mfs_open_set *set, const char *name, void *object);
void *mfs_held_object(const struct mfs_held *held);
/* Drops a thing; held may be NULL. This may close it, or a thing that was used longer ago. */
void mfs_keeper_drop(struct mfs_held *held);
/* What is held is no longer what its name stands for. The next caller that asks for the name gets
 * it opened anew, and this one is closed when its holders drop it. held: of the caller. */
void mfs_keeper_renew(struct mfs_held *held);

/* The number of things that are open or being opened, and of kept failures. */
unsigned mfs_open_set_count(const struct mfs_open_set *set);

/* Closes things without a holder, and forgets failures. */
void mfs_open_set_close_idle(struct mfs_open_set *set);
/* The owner is no longer shown: closes things without a holder, and the others when their holders
 * drop them. */
void mfs_open_set_let_go(struct mfs_open_set *set);

/*
 * True if a failure to open would come again. Failures of the files' content do: -EINVAL, -ENOTSUP,
 * -ENODATA, an index that is too large (-E2BIG, -EOVERFLOW, -ERANGE), two things of one name
 * (-EEXIST). Others may pass: memory and descriptors become free (-ENOMEM, -EMFILE, -ENFILE,
 * -EAGAIN), a call was interrupted (-EINTR), a device or a server answers again (-EIO, -ETIMEDOUT,
 * -EACCES, -ENOENT of a directory that is being moved), a save ends (-ESTALE).
 */
bool mfs_keeper_lasts(int code);

#endif
