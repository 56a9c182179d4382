/*
 * The net, as its parts know it: the run, the sizes, and where memory lies.
 *
 * Parts stand on this folder alone: what they ask for (part.h), linears and norms (linear.h),
 * random numbers (dropout.h), and what tensor parallel processes say (tensor_parallel.h). Which
 * parts there are is known above (net_i.h).
 */
#ifndef MFT_TRAINER_MODEL_BASE_STATE_H
#define MFT_TRAINER_MODEL_BASE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/model/base/side.h"
#include "trainer/model/base/context.h"
#include "trainer/parallel/parallel.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"

/* The device's sums, doubles. Whole microbatches are added to them. */
enum mft_sum {
	MFT_SUM_LOSS, /* and its other terms */
	MFT_SUM_AUX_LOSS =
		MFT_SUM_LOSS + MFT_LOSS_TERMS, /* and those of the other kinds: enum mft_aux_loss */
	MFT_SUM_Z_LOSS = MFT_SUM_AUX_LOSS + MFT_AUX_LOSSES,
	MFT_SUM_MTP_LOSS, /* of each layer; means over counted tokens */
	MFT_SUM_COUNT = MFT_SUM_MTP_LOSS + MFT_MTP_MOST
};

/* Where something lies: at one place for all passes, or in the slot of each. */
struct mft_at {
	uint64_t offset; /* in memory, or in the slot */
	bool in_slot;
};

/* What a net that generates keeps of sequences (trainer/model/cached.c). */
struct mft_cache {
	int64_t sequences, length; /* tokens of each; both 0: the net trains */
	uint64_t step;		   /* offset in memory: struct mft_cached_step's block */
	/* [tp, T, ld]: logits of all tensor parallel processes; not set where there is one */
	uint64_t logits;
	const int32_t *sequence; /* device, [T]: of the tokens of the step */
};

struct mft_chain; /* the sublayers, the head and what else is above parts */
struct mft_rope;
struct mft_shared_groups;
struct mft_eight;

struct mft_net {
	const struct mft_train_config *config;
	const struct mfs_megatron_args *args; /* config->model */
	struct mft_params *params;
	bool *replaced; /* [params->count]: by the first pass of a step */
	bool *term;	/* [params->count]: see mft_net_gradient_is_term() */
	struct mft_memory *memory;
	const struct mfk_backend *backend; /* NULL: a plan alone */
	struct mfk_device *device;
	const struct mft_parallel *parallel;
	struct mft_chain *chain;

	enum mfk_dtype io, grad;
	int64_t batch, seq, tokens, hidden; /* tokens = batch * seq */
	int64_t rows, first_row;	    /* of the residual stream, that the process has */
	struct mft_context context;
	struct mft_cache cache;
	struct mft_shared_groups *groups;
	struct mft_rope *rope;
	struct mft_eight *eight;      /* eight.h; NULL: no product has 8 bits */
	struct mft_qk_clip *qk_clips; /* of the layers; attention/qk_clip.h */
	struct mft_side experts_side, tensor_side, context_side;

	/* What passes keep until their backward: slots of equal size, one after the other. */
	uint64_t slots, slot_bytes;
	uint32_t slot_count, batch_count; /* batches: that are on the device at once */
	uint32_t slot;			  /* of the pass that is being submitted */

	/* [T, hidden], with --sequence-parallel: see mft_stream_gather(), mft_stream_term() */
	uint64_t gathered[2], of_all;
	uint64_t terms; /* gradients that are added up over the group, one after the other */
	uint64_t scratch;
	uint64_t sums;
	struct mfs_arena arena;
};

static inline void *mft_net_at(const struct mft_net *net, uint64_t offset)
{
	return mft_memory_at(net->memory, offset);
}

/* Positions that a token may have. */
static inline int64_t mft_net_longest(const struct mft_net *net)
{
	return net->cache.length ? net->cache.length : net->context.whole;
}

/* Of the pass that is being submitted. */
static inline void *mft_pass_at(const struct mft_net *net, struct mft_at at)
{
	return mft_net_at(net, at.in_slot ? net->slots + net->slot * net->slot_bytes + at.offset
					  : at.offset);
}

void *mft_net_scratch(const struct mft_net *net, uint64_t offset);
double *mft_net_sum(const struct mft_net *net, unsigned which);

#endif
