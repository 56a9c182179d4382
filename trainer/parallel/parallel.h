/*
 * The groups of processes that a run is divided among, and what they send each other.
 *
 * A process has a place in each dimension. Processes are numbered by them, the first of these lists
 * being the fastest (megatron/core/parallel_state.py: RankGenerator, order tp-cp-ep-dp-pp):
 *
 *   dense parameters    tp, cp, dp, pp
 *   routed experts      etp, ep, edp, pp       over the same processes: etp ep edp = tp cp dp
 *
 * A group is the processes that differ in some dimensions and agree in the others; the rank in it
 * is numbered in the same order. In a group of one process there is nothing to send, and nothing is
 * called. Communication goes through the backend's groups (kernels/kernels.h: mfk_comm_ops).
 *
 * Processes that share a sequence may be divided once more, in neighbours and in those that have
 * one place among their neighbours (create_hierarchical_groups).
 *
 * Processes of data may be divided once more, too: in instances of the distributed optimizer, each
 * of which has all of the optimizer's state. In a stage an instance is as many neighbours as the
 * others, so that it is the same for dense parameters and for experts.
 */
#ifndef MFT_TRAINER_PARALLEL_PARALLEL_H
#define MFT_TRAINER_PARALLEL_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/launch.h"
#include "trainer/parallel/watch.h"

/* Sizes of the dimensions; cp, dp, edp: of data, the others of the model. */
struct mft_parallel_sizes {
	uint32_t tp, cp, dp, pp;
	uint32_t etp, ep, edp;
	uint32_t neighbours; /* of cp, a divisor of it; 0: cp is not divided once more */
	uint32_t instances;  /* a divisor of cp dp and of edp; 0: they are not divided once more */
};

enum mft_group {
	MFT_GROUP_WORLD,
	MFT_GROUP_TENSOR,	  /* tp */
	MFT_GROUP_CONTEXT,	  /* cp: shares a sequence */
	MFT_GROUP_CONTEXT_HEADS,  /* neighbours of those, which exchange tokens for heads */
	MFT_GROUP_CONTEXT_RING,	  /* of all neighbours those with one place among them */
	MFT_GROUP_DATA,		  /* dp: shares the samples */
	MFT_GROUP_GRADS,	  /* cp, dp: has the same dense parameters, and adds up gradients */
	MFT_GROUP_PIPELINE,	  /* pp */
	MFT_GROUP_MODEL,	  /* tp, pp: a whole model's dense parameters, in parts */
	MFT_GROUP_EMBEDDING,	  /* the first and the last stage, of one place in the others */
	MFT_GROUP_EXPERT,	  /* ep: shares the experts */
	MFT_GROUP_EXPERT_TENSOR,  /* etp: shares each expert */
	MFT_GROUP_EXPERT_TOKENS,  /* etp, ep: whose tokens meet in an expert's layer */
	MFT_GROUP_EXPERT_GRADS,	  /* edp: has the same experts, and adds up gradients */
	MFT_GROUP_EXPERT_MODEL,	  /* etp, ep, pp: all routed experts, in parts */
	MFT_GROUP_INSTANCE,	  /* of an instance: all of the optimizer's state, in parts */
	MFT_GROUP_INSTANCE_GRADS, /* of GRADS those of one instance */
	MFT_GROUP_INSTANCE_EXPERT_GRADS, /* of EXPERT_GRADS those of one instance */
	MFT_GROUP_ACROSS_INSTANCES,	 /* of each instance one: has the same part of the state */
	MFT_GROUP_COUNT,
};

struct mft_exposure;
struct mft_hostnet;

/* Device memory that a process's operations went through: of the larger of both buffers, all parts
 * of it; of exchanges what was sent to others. */
struct mft_traffic {
	uint64_t operations, bytes;
};

