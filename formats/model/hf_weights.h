/*
 * The weights of an HF view: model.safetensors, or model-0000i-of-0000n.safetensors with
 * model.safetensors.index.json (huggingface_hub/serialization/_base.py). A view never has both,
 * since transformers (modeling_utils.py) looks for the single file first.
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
 * Cuts a model into shards of at most limit bytes. A layer larger than limit is cut between its
 * tensors; a tensor larger than limit has a shard of its own. Smaller layers are not cut. The
 * caller frees *ret.
 */
int mfs_hf_cut_shards(const struct mfs_model *model, uint64_t limit, struct mfs_hf_shard **ret,
		      uint32_t *ret_count, struct mfs_error *err);

struct mfs_vfile;

/* The safetensors file of a shard. */
int mfs_hf_shard_file(const struct mfs_model *model, const struct mfs_hf_shard *shard,
		      struct mfs_vfile **ret, struct mfs_error *err);

#define MFS_HF_SHARD_NAME_SIZE 48

/* The name of shard i (from 0); "model.safetensors" if there is one shard. */
void mfs_hf_shard_name(char name[MFS_HF_SHARD_NAME_SIZE], uint32_t i, uint32_t count);

/* model.safetensors.index.json, as transformers writes it. */
int mfs_hf_index_file(const struct mfs_model *model, const struct mfs_hf_shard *shards,
		      uint32_t count, struct mfs_vfile **ret, struct mfs_error *err);

#endif
