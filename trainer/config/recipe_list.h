/*
 * The recipes of 8-bit products that --fp8-recipe names, and the formats that --fp8-format names:
 * the one list of both. What is made of them is in trainer/model/base/recipe.c.
 *
 * Sources: megatron/core/fp8_utils.py: get_fp8_recipe; TransformerEngine, common/recipe/__init__.py
 * and pytorch/module/base.py (_2X_ACC_FPROP, _2X_ACC_DGRAD, _2X_ACC_WGRAD).
 */
#ifndef MFT_TRAINER_CONFIG_RECIPE_LIST_H
#define MFT_TRAINER_CONFIG_RECIPE_LIST_H

/*
 * Word, what has a scale (enum mfk_scaling; NONE: products are of the io type here), whether scales
 * follow from earlier passes, which of the three products, of outputs, of inputs' gradients and of
 * weights' gradients, are summed as fast as can be, and why the recipe is refused; NULL: it is not.
 */
#define MFT_RECIPES(ROW)                                                                           \
	ROW("tensorwise", TENSOR, false, true, false, false, NULL)                                 \
	ROW("delayed", TENSOR, true, true, false, false, NULL)                                     \
	ROW("blockwise", NONE, false, false, false, false, NULL)                                   \
	ROW("mxfp8", NONE, false, false, false, false,                                             \
	    "it needs a GPU of compute capability 10.0 (Blackwell)")                               \
	ROW("custom", NONE, false, false, false, false,                                            \
	    "its quantizers are functions of Python, for GPUs of compute capability 10.0 "         \
	    "(Blackwell)")

/* Word, and the types of inputs, weights and outputs' gradients. */
#define MFT_EIGHT_FORMATS(ROW)                                                                     \
	ROW("e4m3", E4M3, E4M3, E4M3)                                                              \
	ROW("hybrid", E4M3, E4M3, E5M2)

#endif
