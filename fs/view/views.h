/*
 * The views of one owner (an iteration, an HF directory, a dataset) by their names: "hf",
 * "megatron/torch/tp2-pp1", "samples/train-s4096". A table of kinds says which there may be. A view
 * is opened when somebody asks for it, and closed some time after nobody holds it any more
 * (fs/view/keeper.h).
 *
 * Some views are known to be impossible before they are built. They are not listed, and a file
 * beside the others says why.
 */
#ifndef MFS_FS_VIEW_VIEWS_H
#define MFS_FS_VIEW_VIEWS_H

#include <pthread.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/io/access.h"
#include "fs/view/keeper.h"
#include "fs/view/kind.h"

#define MFS_WHY_NOT_FILE "why-not.txt"
#define MFS_WHY_NOT_VIEW "why-not" /* of that file alone, whose directory is the owner's */

/* What an owner answers. */
struct mfs_views_owner {
	/* Finds what views of a kind are made of. It stays until *ret_held is dropped; NULL: as
	 * long as the owner. */
	int (*hold)(void *owner, enum mfs_view_of of, struct mfs_view_origin *ret,
		    struct mfs_held **ret_held, struct mfs_error *err);
	/* Called when a view was built: whether its origin is still the same. NULL: it always
	 * is. */
	int (*recheck)(void *owner, const struct mfs_view_origin *s, struct mfs_error *err);
};

struct mfs_views_listing {
	const char *const *names; /* NULL: not listed yet */
	uint32_t count;
};

struct mfs_views {
	const struct mfs_views_owner *answers;
	void *owner;
	const struct mfs_view_table *table;
	unsigned of;			     /* what it has: enum mfs_view_of */
	int64_t mtime_ns;		     /* of the directories */
	const char *why_not[MFS_VIEW_KINDS]; /* why this one is impossible; NULL: it is not */
	struct mfs_access_fold access;	     /* who may read those sentences */

	struct mfs_open_set open;
	pthread_mutex_t lock; /* what follows; held while specs are listed */
	struct mfs_arena arena;
	struct mfs_views_listing listings[MFS_VIEW_KINDS];
};

void mfs_views_init(struct mfs_views *v, const struct mfs_views_owner *answers, void *owner,
		    const struct mfs_view_table *table, unsigned of, struct mfs_keeper *keeper);
/* Finds out which views are impossible. access: who may read s. -ENOMEM. */
int mfs_views_look(struct mfs_views *v, const struct mfs_view_origin *s,
		   const struct mfs_access_fold *access, int64_t mtime_ns);
/* Closes all views. Their origins must still be there. */
void mfs_views_release(struct mfs_views *v);

/* An entry of the owner's directory: a view, a directory of specs, or a directory of several of
 * these. */
struct mfs_views_entry {
	char name[64];
	unsigned first, end; /* its kinds, by their numbers in the table */
	bool is_group;	     /* a directory of several */
	const char *why_not; /* NULL: at least one of them is possible */
};

/* The next entry from a number of the table on; false: there are no more. A loop over all of them:
 * for (i = 0; mfs_views_entry(v, i, &e); i = e.end). */
bool mfs_views_entry(const struct mfs_views *v, unsigned from, struct mfs_views_entry *ret);
/* Whether some view is impossible. */
bool mfs_views_lacks(const struct mfs_views *v);
/* The view MFS_WHY_NOT_VIEW, for the caller to free. mfs_views_hold() opens it by its name, too. */
int mfs_views_new_why_not(const struct mfs_views *v, struct mfs_view **ret, struct mfs_error *err);

/* Opens a view, which stays until it is dropped. -ENOENT: there is none of that name; -EINVAL: an
 * impossible spec; what hold() and the kind's open() fail with. Any thread may call this and what
 * follows. */
int mfs_views_hold(struct mfs_views *v, const char *name, struct mfs_held **ret,
		   struct mfs_view **ret_view, struct mfs_error *err);
/* The same for commands, which end soon: it stays until the owner goes. */
int mfs_views_open(struct mfs_views *v, const char *name, struct mfs_view **ret,
		   struct mfs_error *err);
/* Whether there is a view of that name, without opening it: 0, -ENOENT, -EINVAL; what hold() fails
 * with, but -EIO where a file is not there. */
int mfs_views_check(struct mfs_views *v, const char *name, struct mfs_error *err);
/* The specs that a listing shows. They live as long as the owner. */
int mfs_views_list(struct mfs_views *v, const struct mfs_view_kind *kind, const char *const **ret,
		   uint32_t *ret_count, struct mfs_error *err);
/* Opens what views of a kind are made of; if that fails, it does for all of them. *ret may be NULL:
 * nothing needs holding. */
int mfs_views_hold_origin(struct mfs_views *v, const struct mfs_view_kind *kind,
			  struct mfs_held **ret, struct mfs_error *err);

#endif
