/* Communication of processes in parallel with the passes, in a context of its own. */
#ifndef MFS_TRAINER_MODEL_BASE_BESIDE_H
#define MFS_TRAINER_MODEL_BASE_BESIDE_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/parallel/parallel.h"

struct mfs_net;

struct mfs_beside {
	struct mfk_ctx *ctx; /* NULL: it is submitted to the passes' context */
	struct mfk_event *passes, *said;
};
int mfs_beside_begin(const struct mfs_net *net, struct mfs_beside *b, struct mfs_error *err);
void mfs_beside_release(const struct mfs_net *net, struct mfs_beside *b);
/* The context in which to say something that needs what ctx has so far. */
struct mfk_ctx *mfs_beside_say(const struct mfs_net *net, const struct mfs_beside *b,
			       struct mfk_ctx *ctx);
/* ctx waits for everything that was submitted. group: the one that communicated what is needed. */
void mfs_beside_await(const struct mfs_net *net, const struct mfs_beside *b, enum mfs_group group,
		      struct mfk_ctx *ctx);

#endif
