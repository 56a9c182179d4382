/* What launchers put into the environment: trainer/parallel/launch.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "trainer/parallel/launch.h"

static struct mfs_error err;

static void forget(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
					    "OMPI_COMM_WORLD_SIZE",
					    "OMPI_COMM_WORLD_LOCAL_RANK",
					    "OMPI_COMM_WORLD_LOCAL_SIZE",
					    "RANK",
					    "WORLD_SIZE",
					    "LOCAL_RANK",
					    "LOCAL_WORLD_SIZE",
					    "SLURM_PROCID",
					    "SLURM_NTASKS",
					    "SLURM_LOCALID",
					    "SLURM_STEP_ID"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
}

static void set(const char *name, const char *value)
{
	ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void expect(uint32_t rank, uint32_t size, uint32_t local_rank, uint32_t local_size,
		   const char *by)
{
	struct mft_launch l;

	unit_ok(mft_launch_find(&l, &err), &err);
	ck_assert_uint_eq(l.rank, rank);
	ck_assert_uint_eq(l.size, size);
	ck_assert_uint_eq(l.local_rank, local_rank);
	ck_assert_uint_eq(l.local_size, local_size);
	ck_assert_pstr_eq(l.by, by);
}

START_TEST(each_launcher_says_who_a_process_is)
{
	forget();
	expect(0, 1, 0, 1, NULL);

	/* a batch script of a job of eight tasks is one process; a step of it is eight */
	set("SLURM_PROCID", "5");
	set("SLURM_NTASKS", "8");
	set("SLURM_LOCALID", "1");
	expect(0, 1, 0, 1, NULL);
	set("SLURM_STEP_ID", "0");
	expect(5, 8, 1, 8, "srun");

	/* torchrun that srun started: the innermost counts */
	set("RANK", "11");
	set("WORLD_SIZE", "16");
	expect(11, 16, 11, 16, "torchrun");
	set("LOCAL_RANK", "3");
	set("LOCAL_WORLD_SIZE", "4");
	expect(11, 16, 3, 4, "torchrun");

	set("OMPI_COMM_WORLD_RANK", "1");
	set("OMPI_COMM_WORLD_SIZE", "2");
	set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
	set("OMPI_COMM_WORLD_LOCAL_SIZE", "1");
	expect(1, 2, 0, 1, "mpirun");
}
END_TEST

START_TEST(variables_that_are_no_numbers_are_refused)
{
	static const char *const wrong[] = {"", "-1", "2x", "99999999999", "0x1", " 1"};
	struct mft_launch l;

	forget();
	set("WORLD_SIZE", "2");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(wrong); i++) {
		set("RANK", wrong[i]);
		ck_assert_int_eq(mft_launch_find(&l, &err), -EINVAL);
		ck_assert_msg(strstr(err.msg, "RANK: expected a number"), "%s", err.msg);
	}
	set("RANK", "2");
	ck_assert_int_eq(mft_launch_find(&l, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "RANK: expected less than WORLD_SIZE, which is 2, found 2"),
		      "%s", err.msg);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("launch");
	TCase *c = unit_case(s, "launchers", each_launcher_says_who_a_process_is);

	tcase_add_test(c, variables_that_are_no_numbers_are_refused);
	return s;
}
