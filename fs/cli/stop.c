#define _GNU_SOURCE
#include "fs/cli/stop.h"

#include <stddef.h>
#include <unistd.h>

#include "formats/base/array.h"

volatile sig_atomic_t mfs_stop_requested;

/* It begins by clearing a progress bar. */
static const char *line;
static size_t line_len;

static void request_stop(int sig)
{
	mfs_stop_requested = sig;
}

static void stop_at_once(int sig)
{
	ssize_t n = write(STDERR_FILENO, line, line_len);

	(void)n;
	_exit(128 + sig);
}

static void handle(void (*handler)(int sig))
{
	const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction action = {.sa_handler = handler, .sa_flags = (int)SA_RESETHAND};
	struct sigaction old;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(signals); i++)
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
}

void mfs_stop_at_once(void)
{
	static const char words[] = "\r\033[Kmcorefs: interrupted\n";
	const size_t wipe = isatty(STDERR_FILENO) ? 0 : 4;

	line = words + wipe;
	line_len = sizeof(words) - 1 - wipe;
	handle(stop_at_once);
}

void mfs_stop_on_signals(void)
{
	handle(request_stop);
}

int mfs_stop_code(int code)
{
	return mfs_stop_requested ? 128 + mfs_stop_requested : code;
}
