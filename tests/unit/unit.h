/*
 * What every test program shares: test_NAME.c, in the folder of tests/unit that is
 * named like the folder that it proves, defines mfs_suite() and is linked with
 * unit.c to a program of its own, so that a crash costs one module's tests alone. Programs run from
 * the repository's root. With CK_FORK=no a debugger can follow.
 */
#ifndef MFS_TESTS_UNIT_H
#define MFS_TESTS_UNIT_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

/* Check writes down, with a write(2), every assertion that it passes, to say after which one a
 * crash came; reading that back costs it the square of their number. Half of the time of some tests
 * went there: each place says it once. */
#define _mark_point(file, line)                                                                    \
	({                                                                                         \
		static _Atomic char unit_passed_;                                                  \
		if (!unit_passed_) {                                                               \
			unit_passed_ = 1;                                                          \
			(_mark_point)(file, line);                                                 \
		}                                                                                  \
	})

/* ThreadSanitizer sees no more in what one thread computes, and is ten times slower: a test of many
 * cases has a few under it. */
#ifdef __SANITIZE_THREAD__
#define UNIT_TSAN 1
#else
#define UNIT_TSAN 0
#endif

Suite *mfs_suite(void);

/* A test case with one fixture-less test function; add more with tcase_add_test(). unit.c limits
 * what a test takes of the processors; Check's own limits are of the clock. */
static inline TCase *unit_case(Suite *s, const char *name, const TTest *test)
{
	TCase *c = tcase_create(name);

	tcase_add_test(c, test);
	suite_add_tcase(s, c);
	return c;
}

/* The call must return 0; prints the error's sentence otherwise. */
#define unit_ok(call, err)                                                                         \
	do {                                                                                       \
		int unit_r_ = (call);                                                              \
		ck_assert_msg(unit_r_ == 0, "%s: %d: %s", #call, unit_r_, (err)->msg);             \
	} while (0)

/* The call must return want, with a sentence in err that contains part (NULL: any sentence). */
#define unit_fails(call, err, want, part)                                                          \
	do {                                                                                       \
		int unit_r_ = (call);                                                              \
		ck_assert_msg(unit_r_ == (want), "%s: %d instead of %d (%s)", #call, unit_r_,      \
			      (want), unit_r_ ? (err)->msg : "success");                           \
		unit_sentence((err)->msg, part);                                                   \
	} while (0)

/* Says that a test, or a part of one, cannot run here, as "PROGRAM: why"; the test returns then. */
void unit_skip(const char *why);

void unit_sentence(const char *msg, const char *part);

/* Path below tests/fixtures, in a static buffer that the next four calls leave alone. */
const char *unit_fixture(const char *name);
/* A whole file, to be freed; fails the test if it cannot be read. */
uint8_t *unit_slurp(const char *path, size_t *ret_len);
/* A new empty directory, removed when the test's process ends; static buffer. */
const char *unit_tmpdir(void);
/* Writes dir/name. */
void unit_write(const char *dir, const char *name, const void *bytes, size_t len);

#endif
