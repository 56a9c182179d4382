/*
 * The views of one owner (an iteration, an HF directory, a dataset), by their names: "hf",
 * "megatron/torch/tp2-pp1", "samples/train-s4096". What there is says the table of kinds; a view is
 * opened when somebody asks for it, and let go of when nobody holds it (fs/view/keeper.h).
 *
 * What an owner cannot have, as far as that is known without building it, is not listed: a file
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
	/* What views of a kind are made of, there until *ret_held is dropped (NULL: as long as the
	 * owner). */
	int (*hold)(void *owner, enum mfs_view_of of, struct mfs_view_origin *ret,
		    struct mfs_held **ret_held, struct mfs_error *err);
	/* Whether that is still what it was, now that a view was built of it. NULL: it always
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
	const char *why_not[MFS_VIEW_KINDS]; /* it cannot have this one; NULL: it can */
	struct mfs_access_fold access;	     /* who may read that */

	struct mfs_open_set open;
	pthread_mutex_t lock; /* what follows; held while specs are listed */
	struct mfs_arena arena;
	struct mfs_views_listing listings[MFS_VIEW_KINDS];
};

void mfs_views_init(struct mfs_views *v, const struct mfs_views_owner *answers, void *owner,
		    const struct mfs_view_table *table, unsigned of, struct mfs_keeper *keeper);
/* Finds out what it cannot have of what it is; access: who may read that. -ENOMEM. */
int mfs_views_look(struct mfs_views *v, const struct mfs_view_origin *s,
		   const struct mfs_access_fold *access, int64_t mtime_ns);
/* Closes all: before what they are made of. */
void mfs_views_release(struct mfs_views *v);

/* An entry of the owner's directory: a view, a directory of specs, or one in which several of these
 * lie. */
struct mfs_views_entry {
	char name[64];
	unsigned first, end; /* the kinds of it, by their numbers in the table */
	bool is_group;	     /* the last of these: kinds lie in it */
	const char *why_not; /* NULL: there is at least one of them */
};

/* The first that begins at a number of the table or behind it. for (i = 0; mfs_views_entry(v, i,
 * &e); i = e.end) sees them all. */
bool mfs_views_entry(const struct mfs_views *v, unsigned from, struct mfs_views_entry *ret);
/* Whether something is missing, and a file says so: this view, which the caller frees.
 * mfs_views_hold() knows it, too. */
bool mfs_views_lacks(const struct mfs_views *v);
int mfs_views_new_why_not(const struct mfs_views *v, struct mfs_view **ret, struct mfs_error *err);

/* The view, valid until it is dropped. -ENOENT: none of that name; -EINVAL: an impossible one; what
 * hold() and the kind's open() fail with. Any thread, here and below. */
int mfs_views_hold(struct mfs_views *v, const char *name, struct mfs_held **ret,
		   struct mfs_view **ret_view, struct mfs_error *err);
/* The same for commands, which end soon: it stays until the owner goes. */
int mfs_views_open(struct mfs_views *v, const char *name, struct mfs_view **ret,
		   struct mfs_error *err);
/* Whether there is one, without opening it: 0, -ENOENT, -EINVAL; what hold() fails with, a file
 * that is not there being -EIO. */
int mfs_views_check(struct mfs_views *v, const char *name, struct mfs_error *err);
/* The specs that a listing shows. They live as long as the owner. */
int mfs_views_list(struct mfs_views *v, const struct mfs_view_kind *kind, const char *const **ret,
		   uint32_t *ret_count, struct mfs_error *err);
/* What views of a kind have in common, and what is wrong with it. *ret may be NULL: nothing needs
 * holding. */
int mfs_views_hold_origin(struct mfs_views *v, const struct mfs_view_kind *kind,
			  struct mfs_held **ret, struct mfs_error *err);

#endif
