/* What parts ask for, and where it lies. */
#include "formats/base/str.h"
#include "formats/base/bytes.h"
#include "trainer/model/base/part.h"

#define MOST (UINT64_C(1) << 60)

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return a > MOST || b > MOST || a + b > MOST ? MOST : a + b;
}

uint64_t mft_memory_after(uint64_t *used, uint64_t bytes)
{
	const uint64_t offset = *used;

	if (bytes > MOST)
		bytes = MOST;
	*used = sum_of(offset, mfs_round_up(bytes, MFT_MEMORY_ALIGN));
	return offset;
}

uint64_t mft_part_plan_keep(struct mft_part_plan *p, uint64_t bytes)
{
	return mft_memory_after(&p->kept, bytes);
}

uint64_t mft_part_plan_scratch(struct mft_part_plan *p, uint64_t bytes)
{
	const uint64_t offset = mft_memory_after(&p->scratch, bytes);

	if (p->scratch > p->scratch_most)
		p->scratch_most = p->scratch;
	return offset;
}

void mft_part_plan_scratch_anew(struct mft_part_plan *p)
{
	p->scratch = 0;
}

uint64_t mft_matrix_bytes(enum mfk_dtype type, int64_t rows, int64_t cols)
{
	uint64_t bytes;

	if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)cols, &bytes) ||
	    __builtin_mul_overflow(bytes, mfk_dtype_size(type), &bytes))
		return MOST;
	return bytes < MOST ? bytes : MOST;
}

/* ---- where it lies ---- */

void *mft_net_scratch(const struct mft_net *net, uint64_t offset)
{
	return mft_net_at(net, net->scratch + offset);
}

void *mft_part_kept(const struct mft_net *net, const struct mft_part *part, uint64_t offset)
{
	return (char *)mft_pass_at(net, part->kept) + offset;
}

double *mft_net_sum(const struct mft_net *net, unsigned which)
{
	return (double *)mft_net_at(net, net->sums) + which;
}

/* ---- what is not kept ---- */

bool mft_recomputes(const struct mft_net *net, const char *module)
{
	const struct mfs_arg_words *modules = &net->config->recompute_modules;

	if (net->config->recompute_granularity != MFT_RECOMPUTE_SELECTIVE || !module)
		return false;
	for (size_t i = 0; i < modules->count; i++)
		if (mfs_str_is(modules->list[i], module))
			return true;
	return false;
}
