/* Mapped bytes that disappear: formats/io/guard.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/threads.h"
#include "formats/io/guard.h"

#define LEN 65536

static int fd;

/* A mapping of LEN bytes, of which the file keeps only the first page. */
static const uint8_t *cut_mapping(void)
{
	char path[300];
	uint8_t bytes[LEN];
	void *map;

	memset(bytes, 'x', sizeof bytes);
	snprintf(path, sizeof path, "%s/mapped", unit_tmpdir());
	unit_write(unit_tmpdir(), "mapped", bytes, sizeof bytes);
	fd = open(path, O_RDWR);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(fd >= 0 && map != MAP_FAILED);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	return map;
}

START_TEST(copy_of_a_lost_page_is_eio)
{
	const uint8_t *map = cut_mapping();
	char buf[LEN];

	ck_assert_int_eq(mfs_guard_install(), 0);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(mfs_guard_copy(buf, map + 8192, 100), -EIO);
		ck_assert_int_eq(mfs_guard_copy(buf, map, LEN), -EIO);
		ck_assert_int_eq(mfs_guard_copy(buf, map, 4096), 0);
		ck_assert_int_eq(mfs_guard_copy(buf, map + 4096, 0), 0);
	}
}
END_TEST

struct nested {
	const uint8_t *map;
	int inner;
};

static void copy_twice(void *arg)
{
	struct nested *n = arg;
	char buf[16];

	n->inner = mfs_guard_copy(buf, n->map + 8192, 16);
	((const volatile uint8_t *)n->map)[8192];
}

/* After an inner guard has caught a fault, the outer one still stands. */
START_TEST(guards_nest)
{
	struct nested n = {cut_mapping(), 0};

	ck_assert_int_eq(mfs_guard_install(), 0);
	ck_assert_int_eq(mfs_guard_run(copy_twice, &n), -EIO);
	ck_assert_int_eq(n.inner, -EIO);
}
END_TEST

static void *fault_often(void *map)
{
	char buf[16];
	long wrong = 0;

	for (int i = 0; i < 2000; i++) {
		wrong += mfs_guard_copy(buf, (uint8_t *)map + 8192, 16) != -EIO;
		wrong += mfs_guard_copy(buf, map, 16) != 0;
	}
	return (void *)wrong;
}

START_TEST(threads_fault_by_themselves)
{
	const uint8_t *map = cut_mapping();
	pthread_t threads[8];

	ck_assert_int_eq(mfs_guard_install(), 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fault_often, (void *)map), 0);
	for (int i = 0; i < 8; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

/* In threads of the library signals are blocked, but not this one. */
START_TEST(a_started_thread_faults_by_itself)
{
	const uint8_t *map = cut_mapping();
	pthread_t thread;
	void *wrong;

	ck_assert_int_eq(mfs_guard_install(), 0);
	ck_assert_int_eq(mfs_thread_start(&thread, "fault", fault_often, (void *)map), 0);
	pthread_join(thread, &wrong);
	ck_assert_ptr_null(wrong);
}
END_TEST

/* Outside of a guard SIGBUS keeps its default action: no endless loop, no silent success. */
START_TEST(unguarded_fault_kills)
{
	const volatile uint8_t *map = cut_mapping();

	ck_assert_int_eq(mfs_guard_install(), 0);
	ck_assert_int_eq(map[8192], 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("guard");
	TCase *c = unit_case(s, "guard", copy_of_a_lost_page_is_eio);

	tcase_add_test(c, guards_nest);
	tcase_add_test(c, threads_fault_by_themselves);
	tcase_add_test(c, a_started_thread_faults_by_itself);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test_raise_signal(c, unguarded_fault_kills, SIGBUS);
#else
	(void)unguarded_fault_kills;
#endif
	return s;
}
