/*
 * Where a rank's parameters lie in the distributed optimizer's flat buffers.
 *
 * A buffer holds the parameters of one dtype, one model chunk and one optimizer, the last
 * registered one first. It is cut into buckets. A bucket ends when it has reached the bucket size,
 * and before and after an embedding that two stages share. The end of a bucket is padded, and the
 * start of a parameter is aligned.
 *
 * Sources: megatron/core/optimizer/distrib_optimizer.py: _compute_per_buffer_param_layout,
 * param_layout.py; before 2026-04 megatron/core/distributed/param_and_grad_buffer.py:
 * _ParamAndGradBuffer.__init__.
 */
#ifndef MFS_OPTIM_BUFFERS_FLAT_BUFFERS_H
#define MFS_OPTIM_BUFFERS_FLAT_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/optim/rules/optim_rules.h"

struct mfs_flat_param {
	uint64_t elements;
	bool shared; /* an embedding that has a copy on another stage */
	/* result, in elements */
	uint32_t bucket;
	uint64_t start;	       /* from the buffer's start, padding of buckets included */
	uint64_t in_bucket;    /* from the bucket's start */
	uint64_t in_coalesced; /* from the buffer's start, without padding at buckets' ends */
};

struct mfs_flat_buffer {
	uint32_t bucket_count;
	uint64_t *unpadded, *padded; /* [bucket_count] elements of each bucket */
	uint64_t elements;	     /* sum of unpadded */
};

/* The key of a state in a buffer's files: "param", "exp_avg", "exp_avg_sq". */
static inline const char *mfs_flat_key(enum mfs_state state)
{
	return state == MFS_STATE_MAIN ? "param" : mfs_state_name(state);
}

/*
 * Lays out params, which are in registration order. size: bucket size in elements, 0: no limit. dp:
 * number of ranks that share the buffer. The arrays of *ret lie in arena. -EINVAL: sizes overflow.
 */
int mfs_flat_layout(const struct mfs_optim_rules *rules, uint64_t size, uint32_t dp,
		    struct mfs_flat_param *params, uint32_t count, struct mfs_arena *arena,
		    struct mfs_flat_buffer *ret, struct mfs_error *err);

/* Bucket size of a rank's model chunk in elements; 0: no limit. Only the first chunk of the first
 * stage is cut by size. parameters: elements of all parameters of the rank. dp includes context
 * parallelism. */
uint64_t mfs_flat_bucket_size(const struct mfs_optim_rules *rules, uint32_t pp, uint32_t chunk,
			      uint64_t parameters, uint32_t dp);

#endif
