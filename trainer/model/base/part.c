/* What parts ask for, and where it lies. */
#include "formats/base/str.h"
#include "formats/base/bytes.h"
#include "trainer/model/base/part.h"

#define MOST (UINT64_C(1) << 60)

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return a > MOST || b > MOST || a + b > MOST ? MOST : a + b;
}

uint64_t mfs_memory_behind(uint64_t *used, uint64_t bytes)
{
	const uint64_t offset = *used;

	if (bytes > MOST)
		bytes = MOST;
	*used = sum_of(offset, mfs_round_up(bytes, MFS_MEMORY_ALIGN));
	return offset;
}

uint64_t mfs_part_plan_keep(struct mfs_part_plan *p, uint64_t bytes)
{
	return mfs_memory_behind(&p->kept, bytes);
}

uint64_t mfs_part_plan_scratch(struct mfs_part_plan *p, uint64_t bytes)
{
	const uint64_t offset = mfs_memory_behind(&p->scratch, bytes);

	if (p->scratch > p->scratch_most)
		p->scratch_most = p->scratch;
	return offset;
}

void mfs_part_plan_scratch_anew(struct mfs_part_plan *p)
{
	p->scratch = 0;
}

uint64_t mfs_matrix_bytes(enum mfk_dtype type, int64_t rows, int64_t cols)
{
	uint64_t bytes;

	if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)cols, &bytes) ||
	    __builtin_mul_overflow(bytes, mfk_dtype_size(type), &bytes))
		return MOST;
	return bytes < MOST ? bytes : MOST;
}

/* ---- where it lies ---- */

void *mfs_net_scratch(const struct mfs_net *net, uint64_t offset)
{
	return mfs_net_at(net, net->scratch + offset);
}

void *mfs_part_kept(const struct mfs_net *net, const struct mfs_part *part, uint64_t offset)
{
	return (char *)mfs_pass_at(net, part->kept) + offset;
}

double *mfs_net_sum(const struct mfs_net *net, unsigned which)
{
	return (double *)mfs_net_at(net, net->sums) + which;
}

/* ---- what is not kept ---- */

bool mfs_recomputes(const struct mfs_net *net, const char *module)
{
	const struct mfs_words *modules = &net->config->recompute_modules;

	if (net->config->recompute_granularity != MFS_RECOMPUTE_SELECTIVE || !module)
		return false;
	for (size_t i = 0; i < modules->count; i++)
		if (mfs_str_is(modules->list[i], module))
			return true;
	return false;
}
