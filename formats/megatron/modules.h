/* Private to formats/megatron: the modules of a GPTModel, as data. */
#ifndef MFS_MEGATRON_MODULES_H
#define MFS_MEGATRON_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/ckpt/names.h"
#include "formats/megatron/rank.h"

enum mfs_module_condition {
	MFS_WHEN_ALWAYS,
	MFS_WHEN_HYBRID, /* models whose layers are one sublayer each */
	MFS_WHEN_PAIRED, /* others: attention and an MLP */
	MFS_WHEN_MAMBA,
	MFS_WHEN_CONV_MODULE, /* its convolution is a module (until core 0.18) */
	MFS_WHEN_CONV_PARAMS, /* or parameters of the mixer */
	MFS_WHEN_MLP,	      /* an MLP, or experts: one of the next two */
	MFS_WHEN_DENSE,	      /* without experts */
	MFS_WHEN_MOE,
	MFS_WHEN_ATTENTION,
	MFS_WHEN_MLA,	 /* multi-latent attention */
	MFS_WHEN_GQA,	 /* any other attention */
	MFS_WHEN_FULL,	 /* one of these two */
	MFS_WHEN_LINEAR, /* linear attention, in place of the other */
};

/* layer: of the decoder, whose kind it is of; -1: it is in no layer. */
bool mfs_module_applies(const struct mfs_megatron_args *a, enum mfs_module_condition when,
			int64_t layer);

/*
 * One entry of a state dict. It exists if the checkpoint has the tensor and the condition holds; an
 * _extra_state exists if its owner does. Tables end with a row without a name.
 */
struct mfs_module_row {
	const char *name;      /* in a layer: without the prefix; {e}: the expert's number */
	const char *canonical; /* ckpt.h, without the prefix; for an _extra_state its owner's */
	enum mfs_module_condition when;
	/* not 0: rows of the same number are repeated together for each expert */
	uint8_t experts;
	bool extra, buffer;
};

extern const struct mfs_module_row mfs_modules_local[], mfs_modules_te[], mfs_modules_te_grouped[];
extern const struct mfs_module_row mfs_modules_before[], mfs_modules_after[], mfs_modules_output[];
extern const struct mfs_module_row mfs_modules_mtp_before[], mfs_modules_mtp_after[];

#endif
