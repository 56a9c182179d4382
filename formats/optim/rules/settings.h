/* What of a checkpoint's optimizer is no tensor: its kind, parameter groups, step and grad
 * scaler. */
#ifndef MFS_OPTIM_RULES_SETTINGS_H
#define MFS_OPTIM_RULES_SETTINGS_H

#include "formats/ckpt/ckpt.h"

/* How the source's optimizer was kept. */
enum mfs_optim_kind {
	MFS_OPTIM_NONE,
	MFS_OPTIM_FLOAT16, /* Float16OptimizerWithFloat16Params, or FP32Optimizer */
	MFS_OPTIM_DISTRIBUTED,
};

struct mfs_optim_info {
	enum mfs_optim_kind kind;
	bool has_main; /* fp32 parameters: not in a run in fp32 */
	bool has_step; /* and step: of Adam */
	double step;
	uint32_t optimizers; /* chained; 1 or 2 */
	/* Parameter groups of each optimizer, as the source saved them (a list of dicts, 'params'
	 * may be in them), in doc; 0: the source has none of them. */
	const struct mfs_pickle *groups_doc[2];
	mfs_value groups[2];
	/* The grad scaler's state, likewise; 0: none. Its tensors are records of scaler_file, whose
	 * pickle scaler_doc is. */
	const struct mfs_torch_file *scaler_file;
	const struct mfs_pickle *scaler_doc;
	mfs_value scaler;
};

/* Of any checkpoint; kind NONE unless mfs_optim_open() opened it and found an optimizer. */
const struct mfs_optim_info *mfs_optim_info(const struct mfs_ckpt *ckpt);
/* True if the step is a setting of its parameter groups; torch's own optimizers have it
 * elsewhere. */
bool mfs_optim_groups_have_step(const struct mfs_optim_info *info);

#endif
