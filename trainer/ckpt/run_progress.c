#include "trainer/ckpt/run_progress.h"

#include <stddef.h>

const char *const mft_lr_decay_names[] = {
	[MFT_LR_CONSTANT] = "constant", [MFT_LR_LINEAR] = "linear",
	[MFT_LR_COSINE] = "cosine",	[MFT_LR_INVERSE_SQUARE_ROOT] = "inverse-square-root",
	[MFT_LR_WSD] = "WSD",		NULL,
};

const char *const mft_wd_incr_names[] = {
	[MFT_WD_CONSTANT] = "constant",
	[MFT_WD_LINEAR] = "linear",
	[MFT_WD_COSINE] = "cosine",
	NULL,
};
