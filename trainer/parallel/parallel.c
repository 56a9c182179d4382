/* A world of one rank: what each rank has is the sum, the part and the whole. */
#include "trainer/parallel/parallel.h"

static int nothing(const struct mfs_parallel *p, enum mfs_group g, struct mfk_ctx *c,
		   enum mfk_dtype dtype, void *data, uint64_t count, struct mfs_error *err)
{
	(void)p, (void)g, (void)c, (void)dtype, (void)data, (void)count, (void)err;
	return 0;
}

static int own_sum(const struct mfs_parallel *p, enum mfs_group g, double *values, unsigned count,
		   struct mfs_error *err)
{
	(void)p, (void)g, (void)values, (void)count, (void)err;
	return 0;
}

static const struct mfs_collectives one_rank = {
	.name = "one rank",
	.all_reduce = nothing,
	.reduce_scatter = nothing,
	.all_gather = nothing,
	.sum = own_sum,
};

void mfs_parallel_one(struct mfs_parallel *ret)
{
	for (int g = 0; g < MFS_GROUP_COUNT; g++)
		ret->group[g] = (struct mfs_group_place){.rank = 0, .size = 1};
	ret->ops = &one_rank;
}
