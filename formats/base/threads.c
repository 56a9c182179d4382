#define _GNU_SOURCE
#include "formats/base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

unsigned mfs_threads_count(unsigned asked, unsigned most)
{
	const long processors = asked ? (long)asked : sysconf(_SC_NPROCESSORS_ONLN);

	if (processors < 1 || !most)
		return 1;
	return (unsigned long)processors < most ? (unsigned)processors : most;
}

void mfs_threads_run(unsigned threads, void *(*work)(void *), void *arg)
{
	pthread_t others[MFS_THREADS_MAX - 1];
	unsigned n = 0;

	while (n + 1 < threads && n < MFS_THREADS_MAX - 1 &&
	       !pthread_create(&others[n], NULL, work, arg))
		n++;
	work(arg);
	while (n)
		pthread_join(others[--n], NULL);
}

struct start {
	void *(*run)(void *);
	void *arg;
	char name[16];
};

/* A thread may name itself by a system call; of others it takes a file of /proc. */
static void *named(void *arg)
{
	const struct start s = *(struct start *)arg;

	free(arg);
	pthread_setname_np(pthread_self(), s.name);
	return s.run(s.arg);
}

/* All signals but those of the thread's own faults: the kernel ends the process if one of these is
 * blocked when it comes, and no handler runs. */
static void fill_blocked(sigset_t *set)
{
	sigfillset(set);
	sigdelset(set, SIGBUS);
	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGFPE);
	sigdelset(set, SIGILL);
}

int mfs_thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg)
{
	struct start *s = malloc(sizeof(*s));
	sigset_t blocked, before;
	int rc;

	if (!s)
		return -ENOMEM;
	*s = (struct start){.run = run, .arg = arg};
	snprintf(s->name, sizeof(s->name), "%s", name);
	fill_blocked(&blocked);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	rc = pthread_create(ret, NULL, named, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		free(s);
	return -rc;
}
