/*
 * Buckets: the stretches of the flat buffers in which gradients are added up over processes, and,
 * with the distributed optimizer, what of each a process owns.
 *
 * Backward finishes gradients from the end of the buffers to their beginning, so buckets are cut
 * from the end: one ends with the parameter that makes it as large as the rule says, but not
 * between the experts of a layer. Where dense parameters and routed experts are added up over
 * different processes, they share no bucket.
 *
 * With the distributed optimizer a bucket is padded to a multiple of its processes times
 * MFT_PARAM_ALIGN, and each owns one of as many equal slices: it alone has main parameters and
 * moments of it, and updates it. Without, a process owns all.
 *
 * The processes may be several instances: each divides all of the state among its own. The sums of
 * a slice's gradients are added up over the instances then, and its owner in each does the same.
 *
 * With FSDP a process has gradients, and weights, of its slices alone, too. Buckets are those of
 * units then: what a pass needs whole at once, as a layer. Where they are whole for a while, a
 * bucket says.
 *
 * Source: megatron/core/distributed/param_and_grad_buffer.py: _ParamAndGradBuffer;
 * core/optimizer/distrib_optimizer.py: _build_model_gbuf_range;
 * core/distributed/fsdp/mcore_fsdp_adapter.py: fsdp_unit_modules.
 */
#ifndef MFT_TRAINER_PARAMS_BUCKETS_H
#define MFT_TRAINER_PARAMS_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/parallel/parallel.h"

struct mft_params;

struct mft_bucket {
	uint64_t first, count; /* elements of the flat buffers, padding included */
	/* Whose gradients are added up: GRADS or EXPERT_GRADS, or, of those, an instance's. */
	enum mft_group group;
	uint32_t parts;		      /* slices of count / parts elements; 1: it is not divided */
	uint32_t first_param, params; /* numbers of its parameters: the first one, and how many */
	int32_t unit;		      /* with mft_bucket_rule.units: of all of its parameters */
	/* Device memory where all of a divided bucket's weights, or gradients, lie while somebody
	 * has gathered them (trainer/optim/windows.h). NULL: nowhere, or in the flat buffer. */
	void *weights, *grads;
};

/* Neighbours that a process owns. */
struct mft_owned {
	uint64_t first, count; /* elements of the flat buffers */
	uint64_t at; /* the first one's number among all that it owns: its place in its state */
};

/* The processes of a kind of parameters, and this one. */
struct mft_bucket_parts {
	enum mft_group group;
	uint32_t count, own; /* 1 and 0: nothing is divided */
};

struct mft_bucket_rule {
	uint64_t size; /* elements; UINT64_MAX: one bucket of each kind */
	struct mft_bucket_parts dense, experts;
	bool apart;	   /* experts have processes of their own, and lie after the dense ones */
	bool shared_alone; /* the embedding that two stages share is cut alike in both */
	bool units;	   /* a bucket has parameters of one unit, all of a kind */
};

/* Puts p->list in the order of the flat buffers, and sets its places, p->elements, p->buckets and
 * p->owned. The list has sizes and units. */
int mft_buckets_lay_out(struct mft_params *p, const struct mft_bucket_rule *rule,
			struct mfs_error *err);

#endif
