/*
 * The precisions that flags name: fp32, bf16, fp16 and fp8, a row each in precision.c.
 *
 * Sources: megatron/training/arguments.py: validate_args, dtype_map;
 * megatron/core/optimizer/__init__.py: _get_megatron_optimizer_based_on_param_groups.
 */
#ifndef MFT_TRAINER_CONFIG_PRECISION_H
#define MFT_TRAINER_CONFIG_PRECISION_H

#include <stdbool.h>

#include "formats/base/tensor.h"

/* "bf16" of MFS_BF16; fp8 is MFS_U8, since scales give its bytes their values. NULL: no flag names
 * such a type. */
const char *mft_precision_word(enum mfs_dtype type);
/* MFS_DTYPE_NONE: it is none of the words. */
enum mfs_dtype mft_precision_type(const char *word);

/* True if weights of this type are their own main parameters, and no copy of them is updated
 * (optimizer.py: FP32Optimizer). */
bool mft_precision_is_main(enum mfs_dtype type);
/* True if gradients of this type need a loss scale, since small ones would be 0. */
bool mft_precision_needs_scale(enum mfs_dtype type);

#endif
