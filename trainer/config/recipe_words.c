#include "trainer/config/recipe_words.h"

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/recipe_list.h"

static const struct row {
	const char *word, *scaling, *refusal;
} rows[] = {
#define ROW(word, scaling, delayed, of_output, of_input, of_weight, refusal)                       \
	{word, #scaling, refusal},
	MFT_RECIPES(ROW)
#undef ROW
};

static const struct row *row_of(const char *word)
{
	static const struct row none = {.scaling = "NONE"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++)
		if (mfs_str_is(word, rows[i].word))
			return &rows[i];
	return &none;
}

bool mft_has_eight_bits(const struct mft_train_config *config)
{
	return config->fp8 && config->params_dtype == MFS_BF16 &&
	       !mfs_str_is(row_of(config->fp8_recipe)->scaling, "NONE");
}

const char *mft_recipe_refusal(const char *word)
{
	return row_of(word)->refusal;
}

bool mft_layer_has_eight_bits(const struct mft_train_config *config, int64_t layer)
{
	const int64_t layers = config->model.num_layers;
	const bool first = layer < config->num_layers_at_start_in_bf16;
	const bool last = layer < layers && layer >= layers - config->num_layers_at_end_in_bf16;

	if (!mft_has_eight_bits(config))
		return false;
	return !config->first_last_layers_bf16 || (!first && !last);
}
