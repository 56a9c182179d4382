/*
 * The common state of a plain DCP save (torch_dcp, fsdp_dtensor), put together again.
 *
 * torch flattens the state: each value that is no tensor is an item of its own, and keys are joined
 * by dots. Of the optimizer's state there are three kinds (docs/formats/dcp.md). Sources:
 * torch/distributed/checkpoint/_traverse.py; megatron/core/optimizer/optimizer.py: state_dict;
 * optimizer/distrib_optimizer.py: sharded_param_state_fsdp_dtensor.
 */
#ifndef MFS_CKPT_READ_PLAIN_H
#define MFS_CKPT_READ_PLAIN_H

#include "formats/ckpt/read/dist.h"

enum mfs_plain_optim_kind {
	MFS_PLAIN_NONE,
	MFS_PLAIN_FLOAT16, /* optimizer.optimizer.state.NUMBER. and fp32_from_fp16_params */
	MFS_PLAIN_FP32,	   /* optimizer.state.NUMBER. */
	/* optimizer.state.NAME. of Megatron-FSDP, whose model tensors are the main parameters. */
	MFS_PLAIN_NAMED,
	MFS_PLAIN_UNREAD, /* another form */
};

enum mfs_plain_optim_kind mfs_plain_optimizer(const struct mfs_dist_reader *r);

#define MFS_PLAIN_SCALE "optimizer.grad_scaler.scale"

/* The item of a gradient scaler's scale, which is a tensor; NULL: there is none that can be
 * read. */
const struct mfs_dcp_item *mfs_plain_scale(const struct mfs_dist_reader *r);

/* "optimizer.optimizer." or "optimizer.": what stands before state and param_groups. */
const char *mfs_plain_prefix(enum mfs_plain_optim_kind kind);

/*
 * Makes the state of f, the archive of mfs_plain_scale(), or of any of the items where there is
 * none: f->doc is then another document, and *state its root, a dict with 'args', 'iteration',
 * 'opt_param_scheduler' and 'optimizer' with its groups, its step and its gradient scaler. kind:
 * not NONE or UNREAD. -ENOTSUP: an item holds a tensor; -EINVAL: see
 * mfs_torch_file_open() and mfs_model_config_write().
 */
int mfs_plain_make_state(struct mfs_dist_reader *r, enum mfs_plain_optim_kind kind,
			 struct mfs_torch_file *f, mfs_value *state);

/* ---- for makers of such saves (plain_args.c) ---- */

extern const struct mfs_ckpt_format mfs_plain_format;

/* Reads the arguments, and the state where it is asked for, from items. *ret_found: there are
 * such. */
int mfs_plain_read_items(struct mfs_dist_reader *r, bool *ret_found);
/* Fails unless the checkpoint holds tensors of a model. -ENODATA: it holds none. */
int mfs_plain_check(struct mfs_dist_reader *r);
int mfs_plain_complete_state(struct mfs_dist_reader *r, struct mfs_torch_file *f, const char *file,
			     mfs_value *state);
bool mfs_plain_reads_optimizer(const struct mfs_dist_reader *r);
const char *mfs_plain_model_key(const char *key);

#endif
