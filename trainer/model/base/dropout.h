/* Where random numbers come from. */
#ifndef MFT_TRAINER_MODEL_BASE_DROPOUT_H
#define MFT_TRAINER_MODEL_BASE_DROPOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/model/base/pass.h"
#include "trainer/model/base/state.h"

/* Where dropout is applied. Each place of each layer has a stream of random numbers of its own. */
enum mft_dropout_site {
	MFT_DROPOUT_EMBEDDING,
	MFT_DROPOUT_SCORES, /* of attention */
	MFT_DROPOUT_ATTENTION,
	MFT_DROPOUT_MLP,
	MFT_RANDOM_LOGITS, /* of a router: no dropout, and another such place */
};

/* The generator's key: a function of seed, iteration, microbatch, layer and site. */
uint64_t mft_pass_seed(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer,
		       enum mft_dropout_site site);

/* Dropout of the stream, or its backward, of the rows that the process has. */
bool mft_drops(const struct mft_net *net, const struct mft_pass *pass);
struct mfk_dropout mft_dropout_at(const struct mft_net *net, const struct mft_pass *pass,
				  uint32_t layer, enum mft_dropout_site site);
void mft_drop(const struct mft_net *net, const struct mft_pass *pass,
	      void (*op)(struct mfk_ctx *c, const struct mfk_dropout *a),
	      const struct mfk_dropout *all);

/* Normal numbers in place of a router's logits [tokens, experts]. */
void mft_random_logits(const struct mft_net *net, const struct mft_pass *pass, uint32_t layer,
		       enum mfk_dtype type, void *logits, int64_t experts);

#endif
