/*
 * Flags that are not Megatron's: those that pretrain_gpt.py had once, and those of programs that
 * were made of it. One table says of each what becomes of it here, and the parser, YAML and --help
 * go by it.
 *
 * What cannot change a result is taken, and a run says that it has no effect. What another flag
 * says is taken as that flag, and a run says so. All else is refused with what to do.
 */
#ifndef MFT_TRAINER_CONFIG_HELP_FOREIGN_H
#define MFT_TRAINER_CONFIG_HELP_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "trainer/config/value.h"

enum mft_foreign_use {
	MFT_FOREIGN_UNUSED,  /* it cannot change a result */
	MFT_FOREIGN_BECOMES, /* other flags say the same */
	MFT_FOREIGN_REFUSED,
};

struct mft_foreign {
	const char *name;   /* as it is spelt; "--x-*" is all that begin with "--x-" */
	const char *whose;  /* a program, or how long Megatron had it */
	char words;	    /* how many follow it: a digit, or '*' for all up to the next flag */
	const char *values; /* it is of these words alone, with '|' between; NULL: of any. A flag of
			       Megatron's is here with values that are not Megatron's */
	enum mft_foreign_use use;
	/* The flags that it becomes, with spaces between: '@' is its word, "@-1" the number before.
	 * A flag after '?' is set unless somebody has set it. */
	const char *becomes;
	const char *say; /* of what is refused: what to do */
};

extern const struct mft_foreign mft_foreign_table[];
extern const size_t mft_foreign_count;

/* The row of a flag that is spelt like the first len bytes of name, before this word (NULL: before
 * none); NULL: there is none. Hyphens and underscores are one. */
const struct mft_foreign *mft_foreign_find(const char *name, size_t len, const char *word);

/* Takes a flag with the words that follow it. spelling: as it was given; from: where it was given.
 * It does not replace a value from a later place. -EINVAL: other words are expected; -ENOTSUP: it
 * is refused. */
int mft_foreign_take(const struct mft_foreign *f, const char *spelling, const char *const *words,
		     size_t count, enum mft_flag_source from, struct mft_flag_values *v,
		     struct mfs_arena *arena, struct mfs_error *err);

#endif
