/*
 * Comparing on all processors. Pairs are cut into units, and each free thread takes the next unit.
 * Units are in the order of the model, so that files are read about in the order of their bytes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/ckpt/target.h"
#include "fs/diff/diff.h"
#include "fs/cli/progress.h"

#define UNIT	    (32u << 20) /* bytes of the wider side: a plan is made for each */
#define MAX_THREADS 16

struct comparing {
	struct mfs_diff *d;
	bool first_only;
	pthread_mutex_t lock; /* of the fields below */
	uint32_t pair;	      /* pair and element at which the next unit begins */
	uint64_t at;
	uint64_t done; /* bytes */
	struct mfs_progress progress;
	bool found; /* a difference was found, and the first one is enough */
	int rc;
	struct mfs_error err;
};

struct unit {
	struct mfs_diff_pair *pair;
	uint64_t first, count;
};

static int plan_side(struct mfs_diff_side *s, const struct mfs_global_tensor *t, bool add_one,
		     struct mfs_plan **ret, struct mfs_error *err)
{
	struct mfs_whole_target target;

	if (add_one)
		mfs_whole_target_init_add_one(&target, s->ckpt, t);
	else
		mfs_whole_target_init(&target, s->ckpt, t);
	return mfs_plan_new(&target.base, ret, err);
}

/* ---- units ---- */

/* Takes the next unit, under the lock. False: none is left. */
static bool take(struct comparing *r, struct unit *u)
{
	struct mfs_diff *d = r->d;
	uint64_t each;

	while (r->pair < d->pair_count && r->at >= d->pairs[r->pair].elements) {
		r->pair++;
		r->at = 0;
	}
	if (r->pair == d->pair_count || r->rc || r->found)
		return false;
	u->pair = &d->pairs[r->pair];
	each = UNIT /
	       mfs_max_u64(mfs_dtype_size(u->pair->a->dtype), mfs_dtype_size(u->pair->b->dtype));
	u->first = r->at;
	u->count = mfs_min_u64(each, u->pair->elements - r->at);
	r->at += u->count;
	return true;
}

static bool has_values(const struct mfs_diff_pair *p)
{
	return mfs_compare_has_values(p->a->dtype) && mfs_compare_has_values(p->b->dtype);
}

static int compare_unit(struct comparing *r, struct mfs_comparer *c, const struct unit *u,
			struct mfs_comparison *found, struct mfs_error *err)
{
	struct mfs_diff_pair *p = u->pair;
	struct mfs_plan *a = NULL, *b = NULL;
	char name[MFS_CKPT_NAME_SIZE];
	int rc;

	/* Two dtypes, one of which is complex: their elements cannot be compared. */
	if (p->a->dtype != p->b->dtype && !has_values(p))
		return 0;
	rc = plan_side(&r->d->sides[0], p->a, p->add_a, &a, err);
	if (!rc)
		rc = plan_side(&r->d->sides[1], p->b, p->add_b, &b, err);
	if (!rc) {
		rc = mfs_compare(c, a, b, u->first, u->count, found, err);
		if (rc)
			mfs_fail_in(err, "tensor '%s'",
				    mfs_global_tensor_name(p->a, name, sizeof(name)));
	}
	mfs_plan_free(a);
	mfs_plan_free(b);
	return rc;
}

/* Keeps the first failure. Under the lock. */
static void note_failure(struct comparing *r, int rc, const struct mfs_error *err)
{
	if (rc && !r->rc) {
		r->rc = rc;
		r->err = *err;
	}
}

static void work_off(struct comparing *r, struct mfs_comparer *c)
{
	struct unit u;

	while (take(r, &u)) {
		struct mfs_comparison found = {0};
		struct mfs_error err = {0};
		int rc;

		pthread_mutex_unlock(&r->lock);
		rc = compare_unit(r, c, &u, &found, &err);
		pthread_mutex_lock(&r->lock);
		mfs_comparison_add(&u.pair->found, &found);
		r->found |= found.differing && r->first_only;
		r->done += u.count *
			   (mfs_dtype_size(u.pair->a->dtype) + mfs_dtype_size(u.pair->b->dtype));
		mfs_progress_update(&r->progress, "comparing", r->done);
		note_failure(r, rc, &err);
	}
}

static void *work(void *arg)
{
	struct comparing *r = arg;
	struct mfs_comparer *c = NULL;
	struct mfs_error err;
	int rc = mfs_comparer_new(&c, &err);

	pthread_mutex_lock(&r->lock);
	note_failure(r, rc, &err);
	if (!rc)
		work_off(r, c);
	pthread_mutex_unlock(&r->lock);
	mfs_comparer_free(c);
	return NULL;
}

/* ---- threads ---- */

static unsigned thread_count(const struct mfs_diff *d)
{
	const uint64_t units = d->bytes / UNIT + 1;

	return mfs_threads_count(0, (unsigned)mfs_min_u64(units, MAX_THREADS));
}

int mfs_diff_compare(struct mfs_diff *d, bool first_only, struct mfs_error *err)
{
	struct comparing r = {.d = d, .first_only = first_only};

	pthread_mutex_init(&r.lock, NULL);
	mfs_progress_init(&r.progress, stderr, 0, d->bytes);
	mfs_threads_run(thread_count(d), work, &r);
	mfs_progress_clear(&r.progress);
	pthread_mutex_destroy(&r.lock);
	if (r.rc && err)
		*err = r.err;
	return r.rc;
}

void mfs_diff_count(struct mfs_diff *d)
{
	for (uint32_t i = 0; i < d->pair_count; i++) {
		const struct mfs_diff_pair *p = &d->pairs[i];

		d->only_a += !p->b;
		d->only_b += !p->a;
		d->different += mfs_diff_pair_differs(p);
		d->equal += p->a && p->b && !mfs_diff_pair_differs(p);
	}
}
