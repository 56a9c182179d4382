/*
 * The flags as names in C, of the tables flags_*.c: a name that no row has does not compile. For
 * the files of this folder alone.
 */
#ifndef MFS_TRAINER_CONFIG_DESTS_I_H
#define MFS_TRAINER_CONFIG_DESTS_I_H

enum dest {
	NO_DEST,
#define DEST(name, dest) name,
#include "flag_dests.h" /* made of the tables: Makefile */
#undef DEST
};

/* The dest in the Namespace: "num_layers" of NUM_LAYERS; NULL of NO_DEST. */
const char *mfs_settle_name(enum dest dest);

static inline const char *name_of(enum dest dest)
{
	return mfs_settle_name(dest);
}

#endif