struct mft_parallel {
	struct mft_launch launch;
	struct mft_parallel_sizes size, place;
	const struct mfk_comm_ops *ops; /* NULL: one process, or a plan alone */
	struct mft_watch *watch;	/* whom operations beat; NULL: nobody watches */
	struct mft_traffic *traffic;	/* [MFT_GROUP_COUNT]; NULL: nobody counts */
	struct mft_exposure *exposure;	/* NULL: nobody measures */
	struct mft_hostnet *net;	/* NULL: the backend wants none */
	struct mft_group_place {
		uint32_t rank, size;
		struct mfk_comm *comm; /* NULL: size is 1; of EMBEDDING: in neither stage, too */
	} group[MFT_GROUP_COUNT];
};

/* One process for itself. */
void mft_parallel_one(struct mft_parallel *ret);

/* Places of a process, and of its groups, without what they talk through. sizes fit the launch. */
void mft_parallel_places(const struct mft_launch *launch, const struct mft_parallel_sizes *sizes,
			 struct mft_parallel *ret);
/* ret has its places. Processes wait so many seconds for each other where the host net is wanted;
 * what else waits is for the watch to see. */
int mft_parallel_open(struct mft_parallel *ret, const struct mfk_backend *backend,
		      struct mfk_device *device, unsigned seconds, struct mfs_error *err);
/* Releases the groups. With a host net, rank 0 waits for the others to end, for the seconds of
 * mft_parallel_open(). -ETIMEDOUT: some have not. */
int mft_parallel_close(struct mft_parallel *p, struct mfs_error *err);

/* The rest of the world must not wait for a process that has failed: ends them all. */
void mft_parallel_end_all(const struct mft_parallel *p, int code);

/* For messages; they are Megatron's names. */
const char *mft_group_name(enum mft_group g);

/* What an instance has of WORLD, GRADS or EXPERT_GRADS: the group itself where there is one. */
enum mft_group mft_parallel_in_instance(const struct mft_parallel *p, enum mft_group g);

/* How many of a group's processes are on this one's host, if each has so many, in the order of
 * ranks. */
uint32_t mft_parallel_on_host(const struct mft_parallel *p, enum mft_group g, uint32_t each);

static inline bool mft_is_first_stage(const struct mft_parallel *p)
{
	return p->place.pp == 0;
}

static inline bool mft_is_last_stage(const struct mft_parallel *p)
{
	return p->place.pp + 1 == p->size.pp;
}

/* Operations of the context, as struct mfk_comm_ops says. In a group of one nothing is done: what
 * is to be gathered or scattered is at its place when to is from. */
void mft_parallel_all_reduce(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
			     enum mfk_reduce op, enum mfk_dtype dtype, void *data,
			     uint64_t elements);
void mft_parallel_all_gather(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
			     enum mfk_dtype dtype, void *to, const void *from, uint64_t elements);
void mft_parallel_reduce_scatter(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
				 enum mfk_dtype dtype, void *to, void *from, uint64_t elements);
void mft_parallel_exchange(const struct mft_parallel *p, enum mft_group g, struct mfk_ctx *c,
			   const struct mfk_message *list, unsigned messages);
/* c waits for an event of another context, in which the group communicates. */
void mft_parallel_wait(const struct mft_parallel *p, enum mft_group g,
		       const struct mfk_device_ops *device, struct mfk_ctx *c,
		       struct mfk_event *event);
/* Host memory: sums of doubles over a group. Waits. */
int mft_parallel_sum(const struct mft_parallel *p, enum mft_group g, double *values, unsigned count,
		     struct mfs_error *err);
/* Host memory: to [size][bytes] of all processes' from [bytes]. Waits. */
int mft_parallel_gather(const struct mft_parallel *p, enum mft_group g, void *to, const void *from,
			size_t bytes, struct mfs_error *err);
/* The first of the group's ranks that says true; MFT_RANK_NONE: none does. Waits. */
#define MFT_RANK_NONE UINT32_MAX
int mft_parallel_first(const struct mft_parallel *p, enum mft_group g, bool mine, uint32_t *ret,
		       struct mfs_error *err);
/* Device memory: sums of counts over a group. Waits for the context, if there is a group. */
int mft_parallel_sum_counts(const struct mft_parallel *p, enum mft_group g,
			    const struct mfk_device_ops *device, struct mfk_ctx *c, int32_t *counts,
			    uint32_t count, struct mfs_error *err);

#endif
