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
#ifndef MFS_TRAINER_PARALLEL_EXPOSURE_H
#define MFS_TRAINER_PARALLEL_EXPOSURE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/parallel.h"

/* Pairs of stamps of a step: a step of 64 microbatches of 100 layers that say ten things each. */
#define MFS_EXPOSURE_PAIRS 65536

struct mfs_exposure;

/* ctx is the passes', and all that is measured is submitted by its thread. */
int mfs_exposure_new(const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, struct mfs_exposure **ret, struct mfs_error *err);
void mfs_exposure_free(struct mfs_exposure *e);

/* Call it when a step begins. Outside of steps nothing is measured. */
void mfs_exposure_begin(struct mfs_exposure *e);
/* Call it when the step has ended. mfs_exposure_sum() sums this step until another one is kept. */
void mfs_exposure_keep(struct mfs_exposure *e);

/* Call them before the context stands still for a group, and when it goes on. If pairs of calls are
 * nested, the outer pair counts. */
void mfs_exposure_stops(struct mfs_exposure *e, const struct mfk_ctx *c, enum mfs_group g);
void mfs_exposure_goes_on(struct mfs_exposure *e, const struct mfk_ctx *c);

struct mfs_exposed {
	double seconds[MFS_GROUP_COUNT];
	uint64_t left_out; /* pairs for which there was no room */
};

/* Sums the step that was kept; without one all is 0. Waits for the context. */
int mfs_exposure_sum(struct mfs_exposure *e, struct mfs_exposed *ret, struct mfs_error *err);

#endif
