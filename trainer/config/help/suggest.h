/* Which flag somebody means who gives a name that is none's. */
#ifndef MFT_TRAINER_CONFIG_HELP_SUGGEST_H
#define MFT_TRAINER_CONFIG_HELP_SUGGEST_H

#include "trainer/config/flag.h"

/* The dest of a flag; NULL: nobody knows. By meaning, as other programs call it; by its words in
 * another order; by its letters, where each word is nearly a word of the flag's. word: with hyphens
 * or underscores between its parts, and maybe with hyphens before. */
const char *mft_flag_suggest(const char *word);

#endif
