/* What is open while somebody needs it: fs/view/keeper.h. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "fs/view/keeper.h"

#define KEEP 2

/* An owner that counts; its things hold a thing of another owner's, if there is one. */
struct owner {
	struct mfs_open_set set;
	struct owner *below;
	atomic_uint opened, closed;
	atomic_int failure;
	sem_t *begun, *go; /* of the thing that is named "slow" */
};

struct thing {
	struct owner *owner;
	struct mfs_held *below;
	char name[16];
};

static struct mfs_keeper *keeper;
static struct owner a, b;

static int thing_open(void *arg, const char *name, void **ret, struct mfs_error *err)
{
	struct owner *o = arg;
	struct thing *t;
	int rc;

	atomic_fetch_add(&o->opened, 1);
	if (o->begun && !strcmp(name, "slow")) {
		sem_post(o->begun);
		sem_wait(o->go);
	}
	rc = atomic_load(&o->failure);
	if (rc)
		return mfs_fail(err, rc, "try %u", atomic_load(&o->opened));
	t = calloc(1, sizeof(*t));
	ck_assert_ptr_nonnull(t);
	t->owner = o;
	snprintf(t->name, sizeof(t->name), "%s", name);
	if (o->below)
		unit_ok(mfs_keeper_hold(&o->below->set, name, &t->below, err), err);
	*ret = t;
	return 0;
}

static void thing_close(void *object)
{
	struct thing *t = object;

	atomic_fetch_add(&t->owner->closed, 1);
	mfs_keeper_drop(t->below);
	free(t);
}

static const struct mfs_open_ops kind = {thing_open, thing_close};

static void set_up(void)
{
	keeper = mfs_keeper_new(KEEP);
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	mfs_open_set_init(&a.set, keeper, &kind, &a);
	mfs_open_set_init(&b.set, keeper, &kind, &b);
}

static void tear_down(void)
{
	mfs_open_set_release(&a.set);
	mfs_open_set_release(&b.set);
	ck_assert_uint_eq(atomic_load(&a.opened), atomic_load(&a.closed));
	ck_assert_uint_eq(atomic_load(&b.opened), atomic_load(&b.closed));
	mfs_keeper_free(keeper);
}

static struct mfs_held *hold(struct owner *o, const char *name)
{
	struct mfs_held *h = NULL;
	struct mfs_error err;

	unit_ok(mfs_keeper_hold(&o->set, name, &h, &err), &err);
	ck_assert_str_eq(((struct thing *)mfs_held_object(h))->name, name);
	return h;
}

static void use(struct owner *o, const char *name)
{
	mfs_keeper_drop(hold(o, name));
}

START_TEST(what_was_used_last_stays)
{
	use(&a, "one");
	use(&a, "two");
	use(&a, "one");
	ck_assert_uint_eq(a.opened, 2);
	use(&b, "three"); /* one keeper: "two" is what was used longest ago */
	ck_assert_uint_eq(a.closed, 1);
	use(&a, "one");
	ck_assert_uint_eq(a.opened, 2);
	use(&a, "two");
	ck_assert_uint_eq(a.opened, 3);
	ck_assert_uint_eq(b.closed, 1);
}
END_TEST

START_TEST(what_is_held_stays)
{
	struct mfs_held *one = hold(&a, "one"), *again;
	char name[16];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "%d", i);
		use(&a, name);
	}
	ck_assert_uint_eq(a.closed, 20 - KEEP);
	again = hold(&a, "one");
	ck_assert_ptr_eq(mfs_held_object(again), mfs_held_object(one));
	mfs_keeper_drop(one);
	use(&a, "x");
	use(&a, "y");
	use(&a, "z");
	ck_assert_uint_eq(a.opened, 24);
	mfs_keeper_drop(again);
	use(&a, "one");
	ck_assert_uint_eq(a.opened, 24);
}
END_TEST

/* A view closed lets go of the checkpoint that it was made of. */
START_TEST(things_made_of_others)
{
	struct mfs_held *one;

	a.below = &b;
	one = hold(&a, "one");
	ck_assert_uint_eq(b.opened, 1);
	mfs_open_set_let_go(&b.set);
	ck_assert_uint_eq(b.closed, 0);
	mfs_keeper_drop(one);
	ck_assert_uint_eq(b.closed, 0);
	use(&a, "two");
	use(&a, "three");
	ck_assert_uint_eq(a.closed, 1);
	ck_assert_uint_eq(b.closed, 1);
}
END_TEST

START_TEST(let_go)
{
	struct mfs_held *one = hold(&a, "one");

	use(&a, "two");
	use(&b, "three");
	mfs_open_set_let_go(&a.set);
	ck_assert_uint_eq(a.closed, 1);
	mfs_open_set_let_go(&a.set);
	mfs_keeper_drop(one);
	ck_assert_uint_eq(a.closed, 2);
	use(&a, "one"); /* somebody has a name of it still */
	ck_assert_uint_eq(a.closed, 3);
	ck_assert_uint_eq(b.closed, 0);
}
END_TEST

/* Its holder keeps what it has, and the next one gets it opened anew. */
START_TEST(what_was_renewed_is_opened_anew)
{
	struct mfs_held *old = hold(&a, "one"), *new;

	mfs_keeper_renew(old);
	new = hold(&a, "one");
	ck_assert_ptr_ne(mfs_held_object(new), mfs_held_object(old));
	ck_assert_uint_eq(a.opened, 2);
	mfs_keeper_drop(old);
	ck_assert_uint_eq(a.closed, 1);
	mfs_keeper_drop(new);
	use(&a, "one");
	ck_assert_uint_eq(a.opened, 2);
	mfs_keeper_renew(hold(&a, "one")); /* held to the end */
}
END_TEST

