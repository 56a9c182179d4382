/* For trainer/optimizers alone: the kinds, and what their files share. */
#ifndef MFS_TRAINER_OPTIMIZERS_OPTIMIZER_I_H
#define MFS_TRAINER_OPTIMIZERS_OPTIMIZER_I_H

#include "trainer/optimizers/optimizer.h"

extern const struct mfs_optimizer_kind mfs_adam, mfs_sgd, mfs_muon;

/* ---- pairs of a parameter group ---- */

static inline void mfs_group_real(struct mfs_pickle_writer *w, const char *name, double value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_float(w, value);
}

static inline void mfs_group_flag(struct mfs_pickle_writer *w, const char *name, bool value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_bool(w, value);
}

static inline void mfs_group_none(struct mfs_pickle_writer *w, const char *name)
{
	mfs_pickle_name(w, name);
	mfs_pickle_none(w);
}

#endif
