/*
 * The groups of processes that a run is divided among, and what they say to each other.
 *
 * A process is one rank of the world and of each group. What they say goes through the backend's
 * groups (kernels/kernels.h: mfk_comm_ops); in a group of one process nothing is to be said, and
 * nothing is called.
 */
#ifndef MFS_TRAINER_PARALLEL_PARALLEL_H
#define MFS_TRAINER_PARALLEL_PARALLEL_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/launch.h"

enum mfs_group {
	MFS_GROUP_WORLD,
	MFS_GROUP_MODEL, /* divides the parameters */
	MFS_GROUP_DATA,	 /* has the same parameters, and divides the samples */
	MFS_GROUP_COUNT,
};

struct mfs_parallel {
	struct mfs_launch launch;
	const struct mfk_comm_ops *ops; /* NULL: one process, or a plan alone */
	struct mfs_group_place {
		uint32_t rank, size;
		struct mfk_comm *comm; /* NULL: size is 1 */
	} group[MFS_GROUP_COUNT];
};

/* One process for itself. */
void mfs_parallel_one(struct mfs_parallel *ret);

/* All processes that were launched, which share the data. device NULL: places without groups, for a
 * plan. -ENOTSUP: the backend computes in one process alone. */
int mfs_parallel_open(const struct mfs_launch *launch, const struct mfk_backend *backend,
		      struct mfk_device *device, struct mfs_parallel *ret, struct mfs_error *err);
void mfs_parallel_close(struct mfs_parallel *p);

/* The rest of the world must not wait for a process that has failed: ends them all. */
void mfs_parallel_end_all(const struct mfs_parallel *p, int code);

/* data = the sum of the group's data; an operation of the context. */
void mfs_parallel_all_reduce(const struct mfs_parallel *p, enum mfs_group g, struct mfk_ctx *c,
			     enum mfk_dtype dtype, void *data, uint64_t count);
/* Host memory: sums of doubles over a group. Waits. */
int mfs_parallel_sum(const struct mfs_parallel *p, enum mfs_group g, double *values, unsigned count,
		     struct mfs_error *err);
/* Device memory: sums of counts over a group. Waits for the context, if there is a group. */
int mfs_parallel_sum_counts(const struct mfs_parallel *p, enum mfs_group g,
			    const struct mfk_device_ops *device, struct mfk_ctx *c, int32_t *counts,
			    uint32_t count, struct mfs_error *err);

#endif
