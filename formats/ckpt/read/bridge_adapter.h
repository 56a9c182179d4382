/*
 * Adapters that Megatron-Bridge saves (megatron/bridge/peft/lora.py, training/checkpointing.py:
 * apply_peft_adapter_filter_to_state_dict): a torch_dist checkpoint of its own, without the model.
 * A module with W = weight also has the matrices out = adapter.linear_out.weight and in =
 * adapter.linear_in.weight, in Megatron's coordinates. run_config.yaml has the scale (peft.alpha /
 * peft.dim).
 */
#ifndef MFS_CKPT_READ_BRIDGE_ADAPTER_H
#define MFS_CKPT_READ_BRIDGE_ADAPTER_H

#include "formats/ckpt/ckpt.h"

/*
 * Attaches the adapters of an iteration's directory (ckpt/delta.h). ckpt was just opened. -ENOTSUP:
 * they are of another kind, or of something that is not merged; -EINVAL: matrices do not fit the
 * model's; and the errors of mfs_ckpt_open().
 */
int mfs_ckpt_attach_bridge(struct mfs_ckpt *ckpt, const char *dir, struct mfs_error *err);

#endif
