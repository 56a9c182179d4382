/*
 * check_cuda PLUGIN [check [NAME] | bench [SECONDS [NAME]]]: the CUDA backend's operations against
 * their definitions, and their speed; NAME: of those whose names contain it. Exit status 77: there
 * is no GPU.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/kernels/bench_kernels.h"
#include "tests/kernels/check_i.h"
#include "tests/kernels/check_kernels.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A line for each entry of the table of checks. */
static int check(const struct mfk_backend *b, const char *only)
{
	int failed = 0;

	for (const struct check_entry *e = check_entries; e->name; e++) {
		double begin = now();
		int failures;

		if (only && strncmp(e->name, only, strlen(only)) != 0)
			continue;
		fflush(stdout);
		failures = check_kernels(b, e->name);
		printf("check %-16s %s (%.1f s)\n", e->name, failures ? "FAILED" : "ok",
		       now() - begin);
		fflush(stdout);
		failed += failures != 0;
	}
	return failed;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "check", *more = argc > 3 ? argv[3] : NULL;
	const struct mfk_backend *b;
	char why[MFK_WHY];
	int rc, failed;

	if (argc < 2 || (strcmp(what, "check") && strcmp(what, "bench"))) {
		fprintf(stderr,
			"usage: check_cuda PLUGIN [check [NAME] | bench [SECONDS [NAME]]]\n");
		return 2;
	}
	rc = mfk_cuda_load(argv[1], &b, why);
	if (rc) {
		printf("%s: %s\n", rc == -ENODEV ? "skipped: no GPU" : "check_cuda", why);
		return rc == -ENODEV ? 77 : 1;
	}
	failed = strcmp(what, "bench")
			 ? check(b, more)
			 : bench_kernels(b, more ? atof(more) : 60, argc > 4 ? argv[4] : "");
	if (failed)
		printf("%d FAILED\n", failed);
	return failed != 0;
}
