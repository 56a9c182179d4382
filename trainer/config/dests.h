/*
 * The flags as names in C, made of the tables flags_*.c and of loss_list.h: a name that no row has
 * does not compile.
 * Names have no prefix, so only .c files that ask for flags include this, or headers of their
 * folder alone.
 */
#ifndef MFT_TRAINER_CONFIG_DESTS_H
#define MFT_TRAINER_CONFIG_DESTS_H

enum mft_dest {
	DEST_NONE,
#define DEST(name, dest) name,
#include "flag_dests.h" /* made of the tables: Makefile */
#undef DEST
};

/* A few flags; DEST_NONE ends them where they are fewer. Headers that name no flag declare the
 * struct alone. */
#define MFT_DESTS 8
struct mft_dests {
	enum mft_dest list[MFT_DESTS];
};

/* The dest in the Namespace: "num_layers" of NUM_LAYERS; NULL of DEST_NONE. */
const char *mft_dest_name(enum mft_dest dest);

static inline const char *name_of(enum mft_dest dest)
{
	return mft_dest_name(dest);
}

#endif
