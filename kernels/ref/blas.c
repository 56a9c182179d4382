/*
 * OpenBLAS knows processors by the numbers of their models. One that is newer than the library it
 * takes for a Prescott of 2004: 0.3.21 of Debian 12 does so on a Xeon of 2023, and multiplies at 20
 * GFLOP/s a core instead of 110. Here it is told which of its kernels that processor can run.
 *
 * The library reads OPENBLAS_CORETYPE when it chooses. What a person has set there holds.
 */
#include <cblas.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref_i.h"

#ifdef __x86_64__

/* Of a library that has kernels for several processors (DYNAMIC_ARCH); NULL elsewhere. */
__attribute__((weak)) void gotoblas_dynamic_init(void);
__attribute__((weak)) void gotoblas_dynamic_quit(void);

static const char *better_core(void)
{
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
		return "SkylakeX";
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return "Haswell";
	return NULL;
}

static void choose(void)
{
	const char *core = better_core();

	if (!core || !gotoblas_dynamic_init || !gotoblas_dynamic_quit ||
	    getenv("OPENBLAS_CORETYPE") || strcmp(openblas_get_corename(), "Prescott"))
		return;
	if (setenv("OPENBLAS_CORETYPE", core, 1))
		return;
	gotoblas_dynamic_quit();
	gotoblas_dynamic_init();
	unsetenv("OPENBLAS_CORETYPE");
}

void mfk_blas_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choose);
}

#else

void mfk_blas_begin(void)
{
}

#endif
