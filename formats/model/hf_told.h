/* config.json of a HuggingFace model, as what says which model a save without arguments is
 * (ckpt/told.h). */
#ifndef MFS_MODEL_HF_TOLD_H
#define MFS_MODEL_HF_TOLD_H

#include "formats/ckpt/told.h"

/* ref, arch: as in struct mfs_ckpt_told; they must outlive the call that opens the checkpoint. */
struct mfs_ckpt_told mfs_hf_told(const char *ref, const char *arch);

#endif
