/* Where random numbers come from. */
#ifndef MFS_TRAINER_MODEL_BASE_DROPOUT_H
#define MFS_TRAINER_MODEL_BASE_DROPOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/* Where dropout is applied. Each place of each layer has a stream of random numbers of its own. */
enum mfs_dropout_site {
	MFS_DROPOUT_EMBEDDING,
	MFS_DROPOUT_SCORES, /* of attention */
	MFS_DROPOUT_ATTENTION,
	MFS_DROPOUT_MLP,
	MFS_RANDOM_LOGITS, /* of a router: no dropout, and another such place */
};

/* The generator's key: a function of seed, iteration, microbatch, layer and site. */
uint64_t mfs_pass_seed(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer,
		       enum mfs_dropout_site site);

/* Dropout of the stream, or its backward, of the rows that the process has. */
bool mfs_drops(const struct mfs_net *net, const struct mfs_pass *run);
struct mfk_dropout mfs_dropout_at(const struct mfs_net *net, const struct mfs_pass *run,
				  uint32_t layer, enum mfs_dropout_site site);
void mfs_drop(const struct mfs_net *net, const struct mfs_pass *run,
	      void (*op)(struct mfk_ctx *c, const struct mfk_dropout *a),
	      const struct mfk_dropout *all);

/* Normal numbers in place of a router's logits [tokens, experts]. */
void mfs_random_logits(const struct mfs_net *net, const struct mfs_pass *run, uint32_t layer,
		       enum mfk_dtype type, void *logits, int64_t experts);

#endif
