#define _GNU_SOURCE
#include "fs/stop.h"

#include <stddef.h>

volatile sig_atomic_t mfs_stop_requested;

static void request_stop(int sig)
{
	mfs_stop_requested = sig;
}

void mfs_stop_on_signals(void)
{
	const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction action = {.sa_handler = request_stop, .sa_flags = (int)SA_RESETHAND};
	struct sigaction old;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
}
