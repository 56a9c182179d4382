/*
 * The views of one owner (an iteration, an HF directory, a dataset) by their names: "hf",
 * "megatron/torch/tp2-pp1", "samples/train-s4096". A table of kinds says which views there may be.
 * A view is opened when it is needed, and closed some time after its last use (fs/view/keeper.h).
 *
 * Some views are known to be impossible before they are built. They are not listed; a file of the
 * same directory gives the reasons.
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

/* Callbacks of an owner. */
struct mfs_views_owner_ops {
	/* Opens what views of a kind are made of. It stays open until *ret_held is dropped.
	 * *ret_held NULL: it lives as long as the owner. */
	int (*hold)(void *owner, enum mfs_view_source_kind of, struct mfs_view_origin *ret,
		    struct mfs_held **ret_held, struct mfs_error *err);
	/* Called after a view was built: fails if its origin has changed. NULL: it never
	 * changes. */
	int (*recheck)(void *owner, const struct mfs_view_origin *s, struct mfs_error *err);
};

struct mfs_views_listing {
	const char *const *names; /* NULL: not listed yet */
	uint32_t count;
};

struct mfs_views {
	const struct mfs_views_owner_ops *ops;
	void *owner;
	const struct mfs_view_table *table;
	unsigned of;	  /* what the owner has: enum mfs_view_source_kind */
	int64_t mtime_ns; /* of the directories */
	/* Why a kind is impossible; NULL: it is possible. Neighbours with one reason share its
	 * text. */
	const char *why_not[MFS_VIEW_KINDS];
	struct mfs_access_fold access; /* who may read these sentences */

	struct mfs_open_set open;
	pthread_mutex_t lock; /* of the fields below; held while specs are listed */
	struct mfs_arena arena;
	struct mfs_views_listing listings[MFS_VIEW_KINDS];
};

void mfs_views_init(struct mfs_views *v, const struct mfs_views_owner_ops *ops, void *owner,
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
	unsigned first, end; /* its kinds in the table: [first, end) */
	bool is_group;	     /* a directory of several kinds */
	const char *why_not; /* NULL: at least one kind is possible */
};

/* The first entry from kind number from on. False: there are no more. This loop goes over all of
 * them: for (i = 0; mfs_views_entry(v, i, &e); i = e.end). */
bool mfs_views_entry(const struct mfs_views *v, unsigned from, struct mfs_views_entry *ret);
/* True if some kind is impossible that people would look for. */
bool mfs_views_lacks(const struct mfs_views *v);
/* Builds the view MFS_WHY_NOT_VIEW; the caller frees it. mfs_views_hold() opens it by its name
 * too, if mfs_views_lacks(). */
int mfs_views_new_why_not(const struct mfs_views *v, struct mfs_view **ret, struct mfs_error *err);

/* Holds a view, and opens it if it is not open. -ENOENT: there is no view of that name; -EINVAL:
 * the spec is impossible; errors of hold() and of the kind's open(). Any thread may call this and
 * the functions below. */
int mfs_views_hold(struct mfs_views *v, const char *name, struct mfs_held **ret,
		   struct mfs_view **ret_view, struct mfs_error *err);
/* Like mfs_views_hold(), for commands, which end soon: the view stays open as long as the owner. */
int mfs_views_open(struct mfs_views *v, const char *name, struct mfs_view **ret,
		   struct mfs_error *err);
/* Checks that there is a view of that name, without opening it. -ENOENT: there is none; -EINVAL:
 * the spec is impossible; errors of hold(), with -EIO for its -ENOENT. */
int mfs_views_check(struct mfs_views *v, const char *name, struct mfs_error *err);
/* The specs that a listing shows. They live as long as the owner. */
int mfs_views_list(struct mfs_views *v, const struct mfs_view_kind *kind, const char *const **ret,
		   uint32_t *ret_count, struct mfs_error *err);
/* Holds what views of a kind are made of. If this fails, all views of the kind fail. *ret is NULL
 * if nothing needs holding. */
int mfs_views_hold_origin(struct mfs_views *v, const struct mfs_view_kind *kind,
			  struct mfs_held **ret, struct mfs_error *err);

#endif
