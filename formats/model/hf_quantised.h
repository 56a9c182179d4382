/*
 * Quantised weights of an HF directory. Two forms are read.
 *
 * That of GPT-OSS is MXFP4 (fp4.h): "x_blocks" and "x_scales" are a tensor "x" of the model,
 * where config.json has "quantization_config": {"quant_method": "mxfp4"}.
 *
 * The other is that of DeepSeek-V3, which Qwen 3 and others have too: matrices of float8_e4m3fn
 * ("x.weight") with a scale for each block ("x.weight_scale_inv", float32 or bfloat16,
 * [rows / block, columns / block] rounded up), where config.json has
 * "quantization_config": {"quant_method": "fp8", "weight_block_size": [rows, columns]}.
 */
#ifndef MFS_MODEL_HF_QUANTISED_H
#define MFS_MODEL_HF_QUANTISED_H

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/model/hf_tensors.h"

/* Notes the scales of the matrices that have them, and marks both. ckpt has the arguments of
 * config.json. -ENOTSUP: weights are quantised in another way; -EINVAL: scales do not fit their
 * matrix. */
int mfs_hf_settle_quantised(struct mfs_ckpt *ckpt, struct mfs_hf_tensors *tensors,
			    struct mfs_error *err);

#endif
