#include "formats/model/families/words.h"

#include <string.h>

#include "formats/base/nearest.h"
#include "formats/base/str.h"

const struct mfs_word mfs_word_values[] = {
	{"architectures", MFS_VALUE_ARCHITECTURES},
	{"model_type", MFS_VALUE_MODEL_TYPE},
	{"dtype", MFS_VALUE_DTYPE},
	{"vocab_size", MFS_VALUE_VOCAB},
	{"bos", MFS_VALUE_BOS},
	{"eos", MFS_VALUE_EOS},
	{"pad", MFS_VALUE_PAD},
	{"rope_scaling", MFS_VALUE_ROPE_SCALING},
	{"rope_parameters", MFS_VALUE_ROPE_PARAMETERS},
	{"layer_types", MFS_VALUE_LAYER_TYPES},
	{"linear_layer_types", MFS_VALUE_LINEAR_LAYER_TYPES},
	{"full_attention_interval", MFS_VALUE_FULL_ATTENTION_INTERVAL},
	{"hybrid_pattern", MFS_VALUE_HYBRID_PATTERN},
	{"shared_experts", MFS_VALUE_SHARED_EXPERTS},
	{"routed_scale", MFS_VALUE_ROUTED_SCALE},
	{"expert_groups", MFS_VALUE_EXPERT_GROUPS},
	{"group_topk", MFS_VALUE_GROUP_TOPK},
	{"gelu_tanh", MFS_VALUE_GELU_TANH},
	{"legacy_gelu", MFS_VALUE_LEGACY_GELU},
	{"query_pre_attn_scalar", MFS_VALUE_QUERY_PRE_ATTN},
	{"window_left", MFS_VALUE_WINDOW_LEFT},
	{"alternating_layer_types", MFS_VALUE_ALTERNATING},
	{"window_interval", MFS_VALUE_WINDOW_INTERVAL},
	{"rotary_dim", MFS_VALUE_ROTARY_DIM},
	{"norm_topk", MFS_VALUE_NORM_TOPK},
	{"dense_layers", MFS_VALUE_DENSE_LAYERS},
	{"mlp_layer_types", MFS_VALUE_MLP_LAYER_TYPES},
	{0},
};

const struct mfs_word *mfs_word_find(const struct mfs_word *table, const char *word)
{
	for (; table->word; table++)
		if (!strcmp(table->word, word))
			return table;
	return NULL;
}

/* ---- features ---- */

static const struct {
	const char *word, *text;
} features[] = {
#define FEATURE(name, word, text) {word, text},
	MFS_FEATURES(FEATURE)
#undef FEATURE
};

_Static_assert(MFS_FEATURE_COUNT <= 8 * sizeof(mfs_features), "a set has a bit for each");

const char *mfs_feature_word(enum mfs_feature feature)
{
	return features[feature].word;
}

const char *mfs_feature_text(enum mfs_feature feature)
{
	return features[feature].text;
}

static int no_feature(const char *word, struct mfs_error *err)
{
	struct mfs_nearest near = {.word = word};
	char hint[MFS_NEAREST_HINT];

	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		mfs_nearest_try(&near, features[i].word);
	mfs_nearest_hint(&near, "", hint);
	return mfs_fail(err, -EINVAL, "'%.60s' is no feature%s", word, hint);
}

static int find_feature(const char *word, mfs_features *ret, struct mfs_error *err)
{
	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++)
		if (!strcmp(features[i].word, word)) {
			*ret |= (mfs_features)1 << i;
			return 0;
		}
	return no_feature(word, err);
}

/* ---- a value as words ---- */

/* The end of the word that begins at text; NULL: a quote does not end. */
static const char *end_of(const char *text)
{
	if (*text == ',')
		return text + 1;
	if (*text != '"')
		return text + strcspn(text, " \t\r,");
	for (text++; *text && *text != '"'; text++)
		if (*text == '\\' && text[1])
			text++;
	return *text ? text + 1 : NULL;
}

int mfs_words_split(const char *value, struct mfs_arena *arena, struct mfs_words *ret,
		    struct mfs_error *err)
{
	size_t count = 0;

	*ret = (struct mfs_words){.next = 0};
	for (;;) {
		const char *from = value + strspn(value, " \t\r");

		if (!*from)
			return 0;
		value = end_of(from);
		if (!value)
			return mfs_fail(err, -EINVAL, "a \" without its end: %.60s", from);
		if (count == MFS_WORDS_MAX)
			return mfs_fail(err, -EINVAL, "more than %d words", MFS_WORDS_MAX);
		ret->at[count] = mfs_arena_strndup(arena, from, (size_t)(value - from));
		if (!ret->at[count++])
			return mfs_fail_nomem(err);
	}
}

bool mfs_words_take(struct mfs_words *w, const char *word)
{
	const bool found = mfs_str_is(w->at[w->next], word);

	w->next += found;
	return found;
}

int mfs_words_features(struct mfs_words *w, const char *separator, mfs_features *ret,
		       struct mfs_error *err)
{
	int rc = 0;

	do {
		if (!w->at[w->next])
			return mfs_fail(err, -EINVAL, "a feature is missing at the end");
		rc = find_feature(w->at[w->next++], ret, err);
	} while (!rc && mfs_words_take(w, separator));
	return rc;
}

int mfs_words_conditions(struct mfs_words *w, mfs_features *ret_when, mfs_features *ret_unless,
			 struct mfs_error *err)
{
	int rc = 0;

	mfs_words_take(w, ",");
	if (mfs_words_take(w, "if"))
		rc = mfs_words_features(w, "or", ret_when, err);
	mfs_words_take(w, ",");
	if (!rc && mfs_words_take(w, "unless"))
		rc = mfs_words_features(w, "or", ret_unless, err);
	if (!rc && w->at[w->next])
		rc = mfs_fail(err, -EINVAL, "'%.60s' is not expected here", w->at[w->next]);
	return rc;
}
