/*
 * The weights of an HF directory: model.safetensors, or model-0000i-of-0000n.safetensors with
 * model.safetensors.index.json (huggingface_hub/serialization/_base.py; transformers'
 * modeling_utils.py looks for the single file first, so never both).
 */
#ifndef MFS_MODEL_HF_WEIGHTS_H
#define MFS_MODEL_HF_WEIGHTS_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/model/model.h"

/* Targets [first, first + count) of the model. */
struct mfs_hf_shard {
	uint32_t first, count;
	uint64_t bytes;
};

/*
 * Cuts a model into shards of at most limit bytes: whole layers first; a layer larger than a shard
 * is cut between its tensors; a tensor larger than a shard has one of its own. *ret is freed by the
 * caller.
 */
int mfs_hf_cut_shards(const struct mfs_model *model, uint64_t limit, struct mfs_hf_shard **ret,
		      uint32_t *ret_count, struct mfs_error *err);

struct mfs_vfile;

/* The safetensors file of a shard. */
int mfs_hf_shard_file(const struct mfs_model *model, const struct mfs_hf_shard *shard,
		      struct mfs_vfile **ret, struct mfs_error *err);

#define MFS_HF_SHARD_NAME_SIZE 48

/* "model.safetensors" if there is one shard; i from 0. */
void mfs_hf_shard_name(char name[MFS_HF_SHARD_NAME_SIZE], uint32_t i, uint32_t count);

/* model.safetensors.index.json, as transformers writes it. */
int mfs_hf_index_file(const struct mfs_model *model, const struct mfs_hf_shard *shards,
		      uint32_t count, struct mfs_vfile **ret, struct mfs_error *err);

#endif
