#include "trainer/ckpt/progress.h"

#include <stddef.h>

const char *const mfs_lr_decay_names[] = {
	[MFS_LR_CONSTANT] = "constant", [MFS_LR_LINEAR] = "linear",
	[MFS_LR_COSINE] = "cosine",	[MFS_LR_INVERSE_SQUARE_ROOT] = "inverse-square-root",
	[MFS_LR_WSD] = "WSD",		NULL,
};

const char *const mfs_wd_incr_names[] = {
	[MFS_WD_CONSTANT] = "constant",
	[MFS_WD_LINEAR] = "linear",
	[MFS_WD_COSINE] = "cosine",
	NULL,
};
