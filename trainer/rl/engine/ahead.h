/*
 * Requests that engines answer while steps are trained: batches of them, one after another, in a
 * thread (--rl-generation-lag).
 */
#ifndef MFT_TRAINER_RL_AHEAD_H
#define MFT_TRAINER_RL_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"
#include "trainer/generate/response.h"
#include "trainer/rl/engine/engine.h"

struct mft_ahead;

#define MFT_AHEAD_MOST 16 /* batches that are asked for and not taken */

/* engines are the thread's alone from now on, but for what an update of others tells them, `also`.
 */
int mft_ahead_new(struct mft_engines *engines, const struct mft_sampling *how,
		  struct mft_ahead **ret, struct mfs_error *err);
/* What is being answered is given up. NULL: nothing. */
void mft_ahead_free(struct mft_ahead *a);

/* Copies the requests, but for their tokens. -EBUSY: there are MFT_AHEAD_MOST batches. */
int mft_ahead_submit(struct mft_ahead *a, const struct mft_request *requests, size_t count,
		     struct mfs_error *err);
/* Waits for the oldest batch: responses [count], which the caller releases; fails as
 * mft_engines_run() did. stop: asked now and then. -ENODATA: there is none; -EINTR: stop() is true,
 * and the batch stays. */
int mft_ahead_take(struct mft_ahead *a, struct mft_response *ret, size_t count, bool (*stop)(void),
		   struct mfs_error *err);

#endif
