/* Private to trainer/ckpt/load*.c: a checkpoint that is being loaded. */
#ifndef MFT_TRAINER_CKPT_LOAD_I_H
#define MFT_TRAINER_CKPT_LOAD_I_H

#include <limits.h>

#include "formats/ckpt/ckpt.h"
#include "trainer/ckpt/load.h"

struct mft_load {
	struct mfs_ckpt *ckpt;
	int64_t iteration; /* MFS_RELEASE: none, as of an HF directory */
	bool optimizer;	   /* its states are wanted, and there */
	bool finetune;	   /* --finetune, or the pretrained checkpoint stands in for --load */
	char what[PATH_MAX + 128];
};

/* The weights, and with l->optimizer the optimizer's states, into the device's memory
 * (load_tensors.c). */
int mft_load_tensors(struct mft_load *l, struct mft_params *params,
		     const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, struct mfs_error *err);

/* Where the run stood, from the common state (load_progress.c). */
int mft_load_progress(const struct mft_load *l, const struct mft_train_config *config,
		      struct mft_progress *ret, struct mfs_error *err);

#endif
