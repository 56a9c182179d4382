#include <signal.h>
#include <stddef.h>

#include "trainer/loop/trainer_i.h"

static volatile sig_atomic_t came;

static void note(int signal)
{
	came = signal;
}

void mft_stop_on(int signal)
{
	/* A second signal ends the process at once. */
	struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND | SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaction(signal, &action, NULL);
}

int mft_stop_signal(void)
{
	return came;
}
