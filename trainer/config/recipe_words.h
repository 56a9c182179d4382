/* Which of the recipes of 8-bit products a run has. */
#ifndef MFT_TRAINER_CONFIG_RECIPE_WORDS_H
#define MFT_TRAINER_CONFIG_RECIPE_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/config/config.h"

/* Whether products are computed in 8 bits: --fp8-format is given, its recipe is one of those that
 * are computed here, and weights are bf16. An infinity in fp16, by which a loss scale is found too
 * large, would become the largest element of 8 bits. */
bool mft_has_eight_bits(const struct mft_train_config *config);
/* Why a recipe is refused; NULL: it is not. */
const char *mft_recipe_refusal(const char *word);

/* Whether a layer's linears have 8-bit products. Layers of MTP follow the decoder's, and are
 * neither its first nor its last (fp8_utils.py: is_first_last_bf16_layer). */
bool mft_layer_has_eight_bits(const struct mft_train_config *config, int64_t layer);

#endif
