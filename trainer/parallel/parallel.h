/*
 * The groups of processes that a run is divided among, and what they say to each other.
 *
 * A process is one rank of the world and of each group. Collectives are one table of functions with
 * a backend; the only one so far is that of a world of one rank, where each group is the process
 * alone.
 */
#ifndef MFS_TRAINER_PARALLEL_PARALLEL_H
#define MFS_TRAINER_PARALLEL_PARALLEL_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"

enum mfs_group {
	MFS_GROUP_WORLD,
	MFS_GROUP_TENSOR,
	MFS_GROUP_PIPELINE,
	MFS_GROUP_CONTEXT,
	MFS_GROUP_DATA,	       /* shares the dense parameters, context parallelism included */
	MFS_GROUP_EXPERT,      /* divides the experts */
	MFS_GROUP_EXPERT_DATA, /* shares the experts */
	MFS_GROUP_COUNT,
};

struct mfs_collectives; /* a backend */

struct mfs_parallel {
	struct mfs_group_place {
		uint32_t rank, size;
	} group[MFS_GROUP_COUNT];
	const struct mfs_collectives *ops;
};

/* Device memory; element types as of kernels.h. They are operations of the context's stream. */
struct mfs_collectives {
	const char *name; /* "one rank" */
	int (*all_reduce)(const struct mfs_parallel *p, enum mfs_group g, struct mfk_ctx *c,
			  enum mfk_dtype dtype, void *data, uint64_t count, struct mfs_error *err);
	int (*reduce_scatter)(const struct mfs_parallel *p, enum mfs_group g, struct mfk_ctx *c,
			      enum mfk_dtype dtype, void *data, uint64_t count,
			      struct mfs_error *err);
	int (*all_gather)(const struct mfs_parallel *p, enum mfs_group g, struct mfk_ctx *c,
			  enum mfk_dtype dtype, void *data, uint64_t count, struct mfs_error *err);
	/* Host memory: sums of doubles over a group. */
	int (*sum)(const struct mfs_parallel *p, enum mfs_group g, double *values, unsigned count,
		   struct mfs_error *err);
};

/* A world of one process. */
void mfs_parallel_one(struct mfs_parallel *ret);

#endif
