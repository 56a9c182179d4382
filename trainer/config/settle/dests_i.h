/*
 * The flags as names in C, of the tables flags_*.c: a name that no row has does not compile. For
 * the files of this folder alone.
 */
#ifndef MFT_TRAINER_CONFIG_DESTS_I_H
#define MFT_TRAINER_CONFIG_DESTS_I_H

enum dest {
	NO_DEST,
#define DEST(name, dest) name,
#include "flag_dests.h" /* made of the tables: Makefile */
#undef DEST
};

/* The dest in the Namespace: "num_layers" of NUM_LAYERS; NULL of NO_DEST. */
const char *mft_settle_name(enum dest dest);

static inline const char *name_of(enum dest dest)
{
	return mft_settle_name(dest);
}

#endif
