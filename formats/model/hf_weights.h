/*
 * The weights of an HF view: model.safetensors, or model-0000i-of-0000n.safetensors with
 * model.safetensors.index.json (huggingface_hub/serialization/_base.py); pytorch_model.bin likewise
 * (transformers/utils/__init__.py). A view never has both a single file and an index, since
 * transformers (modeling_utils.py) looks for the single file first.
 *
 * Every size and every header follows from names, shapes and dtypes. No tensor is read.
 */
#ifndef MFS_MODEL_HF_WEIGHTS_H
#define MFS_MODEL_HF_WEIGHTS_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/target.h"

struct mfs_model;
struct mfs_vfile;

/* A tensor of a view. Neighbours of one unit (a layer) stand in one file if they fit. */
struct mfs_hf_weight {
	const struct mfs_target *target;
	uint32_t unit;
};

/* The tensors of a view, in the order in which files are filled. Zero-fill it first. */
struct mfs_hf_weights {
	struct mfs_hf_weight *items;
	uint32_t count;
	uint64_t parameters; /* elements */
	uint64_t bytes;
};

/* Appends a tensor, which must outlive what is made of it. -EINVAL: all are more than 2^64 bytes;
 * -ENOMEM. */
int mfs_hf_weights_add(struct mfs_hf_weights *w, const struct mfs_target *t, uint32_t unit,
		       struct mfs_error *err);
/* Appends the tensors of a model. */
int mfs_hf_weights_add_model(struct mfs_hf_weights *w, const struct mfs_model *model,
			     struct mfs_error *err);
void mfs_hf_weights_release(struct mfs_hf_weights *w);

/* Tensors [first, first + count). */
struct mfs_hf_shard {
	uint32_t first, count;
	uint64_t bytes;
};

/*
 * Cuts the tensors into shards of at most limit bytes. A layer larger than limit is cut between its
 * tensors; a tensor larger than limit has a shard of its own. Smaller layers are not cut. The
 * caller frees *ret.
 */
int mfs_hf_cut_shards(const struct mfs_hf_weights *w, uint64_t limit, struct mfs_hf_shard **ret,
		      uint32_t *ret_count, struct mfs_error *err);

/* A format of files of weights. */
struct mfs_hf_container {
	const char *stem, *suffix; /* "model", ".safetensors" */
	/* The file of a shard. -ENOTSUP: a tensor is of a type that the format lacks. */
	int (*file)(const struct mfs_hf_weights *w, const struct mfs_hf_shard *shard,
		    struct mfs_vfile **ret, struct mfs_error *err);
};

extern const struct mfs_hf_container mfs_hf_safetensors;
/* torch.save, as torch.load(weights_only=True, mmap=True) takes it (hf_bin.c). */
extern const struct mfs_hf_container mfs_hf_bin;

#define MFS_HF_SHARD_NAME_SIZE 48

/* The name of shard i (from 0); "model.safetensors" if there is one shard. */
void mfs_hf_shard_name(char name[MFS_HF_SHARD_NAME_SIZE], const struct mfs_hf_container *c,
		       uint32_t i, uint32_t count);

/* The index, as transformers writes it. ret_name: "model.safetensors.index.json". */
int mfs_hf_index_file(const struct mfs_hf_weights *w, const struct mfs_hf_container *c,
		      const struct mfs_hf_shard *shards, uint32_t count,
		      char ret_name[MFS_HF_SHARD_NAME_SIZE], struct mfs_vfile **ret,
		      struct mfs_error *err);

#endif
