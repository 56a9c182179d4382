/*
 * How long the passes stand still in a step because processes communicate (--log-communication).
 *
 * Stamps of the passes' context (kernels/kernels.h: stamp) stand before and after each operation of
 * a group that is submitted to it, and before and after each wait for another context in which a
 * group communicates. The time between two of them counts for that group. Communication in parallel
 * with the passes counts only where they wait for it. A wait for several groups counts for one of
 * them. Where operations run at once, on the CPU, the passes stand still for those of all contexts.
 *
 * The functions that are for each step and each operation do nothing with e NULL.
 */
#ifndef MFT_TRAINER_PARALLEL_EXPOSURE_H
#define MFT_TRAINER_PARALLEL_EXPOSURE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/parallel.h"

/* Pairs of stamps of a step: a step of 64 microbatches of 100 layers that say ten things each. */
#define MFT_EXPOSURE_PAIRS 65536

struct mft_exposure;

/* ctx is the passes', and all that is measured is submitted by its thread. */
int mft_exposure_new(const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, struct mft_exposure **ret, struct mfs_error *err);
void mft_exposure_free(struct mft_exposure *e);

/* Call it when a step begins. Outside of steps nothing is measured. */
void mft_exposure_begin(struct mft_exposure *e);
/* Call it when the step has ended. mft_exposure_sum() sums this step until another one is kept. */
void mft_exposure_keep(struct mft_exposure *e);

/* Call them before the context stands still for a group, and when it goes on. If pairs of calls are
 * nested, the outer pair counts. */
void mft_exposure_stops(struct mft_exposure *e, const struct mfk_ctx *c, enum mft_group g);
void mft_exposure_goes_on(struct mft_exposure *e, const struct mfk_ctx *c);

struct mft_exposed {
	double seconds[MFT_GROUP_COUNT];
	uint64_t left_out; /* pairs for which there was no room */
};

/* Sums the step that was kept; without one all is 0. Waits for the context. */
int mft_exposure_sum(struct mft_exposure *e, struct mft_exposed *ret, struct mfs_error *err);

#endif
