/*
 * The kinds of optimizers: what each keeps of a parameter, how it updates one, and what of it is
 * saved. A new kind is a file next to adam.c, its line in optimizer.c, and an operation of the
 * kernels.
 *
 * Sources: megatron/core/optimizer/__init__.py: _get_megatron_optimizer_based_on_param_groups;
 * torch/optim.
 */
#ifndef MFS_TRAINER_OPTIMIZERS_OPTIMIZER_H
#define MFS_TRAINER_OPTIMIZERS_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/torch/pickle_write.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/config/value.h"

/* What is kept of each element: the main parameter, and after it what a kind keeps, in its
 * order. */
enum { MFS_SLOT_MAIN, MFS_SLOT_KEPT, MFS_SLOTS = MFS_SLOT_KEPT + 2 };

struct mfs_kept {
	enum mfs_state state; /* its name in files */
	/* MFS_DTYPE_NONE: these arguments keep none. */
	enum mfs_dtype (*type)(const struct mfs_train_config *c);
};

/* Neighbours of the flat buffers that are updated alike. */
struct mfs_update_piece {
	int64_t count;
	enum mfk_dtype weight_type, grad_type, slot_type[MFS_SLOTS];
	void *weight, *slot[MFS_SLOTS]; /* NULL: nothing is kept there */
	const void *grad;
	uint64_t number; /* of the update, from 1 */
	float lr, wd, grad_scale;
	bool mup; /* --use-mup gives it a rate of its own */
};

struct mfs_optimizer_kind {
	const char *name;				 /* of --optimizer */
	struct mfs_kept kept[MFS_SLOTS - MFS_SLOT_KEPT]; /* type NULL: no more */
	bool counts_updates; /* its saves say how many there were, and are refused without */
	/* --use-mup gives a rate of their own to embeddings and vectors, and not to matrices */
	bool mup_of_vectors;
	/* Dests of flags that it is not trained with; NULL: the end of the list. */
	const char *const *refuses;
	/* NULL, or what else the arguments may not be. -EINVAL. */
	int (*check)(const struct mfs_flag_values *v, struct mfs_error *err);
	void (*step)(const struct mfk_ops *ops, struct mfk_ctx *ctx,
		     const struct mfs_train_config *c, const struct mfs_update_piece *p);
	/* Adds the pairs of a group of parameters that are its own. mup: of those of --use-mup. */
	void (*save_group)(struct mfs_pickle_writer *w, const struct mfs_train_config *c, bool mup);
};

/* By its name, which must be one; NULL is Adam's. */
const struct mfs_optimizer_kind *mfs_optimizer_kind(const char *name);

/* The slot of a state; MFS_SLOTS: the kind has no such state. */
unsigned mfs_optimizer_slot(const struct mfs_optimizer_kind *kind, enum mfs_state state);

/* The factor of the learning rate where --use-mup changes it. optimizer/__init__.py:
 * get_mup_config_overrides: 1 / width for the rate of matrices, or width for that of vectors. */
double mfs_optimizer_mup(const struct mfs_train_config *c);

#endif
