/* The weights that a run begins with, where it loads none. */
#ifndef MFS_TRAINER_PARAMS_DRAW_H
#define MFS_TRAINER_PARAMS_DRAW_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "trainer/params/params.h"

/* Submits the drawing of what the process owns: main parameters, and weights that are these,
 * rounded. Numbers depend on the seed and on their place in the whole model alone. What others own
 * comes to the process as it does after an update. Gradients are zeros, before and after. */
void mfs_params_draw(const struct mfs_params *params, uint64_t seed,
		     const struct mfk_backend *backend, struct mfk_ctx *ctx);

#endif
