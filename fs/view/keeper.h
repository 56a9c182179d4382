/*
 * What is opened when somebody needs it, and let go of when nobody has for a while: checkpoints,
 * and the views that are made of them, of iterations and of datasets alike.
 *
 * An owner has a set of places, each with a name. mfs_keeper_hold() opens what a name stands for,
 * unless it is open; should several threads ask at once, one opens it and the others wait, for that
 * name alone. Whoever holds something may use it, without a lock, until he drops it. What nobody
 * holds stays open for the next who asks: of all sets of a keeper, what was used last. The rest is
 * closed, and opened again when somebody asks for it.
 *
 * A failure that would be met again (mfs_keeper_lasts) is kept likewise, and reported without
 * another try.
 */
#ifndef MFS_FS_VIEW_KEEPER_H
#define MFS_FS_VIEW_KEEPER_H

#include <stdbool.h>

#include "formats/base/error.h"

struct mfs_held;
struct mfs_keeper;

/* What an owner opens. open is never called twice at once for one name, and may hold things of
 * other sets; close drops them. */
struct mfs_open_kind {
	int (*open)(void *owner, const char *name, void **ret, struct mfs_error *err);
	void (*close)(void *object);
};

struct mfs_open_set {
	struct mfs_keeper *keeper;
	const struct mfs_open_kind *kind;
	void *owner;
	struct mfs_held *first; /* this and what follows: under the keeper's lock */
	bool leaving;		/* nothing stays open that nobody holds */
};

/* keep: how many things stay open that nobody holds. NULL: no memory. */
struct mfs_keeper *mfs_keeper_new(unsigned keep);
/* After all of its sets. */
void mfs_keeper_free(struct mfs_keeper *keeper);

void mfs_open_set_init(struct mfs_open_set *set, struct mfs_keeper *keeper,
		       const struct mfs_open_kind *kind, void *owner);
/* Closes all, held or not: what the set's things hold of other sets must be there still. */
void mfs_open_set_release(struct mfs_open_set *set);

/* -ENOMEM, and what opening fails with. */
int mfs_keeper_hold(struct mfs_open_set *set, const char *name, struct mfs_held **ret,
		    struct mfs_error *err);
/* Takes over what somebody has opened already; true, unless something stands under that name. */
bool mfs_keeper_offer(struct mfs_open_set *set, const char *name, void *object);
void *mfs_held_object(const struct mfs_held *held);
/* NULL: nothing. May close what was held, or something that was used longer ago. */
void mfs_keeper_drop(struct mfs_held *held);

/* Things that are open, or about to be, and failures that are kept. */
unsigned mfs_open_set_count(const struct mfs_open_set *set);

/* Closes what nobody holds, and forgets failures. */
void mfs_open_set_close_idle(struct mfs_open_set *set);
/* The owner is no longer shown: closes what nobody holds, and the rest as soon as that is so. */
void mfs_open_set_let_go(struct mfs_open_set *set);

/*
 * Whether a failure to open lasts. What the files say lasts as long as they do: -EINVAL, -ENOTSUP,
 * -ENODATA, and an index too large to be one (-E2BIG, -EOVERFLOW, -ERANGE), two of one name
 * (-EEXIST). All else may be different the next time: memory and descriptors come back (-ENOMEM,
 * -EMFILE, -ENFILE, -EAGAIN), a call was interrupted (-EINTR), a device or a server answers again
 * (-EIO, -ETIMEDOUT, -ENOENT of a directory that is being moved, -EACCES), a save ends (-ESTALE).
 */
bool mfs_keeper_lasts(int code);

#endif
