/*
 * Scales of products of 8 bits that follow from earlier passes (model/base/eight.h), as checkpoints
 * find them: where they lie, and which are a weight's.
 */
#ifndef MFT_TRAINER_PARAMS_SCALES_H
#define MFT_TRAINER_PARAMS_SCALES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Of a direction, in device memory. */
struct mft_scale_table {
	int64_t count;
	struct mfk_scale *scales; /* [count] */
	float *history;		  /* [length, count]: amax of earlier passes, the oldest in row 1 */
};

/* Entries of the product of a weight. */
struct mft_scale_place {
	bool exists;
	int64_t x, weight; /* of forward */
	int64_t dy;	   /* of backward */
};

struct mft_scales {
	int64_t length;
	struct mft_scale_table forward, backward;
	struct mft_scale_place *places; /* [parameters] */
};

#endif
