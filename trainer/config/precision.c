#include "trainer/config/precision.h"

#include <stddef.h>

#include "formats/base/array.h"
#include "formats/base/str.h"

static const struct precision {
	const char *word;
	enum mfs_dtype type;
	bool is_main, needs_scale;
} precisions[] = {
	{.word = "fp32", .type = MFS_F32, .is_main = true},
	{.word = "bf16", .type = MFS_BF16},
	{.word = "fp16", .type = MFS_F16, .needs_scale = true},
	{.word = "fp8", .type = MFS_U8},
};

static const struct precision *precision_of(enum mfs_dtype type)
{
	static const struct precision none = {0};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(precisions); i++)
		if (precisions[i].type == type)
			return &precisions[i];
	return &none;
}

const char *mft_precision_word(enum mfs_dtype type)
{
	return precision_of(type)->word;
}

enum mfs_dtype mft_precision_type(const char *word)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(precisions); i++)
		if (mfs_str_is(word, precisions[i].word))
			return precisions[i].type;
	return MFS_DTYPE_NONE;
}

bool mft_precision_is_main(enum mfs_dtype type)
{
	return precision_of(type)->is_main;
}

bool mft_precision_needs_scale(enum mfs_dtype type)
{
	return precision_of(type)->needs_scale;
}
