#include "fs/view/keeper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_ERRORS 64 /* less than a kilobyte each */

/* A place for a thing. It exists while it has a holder, or keeps a thing or a failure. */
struct mfs_held {
	struct mfs_open_set *set;
	char *name;
	pthread_mutex_t opening; /* held while it is opened; error is under it */
	struct mfs_error error;	 /* code 0: none */
	/* written under both locks, or by the thread that closes it and alone knows it */
	void *object;

	/* Under the keeper's lock. */
	unsigned users;
	bool renewed;			/* nobody finds it any more */
	struct mfs_held *next;		/* of the set */
	struct mfs_held *newer, *older; /* while it has no holder */
};

/* Places without a holder, by their last use. */
struct idle {
	struct mfs_held *newest, *oldest;
	unsigned count, limit;
};

struct mfs_keeper {
	pthread_mutex_t lock;
	pthread_cond_t closed;
	struct idle objects, errors;
};

struct mfs_keeper *mfs_keeper_new(unsigned keep)
{
	struct mfs_keeper *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->closed, NULL);
	k->objects.limit = keep;
	k->errors.limit = KEEP_ERRORS;
	return k;
}

void mfs_keeper_free(struct mfs_keeper *k)
{
	if (!k)
		return;
	pthread_cond_destroy(&k->closed);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

void mfs_open_set_init(struct mfs_open_set *set, struct mfs_keeper *keeper,
		       const struct mfs_open_ops *ops, void *owner)
{
	*set = (struct mfs_open_set){.keeper = keeper, .ops = ops, .owner = owner};
}

/* ---- places; under the keeper's lock ---- */

static struct mfs_held *place_new(struct mfs_open_set *set, const char *name)
{
	struct mfs_held *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->name = strdup(name);
	if (!h->name) {
		free(h);
		return NULL;
	}
	pthread_mutex_init(&h->opening, NULL);
	h->set = set;
	h->next = set->first;
	set->first = h;
	return h;
}

static struct mfs_held *place_find(const struct mfs_open_set *set, const char *name)
{
	struct mfs_held *h = set->first;

	while (h && (h->renewed || strcmp(h->name, name)))
		h = h->next;
	return h;
}

static void place_unlink(struct mfs_held *h)
{
	struct mfs_held **p = &h->set->first;

	while (*p != h)
		p = &(*p)->next;
	*p = h->next;
}

/* Called without the lock: no other thread knows the place, and closing may take long. */
static void place_free(struct mfs_held *h)
{
	if (!h)
		return;
	if (h->object)
		h->set->ops->close(h->object);
	pthread_mutex_destroy(&h->opening);
	free(h->name);
	free(h);
}

static struct idle *idle_list(const struct mfs_held *h)
{
	return h->object ? &h->set->keeper->objects : &h->set->keeper->errors;
}

static void idle_remove(struct mfs_held *h)
{
	struct idle *list = idle_list(h);

	*(h->newer ? &h->newer->older : &list->newest) = h->older;
	*(h->older ? &h->older->newer : &list->oldest) = h->newer;
	h->newer = h->older = NULL;
	list->count--;
}

/* Returns the place that is to be freed for it, or NULL. */
static struct mfs_held *idle_add(struct mfs_held *h)
{
	struct idle *list = idle_list(h);
	struct mfs_held *last;

	h->older = list->newest;
	*(list->newest ? &list->newest->newer : &list->oldest) = h;
	list->newest = h;
	if (++list->count <= list->limit)
		return NULL;
	last = list->oldest;
	idle_remove(last);
	place_unlink(last);
	last->set->closing++;
	return last;
}

/* ---- holding ---- */

bool mfs_keeper_lasts(int code)
{
	switch (-code) {
	case EINVAL:
	case ENOTSUP:
	case ENODATA:
	case E2BIG:
	case EOVERFLOW:
	case ERANGE:
	case EEXIST:
		return true;
	default:
		return false;
	}
}

/* Under the place's own lock. The error counts only after a failure: a callee may have set it and
 * succeeded. */
static int place_fill(struct mfs_held *h, struct mfs_error *err)
{
	struct mfs_keeper *k = h->set->keeper;
	struct mfs_error why = {0};
	void *object = NULL;
	int rc = h->error.code;

	if (rc) {
		why = h->error;
	} else {
		rc = h->set->ops->open(h->set->owner, h->name, &object, &why);
		if (rc && mfs_keeper_lasts(rc)) {
			h->error = why;
			h->error.code = rc;
		}
	}
	if (rc && err)
		*err = why;
	if (!rc) {
		pthread_mutex_lock(&k->lock);
		h->object = object;
		pthread_mutex_unlock(&k->lock);
	}
	return rc;
}

int mfs_keeper_hold(struct mfs_open_set *set, const char *name, struct mfs_held **ret,
		    struct mfs_error *err)
{
	struct mfs_keeper *k = set->keeper;
	struct mfs_held *h;
	bool open = false;
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	h = place_find(set, name);
	if (!h)
		h = place_new(set, name);
	else if (!h->users)
		idle_remove(h);
	if (h) {
		h->users++;
		open = h->object;
	}
	pthread_mutex_unlock(&k->lock);
	if (!h)
		return mfs_fail_nomem(err);
	if (!open) {
		pthread_mutex_lock(&h->opening);
		if (!h->object)
			rc = place_fill(h, err);
		pthread_mutex_unlock(&h->opening);
	}
	if (rc) {
		mfs_keeper_drop(h);
		return rc;
	}
	*ret = h;
	return 0;
}

bool mfs_keeper_offer(struct mfs_open_set *set, const char *name, void *object)
{
	struct mfs_keeper *k = set->keeper;
	struct mfs_held *h = NULL;

	pthread_mutex_lock(&k->lock);
	if (!place_find(set, name))
		h = place_new(set, name);
	if (h) {
		h->object = object;
		h->users = 1;
	}
	pthread_mutex_unlock(&k->lock);
	mfs_keeper_drop(h);
	return h;
}

void *mfs_held_object(const struct mfs_held *held)
{
	return held->object;
}

/* Another owner's thing, or an older one of this. Its owner may end meanwhile, and waits for it. */
static void close_oldest(struct mfs_keeper *k, struct mfs_held *h)
{
	struct mfs_open_set *set = h->set;

	place_free(h);
	pthread_mutex_lock(&k->lock);
	set->closing--;
	pthread_cond_broadcast(&k->closed);
	pthread_mutex_unlock(&k->lock);
}

void mfs_keeper_drop(struct mfs_held *h)
{
	struct mfs_held *out = NULL, *oldest = NULL;
	struct mfs_keeper *k;

	if (!h)
		return;
	k = h->set->keeper;
	pthread_mutex_lock(&k->lock);
	if (!--h->users) {
		if (h->set->leaving || h->renewed || (!h->object && !h->error.code)) {
			place_unlink(h);
			out = h;
		} else {
			oldest = idle_add(h);
		}
	}
	pthread_mutex_unlock(&k->lock);
	place_free(out);
	if (oldest)
		close_oldest(k, oldest);
}

void mfs_keeper_renew(struct mfs_held *h)
{
	struct mfs_keeper *k = h->set->keeper;

	pthread_mutex_lock(&k->lock);
	h->renewed = true;
	pthread_mutex_unlock(&k->lock);
}

unsigned mfs_open_set_count(const struct mfs_open_set *set)
{
	unsigned count = 0;

	pthread_mutex_lock(&set->keeper->lock);
	for (const struct mfs_held *h = set->first; h; h = h->next)
		count++;
	pthread_mutex_unlock(&set->keeper->lock);
	return count;
}

/* ---- the end ---- */

static void close_idle(struct mfs_open_set *set, bool leaving)
{
	struct mfs_held **p = &set->first, *h, *out = NULL;

	pthread_mutex_lock(&set->keeper->lock);
	set->leaving |= leaving;
	while ((h = *p)) {
		if (h->users) {
			p = &h->next;
			continue;
		}
		idle_remove(h);
		*p = h->next;
		h->next = out;
		out = h;
	}
	pthread_mutex_unlock(&set->keeper->lock);
	while ((h = out)) {
		out = h->next;
		place_free(h);
	}
}

void mfs_open_set_close_idle(struct mfs_open_set *set)
{
	close_idle(set, false);
}

void mfs_open_set_let_go(struct mfs_open_set *set)
{
	close_idle(set, true);
}

void mfs_open_set_release(struct mfs_open_set *set)
{
	struct mfs_held *h;

	if (!set->keeper)
		return;
	mfs_open_set_let_go(set);
	pthread_mutex_lock(&set->keeper->lock);
	while (set->closing)
		pthread_cond_wait(&set->keeper->closed, &set->keeper->lock);
	pthread_mutex_unlock(&set->keeper->lock);
	/* The rest is held by commands, which never drop. */
	while ((h = set->first)) {
		set->first = h->next;
		place_free(h);
	}
}
