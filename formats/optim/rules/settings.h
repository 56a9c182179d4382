/* The part of a checkpoint's optimizer that is no tensor: kind, parameter groups, step, grad
 * scaler. */
#ifndef MFS_OPTIM_RULES_SETTINGS_H
#define MFS_OPTIM_RULES_SETTINGS_H

#include "formats/ckpt/ckpt.h"
#include "formats/optim/rules/optim_chain.h"

/* The kind of the source's optimizer. */
enum mfs_optim_kind {
	MFS_OPTIM_NONE,
	MFS_OPTIM_FLOAT16, /* Float16OptimizerWithFloat16Params, or FP32Optimizer */
	MFS_OPTIM_DISTRIBUTED,
	/* LayerWiseDistributedOptimizer with buffers: Muon's matrices as of FLOAT16, and others as
	 * of DISTRIBUTED */
	MFS_OPTIM_LAYER_WISE,
};

/* True if the i-th of a chain is a DistributedOptimizer. */
static inline bool mfs_optim_is_distributed(enum mfs_optim_kind kind, uint32_t i)
{
	return kind == MFS_OPTIM_DISTRIBUTED || (kind == MFS_OPTIM_LAYER_WISE && i > 0);
}

struct mfs_optim_info {
	enum mfs_optim_kind kind;
	bool has_main; /* it has fp32 copies of parameters; a run in fp32 has none */
	bool has_step; /* Adam's step is known: step */
	double step;
	uint32_t optimizers; /* chained; 1 to MFS_OPTIM_CHAIN */
	/* Parameter groups of each optimizer as the source saved them, in groups_doc: a list of
	 * dicts, which may have 'params'. 0: the source has none. */
	const struct mfs_pickle *groups_doc[MFS_OPTIM_CHAIN];
	mfs_value groups[MFS_OPTIM_CHAIN];
	/* The grad scaler's state in scaler_doc, the pickle of scaler_file; 0: none. Its tensors
	 * are records of scaler_file. */
	const struct mfs_torch_file *scaler_file;
	const struct mfs_pickle *scaler_doc;
	mfs_value scaler;
};

/* The info of any checkpoint. kind is NONE unless mfs_optim_open() opened it and found an
 * optimizer. */
const struct mfs_optim_info *mfs_optim_info(const struct mfs_ckpt *ckpt);
/* True if the parameter groups have 'step'. torch's own optimizers have it in their state. */
bool mfs_optim_groups_have_step(const struct mfs_optim_info *info);

#endif
