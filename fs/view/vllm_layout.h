/* How many workers of vLLM or SGLang share a model, and whether they can. */
#ifndef MFS_FS_VIEW_VLLM_LAYOUT_H
#define MFS_FS_VIEW_VLLM_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_ckpt;

#define MFS_VLLM_PADDING 64 /* of the vocabulary: DEFAULT_VOCAB_PADDING_SIZE */

enum mfs_engine { MFS_ENGINE_VLLM, MFS_ENGINE_SGLANG };

/* tp workers share each tensor. With ep they share the experts, of which each is at one worker. */
struct mfs_vllm_layout {
	enum mfs_engine engine;
	uint32_t tp;
	bool ep;
};

/* Parses "tpN" or "tpN-epN", of ret->engine. -ENOENT: spec has another form; -EINVAL: the model
 * cannot be cut so. */
int mfs_vllm_layout_parse(const struct mfs_ckpt *ckpt, const char *spec,
			  struct mfs_vllm_layout *ret, struct mfs_error *err);

/* Whether vLLM's workers have whole blocks of matrices that are quantised in blocks. -EINVAL: they
 * do not (vllm/.../quantization/utils/fp8_utils.py: validate_fp8_block_shape). */
int mfs_vllm_layout_blocks(const struct mfs_ckpt *ckpt, const struct mfs_vllm_layout *layout,
			   uint64_t block, struct mfs_error *err);

#endif
