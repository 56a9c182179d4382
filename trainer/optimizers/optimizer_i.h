/* For trainer/optimizers alone: the kinds, and what their files share. */
#ifndef MFT_TRAINER_OPTIMIZERS_OPTIMIZER_I_H
#define MFT_TRAINER_OPTIMIZERS_OPTIMIZER_I_H

#include "formats/optim/rules/optimizers.h"
#include "trainer/config/dests.h"
#include "trainer/optimizers/optimizer.h"

/* A file of this folder for each line of MFS_OPTIMIZERS. */
#define DECLARE(name, states) extern const struct mft_optimizer_kind mft_##name;
MFS_OPTIMIZERS(DECLARE)
#undef DECLARE

/* ---- pairs of a parameter group ---- */

static inline void mft_group_real(struct mfs_pickle_writer *w, const char *name, double value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_float(w, value);
}

static inline void mft_group_flag(struct mfs_pickle_writer *w, const char *name, bool value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_bool(w, value);
}

static inline void mft_group_none(struct mfs_pickle_writer *w, const char *name)
{
	mfs_pickle_name(w, name);
	mfs_pickle_none(w);
}

#endif
