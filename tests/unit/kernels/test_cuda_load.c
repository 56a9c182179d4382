/* The CUDA plugin: what cannot be used is refused with a sentence, whatever this machine has. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/kernels.h"

static int load(const char *path, char *why)
{
	const struct mfk_backend *backend = NULL;
	int rc = mfk_cuda_load(path, &backend, why);

	ck_assert_ptr_null(backend);
	return rc;
}

START_TEST(no_file)
{
	char why[MFK_WHY] = "";

	ck_assert_int_eq(load("no/such/plugin.so", why), -ENOENT);
	ck_assert_str_eq(why, "no/such/plugin.so: No such file or directory");
}
END_TEST

/* There is no driver, or no GPU, or this is no plugin. */
START_TEST(no_plugin)
{
	char why[MFK_WHY] = "";

	ck_assert_int_eq(load("tests/unit/kernels/test_cuda_load.c", why), -ENODEV);
	unit_sentence(why, NULL);
}
END_TEST

/* The plugin that make check builds where there is no GPU (Makefile: CUDA_TESTED): it loads, and
 * says that it has nothing to run on. */
START_TEST(no_gpu)
{
	const char *build = getenv("O");
	char path[512], why[MFK_WHY] = "";

	snprintf(path, sizeof(path), "%s/cuda-check/libmcorefs-cuda.so", build ? build : "build");
	if (access(path, R_OK) || !access("/dev/nvidiactl", F_OK))
		return;
	ck_assert_int_eq(load(path, why), -ENODEV);
	unit_sentence(why, NULL);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("cuda_load");
	TCase *c = unit_case(s, "cuda_load", no_file);

	tcase_add_test(c, no_plugin);
	tcase_add_test(c, no_gpu);
	return s;
}
