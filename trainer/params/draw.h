/* The weights that a run begins with, where it loads none. */
#ifndef MFT_TRAINER_PARAMS_DRAW_H
#define MFT_TRAINER_PARAMS_DRAW_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "trainer/params/params.h"

/* Submits the drawing of what the process owns: main parameters, and weights that are these,
 * rounded. Numbers depend on the seed and on their place in the whole model alone. What others own
 * comes to the process as it does after an update. Gradients are zeros, before and after. */
void mft_params_draw(const struct mft_params *params, uint64_t seed,
		     const struct mfk_backend *backend, struct mfk_ctx *ctx);

#endif
