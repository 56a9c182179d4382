/* A line on a terminal that is written over while a run goes on. Elsewhere nothing is written. */
#ifndef MFT_TRAINER_REPORT_TERMINAL_H
#define MFT_TRAINER_REPORT_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mft_terminal {
	FILE *to; /* NULL: there is no terminal */
	bool shown;
	uint64_t first;	  /* iteration at which this process began */
	int64_t began_ns; /* when the first iteration had been made */
};

/* to: used if it is a terminal. */
void mft_terminal_begin(struct mft_terminal *t, FILE *to, uint64_t iteration);
/* tokens: of an iteration. */
void mft_terminal_show(struct mft_terminal *t, uint64_t iteration, uint64_t iterations,
		       uint64_t tokens);
/* Before anything else is written. */
void mft_terminal_clear(struct mft_terminal *t);

/* "12.3 k tokens/s, 1:02:03 left"; text has room for size bytes. */
void mft_terminal_rate(char *text, size_t size, double seconds_each, uint64_t left,
		       uint64_t tokens);

#endif
