/* A pass: a microbatch on its way through a model chunk. */
#ifndef MFT_TRAINER_MODEL_BASE_PASS_H
#define MFT_TRAINER_MODEL_BASE_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "trainer/data/loader.h"
#include "trainer/model/base/context.h"

/* A microbatch on the host, and what its pass has to do with it. */
struct mft_microbatch_info {
	const struct mft_batch *batch; /* host; it is copied to the device first */
	/* The gradient of the loss's sum over counted tokens is multiplied by this: 1 / (counted
	 * tokens * microbatches) or, with per-token loss, 1; times the loss scale of fp16. */
	float grad_scale;
	bool backward; /* false: validation, without dropout */
	/* The first microbatch after mft_net_clear_grads(); otherwise gradients are added to. */
	bool first;
	bool last; /* the step's last microbatch */
	/* A policy loss takes this pass's log-probs for `old` ones, without a gradient: right where
	 * the weights have not been updated since the rollout. */
	bool old_is_own;
	/* Of dropout: random numbers are a function of seed, iteration, microbatch and layer, so a
	 * run that is resumed draws the same. */
	uint64_t iteration, microbatch;
};

#define MFT_PASS_MEMBER(type, name, way) const type *name;

/* What is on its way: the context, and the microbatch on the device. */
struct mft_pass {
	struct mfk_ctx *ctx;
	const struct mft_microbatch_info *info; /* without its batch, when that is on the device */
	uint64_t counted;			/* tokens whose loss counts */
	bool train;				/* with dropout, and a backward pass follows */
	bool adds;  /* the pass has written to the same gradients before */
	bool again; /* a forward that backward runs again: nothing is counted a second time */
	/* On the device (trainer/data/loader.h). first_key NULL: every token sees its whole past */
	MFT_BATCH_ARRAYS(MFT_PASS_MEMBER)
	MFT_BATCH_ARRAYS_POLICY(MFT_PASS_MEMBER) /* NULL: the run has no policy loss */
	/* of the tokens of processes that exchange them for heads, [batch, net->seq * way.heads] */
	const int32_t *heads_first_key[MFT_CONTEXT_WAYS];
	struct mft_batch_ahead ahead[MFT_MTP_MOST];
	struct mft_dx_sum *dx_sum; /* of the part that goes backward; NULL: none */
};

#endif
