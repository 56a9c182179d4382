/*
 * The order in which a stage of a pipeline computes, and what it exchanges with other stages
 * between.
 *
 * Model chunk c of stage s is number c * stages + s of the model's chunks. A microbatch goes
 * through them in that order, and back. Which pass comes next in a stage is Megatron's rule:
 * forward passes that fill the pipeline, then one forward and one backward by turns, then the
 * backward passes that are left. With several chunks a stage takes `group` microbatches through one
 * chunk before it goes on with the next one (interleaved).
 *
 * When messages are exchanged is this file's rule. Let every pass take one tick, and begin as soon
 * as its stage and its input are there. An exchange belongs to a tick, and comes after the tick's
 * pass. A message goes as late as it can: in the tick before its receiver needs it, but before the
 * sender's next pass. So each process has one exchange in a tick at most, with one message to send,
 * and what it waits for is of the same tick or an earlier one: no two processes ever wait for each
 * other.
 *
 * Exchanges may run in parallel with the passes, in their order: each begins after the passes that
 * stand before it. A pass waits for no more of them than it has to: for that which brings its
 * input, and for those that still send what it is going to overwrite.
 *
 * Source: megatron/core/pipeline_parallel/schedules.py: get_pp_rank_microbatches,
 * get_schedule_table, forward_backward_pipelining_with_interleaving,
 * forward_backward_pipelining_without_interleaving.
 */
#ifndef MFT_TRAINER_PARALLEL_PIPELINE_H
#define MFT_TRAINER_PARALLEL_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mft_pipeline_shape {
	uint32_t stages, chunks; /* chunks of each stage */
	uint32_t group;		 /* microbatches through a chunk before the next one's turn */
	uint64_t microbatches;
	bool backward; /* false: forward passes alone */
};

enum mft_pipeline_kind { MFT_PIPELINE_FORWARD, MFT_PIPELINE_BACKWARD, MFT_PIPELINE_EXCHANGE };

/* The residual stream that goes to the next chunk, or its gradient that comes back. */
struct mft_pipeline_message {
	bool receive, gradient;
	uint32_t stage; /* the other one */
	/* Where it lies: a gradient in that buffer. A stream that is received, in the slot; one
	 * that is sent, in the output, as the last forward pass gave it. */
	uint32_t at;
};

/* A pass writes to one of these, while the one before it is sent. */
#define MFT_PIPELINE_OUTPUTS 2

struct mft_pipeline_step {
	enum mft_pipeline_kind kind;
	/* of a pass */
	uint32_t chunk;
	uint64_t microbatch;
	uint32_t slot;	 /* where the pass's activations lie, from forward to backward */
	uint32_t batch;	 /* where the microbatch lies */
	uint32_t grad;	 /* of backward: the buffer of the stream's gradient */
	uint32_t output; /* the buffer that it writes to; of forward: what is sent, in the end */
	bool first;	 /* of the microbatch in this stage: it is to be brought to `batch` */
	/* So many exchanges, the first ones, must be done; 0: no more than before the last pass. */
	uint64_t after;
	/* of an exchange */
	uint64_t number;
	uint32_t message_count;
	struct mft_pipeline_message message[3];
};

/* What a stage does, in its order. */
struct mft_pipeline {
	struct mft_pipeline_step *steps;
	uint64_t count;
	/* That are in use at once. Exchanges: those that are not waited for. */
	uint32_t slots, batches, grads, exchanges;
};

/* Plans a stage's steps, in order. -EINVAL: groups of so many microbatches cannot go through so
 * many stages. */
int mft_pipeline_new(const struct mft_pipeline_shape *shape, uint32_t stage,
		     struct mft_pipeline *ret, struct mfs_error *err);
void mft_pipeline_release(struct mft_pipeline *p);

#endif
