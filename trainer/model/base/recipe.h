/* How the three products of a linear are computed: the one place where this is asked. */
#ifndef MFT_TRAINER_MODEL_BASE_RECIPE_H
#define MFT_TRAINER_MODEL_BASE_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "trainer/config/config.h"

/*
 *   output           y[rows, out] = x[rows, in] weight[out, in]^T
 *   input gradient   dx[rows, in] = dy[rows, out] weight[out, in]
 *   weight gradient  dweight[out, in] += dy[rows, out]^T x[rows, in]
 */
enum mft_product { MFT_OUTPUT, MFT_INPUT_GRADIENT, MFT_WEIGHT_GRADIENT, MFT_PRODUCTS };

/* The matrices that products are of. */
enum mft_factor { MFT_X, MFT_WEIGHT, MFT_DY, MFT_FACTORS };

/* Of a linear that has products of 8 bits; others' operands are of the io type. */
struct mft_recipe {
	enum mfk_scaling scaling;
	bool delayed; /* scales follow from earlier passes (struct mfk_update_scales) */
	enum mfk_dtype type[MFT_FACTORS];
	bool eight[MFT_PRODUCTS]; /* operands of 8 bits */
	bool fast[MFT_PRODUCTS];  /* struct mfk_gemm: fast_accumulate */
};

/* False: no product of the run has 8 bits. */
bool mft_recipe_find(const struct mft_train_config *config, struct mft_recipe *ret);
/* Whether a linear has 8-bit products by its name and layer. Those of the embedding, the head and
 * routers have none; eh_proj of MTP has them whatever layers are in bf16. */
bool mft_recipe_is_for(const struct mft_train_config *config, const char *prefix, int64_t layer);

#endif
