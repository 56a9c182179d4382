/*
 * A fuzz target: tests/fuzz/fuzz_NAME.c defines fuzz_one(). It is linked with libFuzzer, and with
 * replay.c, which runs it over tests/fuzz/corpus/NAME (inputs called ok-* must be accepted) and
 * over tests/fuzz/reject/NAME (each breaks one rule and must be refused).
 */
#ifndef MFS_TESTS_FUZZ_H
#define MFS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/error.h"

/* 0: accepted, and what was read is consistent; else the reader's -errno. */
int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err);

/* An invariant of what a reader has accepted. */
#define fuzz_require(condition)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Runs the target and checks the contract of errors. */
static inline int fuzz_run(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	int rc = fuzz_one(bytes, len, err);

	fuzz_require(rc <= 0);
	fuzz_require(rc == 0 || err->msg[0]);
	fuzz_require(rc == 0 || err->code == rc);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define FUZZ_TARGET                                                                                \
	int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)                               \
	{                                                                                          \
		struct mfs_error err = {0};                                                        \
                                                                                                   \
		fuzz_run(bytes, len, &err);                                                        \
		return 0;                                                                          \
	}

#endif
