#include "trainer/model/base/recipe.h"

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/recipe_words.h"
#include "trainer/config/recipe_list.h"

static const struct {
	const char *word;
	enum mfk_scaling scaling;
	bool delayed, fast[MFT_PRODUCTS];
} recipes[] = {
#define ROW(word, scaling, delayed, of_output, of_input, of_weight, refusal)                       \
	{word, MFK_SCALING_##scaling, delayed, {of_output, of_input, of_weight}},
	MFT_RECIPES(ROW)
#undef ROW
};

static const struct {
	const char *word;
	enum mfk_dtype type[MFT_FACTORS];
} formats[] = {
#define ROW(word, x, weight, dy) {word, {MFK_##x, MFK_##weight, MFK_##dy}},
	MFT_EIGHT_FORMATS(ROW)
#undef ROW
};

/* The words are choices of flags. */
bool mft_recipe_find(const struct mft_train_config *config, struct mft_recipe *ret)
{
	if (!mft_has_eight_bits(config))
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(recipes); i++)
		for (int k = 0; k < MFT_PRODUCTS; k++)
			if (mfs_str_is(config->fp8_recipe, recipes[i].word)) {
				ret->scaling = recipes[i].scaling;
				ret->delayed = recipes[i].delayed;
				ret->fast[k] = recipes[i].fast[k];
				ret->eight[k] = k != MFT_WEIGHT_GRADIENT || config->fp8_wgrad;
			}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(formats); i++)
		for (int k = 0; k < MFT_FACTORS; k++)
			if (mfs_str_is(config->fp8, formats[i].word))
				ret->type[k] = formats[i].type[k];
	return true;
}

bool mft_recipe_is_for(const struct mft_train_config *config, const char *prefix, int64_t layer)
{
	static const char *const none[] = {"embedding.word_embeddings", "output_layer",
					   "decoder.layers.mlp.router"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(none); i++)
		if (mfs_str_is(prefix, none[i]))
			return false;
	/* It is of no layer: what is for layers is not for it (multi_token_prediction.py). */
	if (mfs_str_is(prefix, "mtp.layers.eh_proj"))
		return mft_has_eight_bits(config);
	return mft_layer_has_eight_bits(config, layer);
}
