/*
 * The net, as its parts know it: the run, the sizes, and where memory lies.
 *
 * Parts stand on this folder alone: what they ask for (part.h), linears and norms (linear.h),
 * random numbers (dropout.h), and what tensor parallel processes say (tensor_parallel.h). Which
 * parts there are is known above (net_i.h).
 */
#ifndef MFS_TRAINER_MODEL_BASE_STATE_H
#define MFS_TRAINER_MODEL_BASE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "kernels/kernels.h"
#include "trainer/base/memory.h"
#include "trainer/config/config.h"
#include "trainer/model/base/beside.h"
#include "trainer/model/base/context.h"
#include "trainer/parallel/parallel.h"
#include "trainer/params/params.h"

/* The device's sums, doubles. Whole microbatches are added to them. */
enum mfs_sum {
	MFS_SUM_LM_LOSS,
	MFS_SUM_AUX_LOSS, /* and those of the other kinds: enum mfs_aux_loss */
	MFS_SUM_Z_LOSS = MFS_SUM_AUX_LOSS + MFS_AUX_LOSSES,
	MFS_SUM_MTP_LOSS, /* of each layer; means over counted tokens */
	MFS_SUM_COUNT = MFS_SUM_MTP_LOSS + MFS_MTP_MOST
};

/* Where something lies: at one place for all passes, or in the slot of each. */
struct mfs_at {
	uint64_t offset; /* in memory, or in the slot */
	bool in_slot;
};

struct mfs_chain; /* the sublayers, the head and what else is above parts */
struct mfs_rope;
struct mfs_shared_groups;

struct mfs_net {
	const struct mfs_train_config *config;
	const struct mfs_megatron_args *args; /* config->model */
	struct mfs_params *params;
	bool *replaced; /* [params->count]: by the first pass of a step */
	bool *term;	/* [params->count]: see mfs_net_gradient_is_term() */
	struct mfs_memory *memory;
	const struct mfk_backend *backend; /* NULL: a plan alone */
	struct mfk_device *device;
	const struct mfs_parallel *parallel;
	struct mfs_chain *chain;

	enum mfk_dtype io, grad;
	int64_t batch, seq, tokens, hidden; /* tokens = batch * seq */
	int64_t rows, first_row;	    /* of the residual stream, that the process has */
	struct mfs_context context;
	struct mfs_shared_groups *groups;
	struct mfs_rope *rope;
	struct mfs_beside experts_beside, tensor_beside, context_beside;

	/* What passes keep until their backward: slots of equal size, one after the other. */
	uint64_t slots, slot_bytes;
	uint32_t slot_count, batch_count; /* batches: that are on the device at once */
	uint32_t slot;			  /* of the pass that is being submitted */

	/* [T, hidden], with --sequence-parallel: see mfs_stream_gather(), mfs_stream_term() */
	uint64_t gathered[2], of_all;
	uint64_t terms; /* gradients that are added up over the group, one after the other */
	uint64_t scratch;
	uint64_t sums;
	struct mfs_arena arena;
};

static inline void *mfs_net_at(const struct mfs_net *net, uint64_t offset)
{
	return mfs_memory_at(net->memory, offset);
}

/* Of the pass that is being submitted. */
static inline void *mfs_pass_at(const struct mfs_net *net, struct mfs_at at)
{
	return mfs_net_at(net, at.in_slot ? net->slots + net->slot * net->slot_bytes + at.offset
					  : at.offset);
}

void *mfs_net_scratch(const struct mfs_net *net, uint64_t offset);
double *mfs_net_sum(const struct mfs_net *net, unsigned which);

#endif
