#include "trainer/base/nvtx_ranges.h"

#include <stdarg.h>
#include <stdio.h>

#define NAME 128

/* NVTX is headers alone: the first call loads the tool that the environment names. */
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

void mft_ranges_open(bool wanted)
{
	if (wanted)
		mfs_trace_turn(MFS_TRACE_NUMBER_NVTX, true);
	if (MFS_TRACES(NVTX))
		nvtxInitialize(NULL);
}

static void push(const char *name)
{
	nvtxRangePushA(name);
}

void mft_range_pop(void)
{
	nvtxRangePop();
}

#else

void mft_ranges_open(bool wanted)
{
	if (wanted || MFS_TRACES(NVTX))
		mfs_trace_line("NVTX", "no ranges: this program was built without CUDA's headers "
				       "(nvtx3/nvToolsExt.h)");
	mfs_trace_turn(MFS_TRACE_NUMBER_NVTX, false);
}

static void push(const char *name)
{
	(void)name;
}

void mft_range_pop(void)
{
}

#endif

void mft_range_push(const char *fmt, ...)
{
	char name[NAME];
	va_list args;

	va_start(args, fmt);
	vsnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	push(name);
}
