#define _GNU_SOURCE
#include "fs/daemon/signals.h"

#include <signal.h>
#include <stddef.h>

#include "formats/base/array.h"

static void nothing(int sig)
{
	(void)sig;
}

/* An ignored signal may be dropped before sigtimedwait(), so it gets a handler. */
static void take(int sig)
{
	const struct sigaction keep = {.sa_handler = nothing};
	sigset_t set;

	sigaction(sig, &keep, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void mfs_signals_take_hangup(void)
{
	take(SIGHUP);
}

void mfs_signals_ignore_stray(void)
{
	static const int stray[] = {SIGUSR2, SIGALRM,	SIGVTALRM, SIGPROF,
				    SIGPOLL, SIGSTKFLT, SIGPWR,	   SIGPIPE};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(stray); i++)
		sigaction(stray[i], &ignore, NULL);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		sigaction(sig, &ignore, NULL);
	take(SIGUSR1);
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

void mfs_signals_wait(const struct mfs_signals_hooks *hooks, void *arg, atomic_bool *stop)
{
	time_t due = now() + hooks->seconds;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGHUP);
	for (;;) {
		const time_t left = due - now();
		const struct timespec timeout = {.tv_sec = left > 0 ? left : 0};
		int sig = sigtimedwait(&set, NULL, &timeout);

		if (atomic_load(stop))
			return;
		if (sig == SIGUSR1)
			hooks->status(arg);
		if (sig == SIGHUP)
			hooks->reread(arg);
		if (now() < due)
			continue;
		hooks->every(arg);
		due = now() + hooks->seconds;
	}
}
