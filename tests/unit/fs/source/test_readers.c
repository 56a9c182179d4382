/* Who may read what the tree shows, looked at again: fs/source/readers.h. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "formats/io/fileset.h"
#include "fs/source/readers.h"

#define FILES  3000 /* a look takes some ten milliseconds */
#define ASKERS 8
#define OTHERS 0044

static struct mfs_fileset *set;
static struct mfs_readers *readers;
static pthread_barrier_t start;

/* Sources that were open when they were added, and are closed since. */
static void set_up(void)
{
	char path[400];
	uint32_t file;

	ck_assert_int_eq(chmod(unit_tmpdir(), 0755), 0);
	unit_write(unit_tmpdir(), "weights", "bytes", 5);
	snprintf(path, sizeof(path), "%s/weights", unit_tmpdir());
	ck_assert_int_eq(chmod(path, 0644), 0);
	ck_assert_int_eq(mfs_fileset_new(unit_tmpdir(), &set, NULL), 0);
	for (unsigned i = 0; i < FILES; i++)
		ck_assert_int_eq(mfs_fileset_add(set, "weights", &file, NULL), 0);
	ck_assert_int_eq(chmod(path, 0600), 0);
	readers = mfs_readers_of_sets(&set, 1, NULL);
	ck_assert_ptr_nonnull(readers);
}

static void tear_down(void)
{
	mfs_readers_free(readers);
	mfs_fileset_free(set);
}

START_TEST(the_first_look_is_at_once)
{
	mfs_readers_look(readers);
	ck_assert_uint_eq(mfs_readers_told(readers).mode & OTHERS, 0);
}
END_TEST

static void *ask(void *arg)
{
	mode_t *mode = arg;

	pthread_barrier_wait(&start);
	mfs_readers_look(readers);
	*mode = mfs_readers_told(readers).mode;
	return NULL;
}

/* Nobody is told of what was known before, though another is looking already. */
START_TEST(all_wait_for_the_first_look)
{
	pthread_t threads[ASKERS];
	mode_t modes[ASKERS];

	pthread_barrier_init(&start, NULL, ASKERS);
	for (unsigned i = 0; i < ASKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &modes[i]), 0);
	for (unsigned i = 0; i < ASKERS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
	for (unsigned i = 0; i < ASKERS; i++)
		ck_assert_uint_eq(modes[i] & OTHERS, 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("readers");
	TCase *c = unit_case(s, "readers", the_first_look_is_at_once);

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, all_wait_for_the_first_look);
	return s;
}
