/*
 * A progress bar on a terminal. On anything else nothing is drawn.
 *
 *   model-00002-of-00004.safetensors  [#####·····]  54%  8.7 GB of 16.1 GB  1.9 GB/s  0:04
 */
#ifndef MFS_FS_CLI_PROGRESS_H
#define MFS_FS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mfs_progress {
	FILE *to;
	bool shown; /* a terminal is there */
	uint64_t total, start;
	double began, drawn; /* monotonic seconds */
};

/* start: bytes that are done already; the rate leaves them out. total 0: not known, so no bar is
 * drawn. */
void mfs_progress_init(struct mfs_progress *p, FILE *to, uint64_t start, uint64_t total);
/* Draws at most ten times a second. */
void mfs_progress_update(struct mfs_progress *p, const char *label, uint64_t done);
/* Clears the line for the next text. */
void mfs_progress_clear(struct mfs_progress *p);
/* Seconds since init. */
double mfs_progress_seconds(const struct mfs_progress *p);

#endif
