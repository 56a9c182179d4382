/* The adapter that -o adapter=DIR names: PEFT's or Megatron-Bridge's. */
#ifndef MFS_FS_SOURCE_ADAPTER_H
#define MFS_FS_SOURCE_ADAPTER_H

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_ckpt;

/* Attaches it to a checkpoint that was just opened (formats/ckpt/delta.h). Nothing is done if the
 * options name none. -ENODATA: the directory holds no adapter; and the errors of mfs_peft_attach()
 * and mfs_ckpt_attach_bridge(). */
int mfs_adapter_attach(struct mfs_ckpt *ckpt, const struct mfs_view_options *options,
		       struct mfs_error *err);

#endif
