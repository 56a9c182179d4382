/* The CPU backend's operations against their definitions (tests/kernels). */
#include "tests/unit/unit.h"

#include "kernels/ref/cpu.h"
#include "tests/kernels/check_kernels.h"

START_TEST(operations_are_those_of_plain_loops)
{
	ck_assert_int_eq(check_kernels(&mfk_cpu, NULL), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("kernels_ref");

	unit_case(s, "operations", operations_are_those_of_plain_loops);
	return s;
}
