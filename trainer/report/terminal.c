#include "trainer/report/terminal.h"

#include <unistd.h>

#include "formats/base/clock.h"

void mft_terminal_begin(struct mft_terminal *t, FILE *to, uint64_t iteration)
{
	*t = (struct mft_terminal){.to = isatty(fileno(to)) ? to : NULL, .first = iteration};
}

void mft_terminal_rate(char *text, size_t size, double seconds_each, uint64_t left, uint64_t tokens)
{
	const double rate = seconds_each > 0 ? (double)tokens / seconds_each : 0;
	const unsigned long long seconds = (unsigned long long)(seconds_each * (double)left + 0.5);

	snprintf(text, size, "%.1f k tokens/s, %llu:%02llu:%02llu left", rate / 1000,
		 seconds / 3600, seconds / 60 % 60, seconds % 60);
}

void mft_terminal_show(struct mft_terminal *t, uint64_t iteration, uint64_t iterations,
		       uint64_t tokens)
{
	const int64_t now = mfs_now_ns();
	char rate[80] = "";

	if (!t->to)
		return;
	/* The first iteration warms up, and says nothing of the others. */
	if (!t->began_ns) {
		t->began_ns = now;
		t->first = iteration;
	}
	if (iteration > t->first)
		mft_terminal_rate(rate, sizeof(rate),
				  (double)(now - t->began_ns) / 1e9 /
					  (double)(iteration - t->first),
				  iterations > iteration ? iterations - iteration : 0, tokens);
	fprintf(t->to, "\r\033[Kiteration %llu of %llu%s%s", (unsigned long long)iteration,
		(unsigned long long)iterations, *rate ? ", " : "", rate);
	fflush(t->to);
	t->shown = true;
}

void mft_terminal_clear(struct mft_terminal *t)
{
	if (!t->shown)
		return;
	fputs("\r\033[K", t->to);
	fflush(t->to);
	t->shown = false;
}
