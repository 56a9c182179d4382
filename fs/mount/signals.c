#define _GNU_SOURCE
#include "fs/mount/signals.h"

#include <signal.h>
#include <stddef.h>

static void nothing(int sig)
{
	(void)sig;
}

void mfs_signals_ignore_stray(void)
{
	static const int stray[] = {SIGUSR2, SIGALRM,	SIGVTALRM, SIGPROF,
				    SIGPOLL, SIGSTKFLT, SIGPWR,	   SIGPIPE};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	/* An ignored signal may be dropped before sigtimedwait(), so it gets a handler. */
	const struct sigaction keep = {.sa_handler = nothing};
	sigset_t set;

	for (size_t i = 0; i < sizeof(stray) / sizeof(*stray); i++)
		sigaction(stray[i], &ignore, NULL);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		sigaction(sig, &ignore, NULL);
	sigaction(SIGUSR1, &keep, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

void mfs_signals_wait(void (*status)(void *arg), void (*every)(void *arg), time_t seconds,
		      void *arg, atomic_bool *stop)
{
	time_t due = now() + seconds;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	for (;;) {
		const time_t left = due - now();
		const struct timespec timeout = {.tv_sec = left > 0 ? left : 0};
		int sig = sigtimedwait(&set, NULL, &timeout);

		if (atomic_load(stop))
			return;
		if (sig == SIGUSR1)
			status(arg);
		if (now() < due)
			continue;
		every(arg);
		due = now() + seconds;
	}
}
