/* What of the host's memory a process may take (trainer/base/host_memory.h), from made-up files. */
#include "trainer/base/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

#define MIB (UINT64_C(1) << 20)

/* A file below the root, with its directories. */
static void put(const char *name, const char *text)
{
	char command[1024];

	snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s/%s')\"", unit_tmpdir(), name);
	ck_assert_int_eq(system(command), 0);
	unit_write(unit_tmpdir(), name, text, strlen(text));
}

static void put_meminfo(void)
{
	put("proc/meminfo", "MemTotal:       8388608 kB\nMemFree:          12345 kB\n"
			    "MemAvailable:    1048576 kB\n");
}

START_TEST(free_memory_is_what_the_machine_says)
{
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 0);
	put_meminfo();
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 1024 * MIB);
	ck_assert_uint_gt(mft_host_memory_free(""), MIB);
}
END_TEST

START_TEST(version_2)
{
	put_meminfo();
	put("proc/self/cgroup", "0::/jobs/train\n");
	put("sys/fs/cgroup/jobs/train/memory.max", "max\n");
	put("sys/fs/cgroup/jobs/train/memory.current", "104857600\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 1024 * MIB);
	/* 200 MiB, of which 100 are taken; 30 of these are page cache. */
	put("sys/fs/cgroup/jobs/train/memory.max", "209715200\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 100 * MIB);
	put("sys/fs/cgroup/jobs/train/memory.stat",
	    "anon 1\ninactive_file_x 7\ninactive_file 31457280\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 130 * MIB);
	/* What lies above counts, too. */
	put("sys/fs/cgroup/jobs/memory.max", "157286400\n");
	put("sys/fs/cgroup/jobs/memory.current", "104857600\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 50 * MIB);
	put("sys/fs/cgroup/jobs/memory.current", "999999999\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 0);
}
END_TEST

/* In a container the path is that of the host, and the mount shows the container's own cgroup. */
START_TEST(version_1)
{
	put_meminfo();
	put("proc/self/cgroup", "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n0::/\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "52428800\n");
	put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 60 * MIB);
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	ck_assert_uint_eq(mft_host_memory_free(unit_tmpdir()), 1024 * MIB);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("host_memory");
	TCase *c = unit_case(s, "free", free_memory_is_what_the_machine_says);

	tcase_add_test(c, version_2);
	tcase_add_test(c, version_1);
	return s;
}
