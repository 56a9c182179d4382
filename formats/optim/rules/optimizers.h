/*
 * The optimizers, and which states the saves of their runs have in addition to main parameters: the
 * one list of them. What the trainer computes for each that it has is in trainer/optimizers.
 */
#ifndef MFS_OPTIM_RULES_OPTIMIZERS_H
#define MFS_OPTIM_RULES_OPTIMIZERS_H

#include <stdbool.h>

#include "formats/ckpt/ckpt.h"

#define MFS_OPTIM_STATE(state) (1u << MFS_STATE_##state)
#define MFS_OPTIM_ADAM	       (MFS_OPTIM_STATE(EXP_AVG) | MFS_OPTIM_STATE(EXP_AVG_SQ))

/* X(NAME, STATES): NAME is the word of --optimizer. The first one is taken where none fits. Without
 * momentum SGD has no state; what Muon does not take is Adam's. */
#define MFS_OPTIMIZERS(X)                                                                          \
	X(adam, MFS_OPTIM_ADAM)                                                                    \
	X(sgd, MFS_OPTIM_STATE(MOMENTUM))                                                          \
	X(muon, MFS_OPTIM_STATE(MOMENTUM) | MFS_OPTIM_ADAM)

/* Those of which saves are read alone, in addition. Lion leaves to Adam what Muon does, but for
 * core 0.17, where it has all (emerging_optimizers.py: _default_param_overrides_factory). */
#define MFS_OPTIMIZERS_READ(X) X(lion, MFS_OPTIM_ADAM)

struct mfs_optimizer {
	const char *name;
	unsigned states; /* bit s: state s of enum mfs_state */
};

/* The optimizer whose states a checkpoint has; if its arguments name SGD, that. */
const struct mfs_optimizer *mfs_optimizer_of(const struct mfs_ckpt *ckpt);
/* The states that a run keeps of a parameter in addition to its main one. Bits as in
 * mfs_optimizer. */
struct mfs_kept_states {
	unsigned matrices; /* of what Muon takes, or Lion; 0: there is one optimizer */
	unsigned others;
};

struct mfs_kept_states mfs_kept_states(const struct mfs_ckpt *ckpt);
/* Where Lion has all parameters. */
extern const struct mfs_kept_states mfs_kept_by_lion;

#endif
