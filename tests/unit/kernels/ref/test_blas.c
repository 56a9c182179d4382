/* OpenBLAS's choice of kernels (kernels/ref/blas.c): none from before 2013 on a processor with
 * AVX2, and products are right after it was changed. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/cpu.h"
#include "tests/unit/unit.h"

#define SIDE 65

static void check_product(void)
{
	float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];

	for (int i = 0; i < SIDE * SIDE; i++) {
		a[i] = (float)(i % 7 - 3);
		b[i] = (float)(i % 11 - 5);
	}
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE,
		    0, c, SIDE);
	for (int i = 0; i < SIDE * SIDE; i++) {
		float want = 0; /* small integers: exact in any order */

		for (int k = 0; k < SIDE; k++)
			want += a[i / SIDE * SIDE + k] * b[i % SIDE * SIDE + k];
		ck_assert_msg(c[i] == want, "element %d: %g, not %g", i, c[i], want);
	}
}

START_TEST(kernels_fit_the_processor)
{
	struct mfk_device *device;
	char why[MFK_WHY] = "";

	unsetenv("OPENBLAS_CORETYPE");
	ck_assert_msg(!mfk_cpu.device->open(0, 1, &device, why), "%s", why);
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		ck_assert_str_ne(openblas_get_corename(), "Prescott");
#endif
	ck_assert_ptr_null(getenv("OPENBLAS_CORETYPE"));
	check_product();
	mfk_cpu.device->close(device);
}
END_TEST

/* What a person has set holds. */
START_TEST(the_environment_holds)
{
	struct mfk_device *device;
	char before[64], why[MFK_WHY] = "";

	snprintf(before, sizeof(before), "%s", openblas_get_corename());
	setenv("OPENBLAS_CORETYPE", "Prescott", 1);
	ck_assert_msg(!mfk_cpu.device->open(0, 1, &device, why), "%s", why);
	ck_assert_str_eq(openblas_get_corename(), before);
	ck_assert_str_eq(getenv("OPENBLAS_CORETYPE"), "Prescott");
	mfk_cpu.device->close(device);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("blas");

	unit_case(s, "kernels", kernels_fit_the_processor);
	unit_case(s, "environment", the_environment_holds);
	return s;
}
