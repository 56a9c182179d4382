/* The words of a family's file (docs/FAMILIES.md), and what they mean. */
#ifndef MFS_MODEL_FAMILIES_WORDS_H
#define MFS_MODEL_FAMILIES_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/model/families/family.h"

/* A table of these ends with a row without a word. */
struct mfs_word {
	const char *word;
	size_t means;
};

extern const struct mfs_word mfs_word_values[]; /* enum mfs_config_value */

/* The row of a table that has this word. NULL: none has it. */
const struct mfs_word *mfs_word_find(const struct mfs_word *table, const char *word);

/* A value as words: texts in quotes stay whole, a comma is a word of its own. */
#define MFS_WORDS_MAX 96
struct mfs_words {
	const char *at[MFS_WORDS_MAX + 1]; /* ended by NULL */
	size_t next;			   /* the one that is read now */
};

/* Splits a value into words, which lie in arena. -EINVAL: there are more than MFS_WORDS_MAX, or a
 * quote does not end. */
int mfs_words_split(const char *value, struct mfs_arena *arena, struct mfs_words *ret,
		    struct mfs_error *err);

/* The next word is taken if it is this one. */
bool mfs_words_take(struct mfs_words *w, const char *word);

/* Reads FEATURE {SEPARATOR FEATURE} into *ret. -EINVAL: there is none, or it is unknown. */
int mfs_words_features(struct mfs_words *w, const char *separator, mfs_features *ret,
		       struct mfs_error *err);
/* Reads ["," "if" F {"or" F}] ["," "unless" F {"or" F}], and the end. */
int mfs_words_conditions(struct mfs_words *w, mfs_features *ret_when, mfs_features *ret_unless,
			 struct mfs_error *err);

#endif
