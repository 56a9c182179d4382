/* Communication of processes in parallel with the passes, in a context of its own. */
#ifndef MFT_TRAINER_MODEL_BASE_SIDE_H
#define MFT_TRAINER_MODEL_BASE_SIDE_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/parallel.h"

struct mft_net;

struct mft_side {
	struct mfk_ctx *ctx; /* NULL: it is submitted to the passes' context */
	struct mfk_event *passes, *sent;
};
int mft_side_begin(const struct mft_net *net, struct mft_side *b, struct mfs_error *err);
void mft_side_release(const struct mft_net *net, struct mft_side *b);
/* The context in which to say something that needs what ctx has so far. */
struct mfk_ctx *mft_side_submit(const struct mft_net *net, const struct mft_side *b,
				struct mfk_ctx *ctx);
/* ctx waits for everything that was submitted. group: the one that communicated what is needed. */
void mft_side_await(const struct mft_net *net, const struct mft_side *b, enum mft_group group,
		    struct mfk_ctx *ctx);

#endif
