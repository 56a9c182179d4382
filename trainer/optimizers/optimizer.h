/*
 * The kinds of optimizers: what each keeps of a parameter, how it updates one, and what of it is
 * saved. A new kind is a file next to adam.c that defines mft_NAME, its line in MFS_OPTIMIZERS
 * (formats/optim/rules/optimizers.h), and maybe an operation of the kernels.
 *
 * Sources: megatron/core/optimizer/__init__.py: _get_megatron_optimizer_based_on_param_groups;
 * torch/optim.
 */
#ifndef MFT_TRAINER_OPTIMIZERS_OPTIMIZER_H
#define MFT_TRAINER_OPTIMIZERS_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/torch/pickle_write.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/config/value.h"
#include "trainer/parallel/parallel.h"

/* What is kept of each element: the main parameter, and after it what a kind keeps, in its
 * order. */
enum { MFT_SLOT_MAIN, MFT_SLOT_KEPT, MFT_SLOTS = MFT_SLOT_KEPT + 2 };

struct mft_kept {
	enum mfs_state state; /* its name in files */
	/* MFS_DTYPE_NONE: these arguments keep none. */
	enum mfs_dtype (*type)(const struct mft_train_config *c);
};

/* Neighbours of the flat buffers that are updated alike. */
struct mft_update_piece {
	int64_t count;
	enum mfk_dtype weight_type, grad_type, slot_type[MFT_SLOTS];
	void *weight, *slot[MFT_SLOTS]; /* NULL: nothing is kept there */
	const void *grad;
	uint64_t number; /* of the update, from 1 */
	float lr, wd, grad_scale;
	bool mup; /* --use-mup gives it a rate of its own */
};

/* A matrix that is updated as a whole. */
struct mft_matrix {
	int64_t rows, cols;   /* of what the process has */
	enum mft_group among; /* who has the rest of it */
	int axis;	      /* that they divide; -1: the process has all of it */
	bool is_qkv;	      /* rows of queries, keys and values, group by group */
};

/* What a step by matrices needs in addition. */
struct mft_matrix_place {
	const struct mfk_backend *backend;
	struct mfk_ctx *ctx;
	const struct mft_train_config *config;
	const struct mft_parallel *parallel;
	void *scratch; /* as many bytes as were asked for */
};

struct mft_optimizer_kind {
	const char *name;				 /* of --optimizer */
	struct mft_kept kept[MFT_SLOTS - MFT_SLOT_KEPT]; /* type NULL: no more */
	bool counts_updates;				 /* its saves say how many there were */
	/* --use-mup gives a rate of their own to embeddings and vectors, and not to matrices */
	bool mup_of_vectors;
	/* Flags that it is not trained with (trainer/config/dests.h); NULL: none. */
	const struct mft_dests *refuses;
	/* NULL, or what else the arguments may not be, and what follows from them. */
	int (*settle)(struct mft_flag_values *v, struct mfs_error *err);
	/* NULL: it updates all parameters. Else the matrices alone that this is true of, each as a
	 * whole, and the others are updated by another kind. name: formats/ckpt/names.h. */
	bool (*takes)(const char *name, unsigned ndim);
	const struct mft_optimizer_kind *others;
	uint64_t (*scratch)(const struct mft_train_config *c, const struct mft_parallel *parallel,
			    const struct mft_matrix *m); /* bytes, on the device */
	void (*step_matrix)(const struct mft_matrix_place *at, const struct mft_update_piece *p,
			    const struct mft_matrix *m);
	void (*step)(const struct mfk_ops *ops, struct mfk_ctx *ctx,
		     const struct mft_train_config *c, const struct mft_update_piece *p);
	/* Adds the pairs of a group of parameters that are its own. mup: of those of --use-mup. */
	void (*save_group)(struct mfs_pickle_writer *w, const struct mft_train_config *c, bool mup);
};

/* By its name, which must be one; "dist_" before it makes no difference. NULL is Adam's. */
const struct mft_optimizer_kind *mft_optimizer_kind(const char *name);

/* The kind that updates a parameter: this one, or that of others. */
const struct mft_optimizer_kind *mft_optimizer_of(const struct mft_optimizer_kind *kind,
						  const char *name, unsigned ndim);
/* The slot of a state, of the kind or of others; MFT_SLOTS: there is no such state. */
unsigned mft_optimizer_slot(const struct mft_optimizer_kind *kind, enum mfs_state state);
/* The type of what a slot keeps; MFS_DTYPE_NONE: nothing. */
enum mfs_dtype mft_optimizer_type(const struct mft_optimizer_kind *kind,
				  const struct mft_train_config *c, unsigned slot);
/* True if the kind itself keeps something in a slot. */
bool mft_optimizer_keeps(const struct mft_optimizer_kind *kind, unsigned slot);
/* True if saves of its runs say how many updates there were: it counts them, or others do. */
bool mft_optimizer_counts(const struct mft_optimizer_kind *kind);
/* True if a run of several optimizers divides the parameters of each among the processes of data,
 * whole (layer_wise_optimizer.py): they are chained otherwise then. */
bool mft_optimizer_is_layer_wise(const struct mft_train_config *c);

/* The factor of the learning rate where --use-mup changes it. optimizer/__init__.py:
 * get_mup_config_overrides: 1 / width for the rate of matrices, or width for that of vectors. */
double mft_optimizer_mup(const struct mft_train_config *c);

#endif