START_TEST(what_is_offered_is_kept_once)
{
	struct mfs_error err;
	void *object;

	unit_ok(thing_open(&a, "one", &object, &err), &err);
	ck_assert(mfs_keeper_offer(&a.set, "one", object));
	use(&a, "one");
	ck_assert_uint_eq(a.opened, 1);
	unit_ok(thing_open(&a, "one", &object, &err), &err);
	ck_assert(!mfs_keeper_offer(&a.set, "one", object));
	thing_close(object);
}
END_TEST

/* Held by a command that never lets go. */
START_TEST(held_to_the_end)
{
	a.below = &b;
	hold(&a, "one");
	hold(&a, "one");
	hold(&b, "two");
}
END_TEST

static const int lasting[] = {-EINVAL, -ENOTSUP, -ENODATA, -E2BIG, -EOVERFLOW, -ERANGE, -EEXIST};
static const int passing[] = {-ENOMEM, -EMFILE, -ENFILE, -EINTR,  -EAGAIN,   -EIO,
			      -ESTALE, -ENOENT, -EACCES, -ENODEV, -ETIMEDOUT};

static void fail_twice(int code, const char *first, const char *second)
{
	struct mfs_held *h;
	struct mfs_error err;

	atomic_store(&a.failure, code);
	unit_fails(mfs_keeper_hold(&a.set, "one", &h, &err), &err, code, first);
	ck_assert_int_eq(err.code, code);
	unit_fails(mfs_keeper_hold(&a.set, "one", &h, &err), &err, code, second);
}

START_TEST(failures_that_last)
{
	ck_assert(mfs_keeper_lasts(lasting[_i]));
	fail_twice(lasting[_i], "try 1", "try 1");
	atomic_store(&a.failure, 0);
	fail_twice(lasting[_i], "try 1", "try 1");
	ck_assert_uint_eq(a.opened, 1);
	atomic_store(&a.closed, 1);
}
END_TEST

START_TEST(failures_that_pass)
{
	ck_assert(!mfs_keeper_lasts(passing[_i]));
	fail_twice(passing[_i], "try 1", "try 2");
	atomic_store(&a.failure, 0);
	use(&a, "one");
	atomic_store(&a.closed, 2);
}
END_TEST

/* There is no end of names that can be tried: neither places nor failures are kept for all of
 * them. */
START_TEST(failures_are_bounded)
{
	struct mfs_held *h;
	struct mfs_error err;
	unsigned places = 0;
	char name[16];

	atomic_store(&a.failure, -EINVAL);
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ck_assert_int_eq(mfs_keeper_hold(&a.set, name, &h, &err), -EINVAL);
	}
	atomic_store(&a.opened, 0);
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "%d", 4999 - i);
		ck_assert_int_eq(mfs_keeper_hold(&a.set, name, &h, &err), -EINVAL);
		if (!i)
			ck_assert_uint_eq(a.opened, 0);
	}
	places = 5000 - a.opened;
	ck_assert_uint_lt(places, 256);
	atomic_store(&a.closed, a.opened);
}
END_TEST

static void *use_slow(void *arg)
{
	use(arg, "slow");
	return NULL;
}

START_TEST(nobody_waits_for_another_name)
{
	pthread_t thread;
	sem_t begun, go;

	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	a.begun = &begun;
	a.go = &go;
	ck_assert_int_eq(pthread_create(&thread, NULL, use_slow, &a), 0);
	sem_wait(&begun);
	use(&a, "one");
	use(&b, "two");
	mfs_open_set_let_go(&b.set);
	sem_post(&go);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(a.opened, 2);
}
END_TEST

enum { THREADS = 6, ROUNDS = 400 };

static void *use_many(void *arg)
{
	unsigned seed = *(unsigned *)arg;
	char name[16];

	for (int i = 0; i < ROUNDS; i++) {
		struct mfs_held *first, *second;

		snprintf(name, sizeof(name), "%d", rand_r(&seed) % 5);
		first = hold(&a, name);
		snprintf(name, sizeof(name), "%d", rand_r(&seed) % 5);
		second = hold(&b, name);
		mfs_keeper_drop(first);
		mfs_keeper_drop(second);
		if (i == ROUNDS / 2 && !(seed % 3))
			mfs_open_set_let_go(&a.set);
	}
	return NULL;
}

START_TEST(many_threads)
{
	pthread_t threads[THREADS];
	unsigned seeds[THREADS];

	a.below = &b;
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_many, &seeds[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

static void *hold_one(void *arg)
{
	*(struct mfs_held **)arg = hold(&a, "one");
	return NULL;
}

START_TEST(opened_once)
{
	struct mfs_held *held[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, hold_one, &held[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(a.opened, 1);
	for (int i = 0; i < THREADS; i++)
		mfs_keeper_drop(held[i]);
	ck_assert_uint_eq(a.closed, 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("keeper");
	TCase *c = unit_case(s, "keeping", what_was_used_last_stays);

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, what_is_held_stays);
	tcase_add_test(c, things_made_of_others);
	tcase_add_test(c, let_go);
	tcase_add_test(c, what_was_renewed_is_opened_anew);
	tcase_add_test(c, what_is_offered_is_kept_once);
	tcase_add_test(c, held_to_the_end);
	tcase_add_loop_test(c, failures_that_last, 0, MFS_ARRAY_SIZE(lasting));
	tcase_add_loop_test(c, failures_that_pass, 0, MFS_ARRAY_SIZE(passing));
	tcase_add_test(c, failures_are_bounded);
	c = unit_case(s, "threads", nobody_waits_for_another_name);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, many_threads);
	tcase_add_test(c, opened_once);
	return s;
}
