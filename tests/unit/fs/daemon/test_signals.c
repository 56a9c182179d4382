/* What a mount does in addition to serving: fs/daemon/signals.h. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "fs/daemon/signals.h"

static atomic_uint asked, looked, reread;
static atomic_bool stop;

static void status(void *arg)
{
	(void)arg;
	atomic_fetch_add(&asked, 1);
}

static void read_again(void *arg)
{
	(void)arg;
	atomic_fetch_add(&reread, 1);
}

static void every(void *arg)
{
	(void)arg;
	atomic_fetch_add(&looked, 1);
}

static void *wait_for_signals(void *arg)
{
	static const struct mfs_signals_hooks calls = {status, read_again, every, 1};

	mfs_signals_wait(&calls, arg, &stop);
	return NULL;
}

/* Who asks again and again does not keep it from what it does every second. */
START_TEST(asked_all_the_time)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	pthread_t thread;

	mfs_signals_ignore_stray();
	mfs_signals_take_hangup();
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_signals, NULL), 0);
	for (unsigned i = 0; i < 1000 && atomic_load(&looked) < 2; i++) {
		pthread_kill(thread, SIGUSR1);
		pthread_kill(thread, SIGHUP);
		nanosleep(&pause, NULL);
	}
	atomic_store(&stop, true);
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	ck_assert_uint_ge(looked, 2);
	ck_assert_uint_ge(asked, 1);
	ck_assert_uint_ge(reread, 1);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("signals");

	unit_case(s, "signals", asked_all_the_time);
	return s;
}
