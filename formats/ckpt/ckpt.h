/*
 * A checkpoint is a set of global tensors, each a list of chunks; a chunk is a box in global
 * coordinates and a place in a file. Legacy TP/PP/EP/VPP shards and torch_dist chunks both come out
 * as this (megatron/core/dist_checkpointing/mapping.py: ShardedTensor), and nothing above can tell.
 *
 * Names are Megatron's, per layer and per expert, with both numbers taken out:
 *   "embedding.word_embeddings.weight"                       layer -1, expert -1
 *   "decoder.layers.self_attention.linear_qkv.weight"        layer 0..L-1
 *   "decoder.layers.mlp.experts.experts.linear_fc1.weight"   layer, expert 0..E-1
 *   "mtp.layers.enorm.weight"                                layer = MTP depth
 * One name for one meaning, whichever module spec wrote it: norms are "input_layernorm",
 * "pre_mlp_layernorm", "q_layernorm", "k_layernorm", "kv_layernorm" (Transformer Engine's fused
 * "linear_qkv.layer_norm_weight" and so on are read as these). Shapes are those of one layer's, one
 * expert's tensor: [out, in]. Gated linear_fc1 is [all gate rows; all up rows], as torch_dist has
 * it.
 */
#ifndef MFS_CKPT_CKPT_H
#define MFS_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/fileset.h"
#include "formats/torch/megatron_args.h"
#include "formats/base/tensor.h"
#include "formats/torch/torch_file.h"

#define MFS_CKPT_DIMS 4 /* axes of a global tensor, layer and expert axes taken out */

enum mfs_ckpt_format {
	MFS_CKPT_TORCH,	     /* mp_rank_TT/model_optim_rng.pt */
	MFS_CKPT_TORCH_DIST, /* .metadata and __R_W.distcp */
	MFS_CKPT_HF,	     /* config.json and safetensors: model/hf_ckpt.h */
};

/*
 * What a global tensor is of its parameter. Of a mixed-precision run the optimizer holds three
 * tensors of every parameter's shape; MAIN is its fp32 copy (megatron/core/optimizer/optimizer.py:
 * Float16OptimizerWithFloat16Params, "fp32_from_fp16_params"; "fp32_param", "param" in other
 * formats).
 */
enum mfs_state {
	MFS_STATE_MODEL,
	MFS_STATE_MAIN,
	MFS_STATE_EXP_AVG,
	MFS_STATE_EXP_AVG_SQ,
	MFS_STATE_COUNT,
};

#define MFS_ZEROS UINT32_MAX /* storage of a chunk that is zeros and in no file */

struct mfs_chunk {
	uint64_t lo[MFS_CKPT_DIMS],
		size[MFS_CKPT_DIMS];	/* box in the tensor's coordinates, elements */
	uint64_t stride[MFS_CKPT_DIMS]; /* elements between neighbours along an axis */
	uint64_t origin;		/* elements from the storage's first element */
	uint32_t storage;		/* see mfs_ckpt_locate() */
};

struct mfs_global_tensor {
	const char *name; /* interned: equal names are equal pointers */
	int32_t layer, expert;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint8_t state; /* enum mfs_state */
	uint64_t shape[MFS_CKPT_DIMS];
	uint32_t first_chunk, chunk_count;
};

/* Layout of the files as found; 1 where an axis is not used. */
struct mfs_ckpt_layout {
	uint32_t tp, pp, ep, etp, vpp;
	/* legacy: [vpp * pp] layers of each chunk, order vp*pp+p; else NULL */
	const uint32_t *stage_layers;
};

struct mfs_ckpt;

/* What to read besides the model's tensors. */
#define MFS_CKPT_COMMON 1u /* the state that is no tensor: mfs_ckpt_common() */

/* Opened by mfs_ckpt_open() (ckpt/read/open.h), mfs_optim_open() (optim/read/open.h) or
 * mfs_hf_ckpt_open(). */
void mfs_ckpt_free(struct mfs_ckpt *ckpt);

enum mfs_ckpt_format mfs_ckpt_format(const struct mfs_ckpt *ckpt);
const char *mfs_ckpt_dir(const struct mfs_ckpt *ckpt);
struct mfs_fileset *mfs_ckpt_files(const struct mfs_ckpt *ckpt);
const struct mfs_megatron_args *mfs_ckpt_args(const struct mfs_ckpt *ckpt);
const struct mfs_ckpt_layout *mfs_ckpt_layout(const struct mfs_ckpt *ckpt);

/* All model tensors, sorted by (name, layer, expert). */
uint32_t mfs_ckpt_count(const struct mfs_ckpt *ckpt);
/* Those and the optimizer's behind them, sorted by (state, name, layer, expert). */
uint32_t mfs_ckpt_count_all(const struct mfs_ckpt *ckpt);
const struct mfs_global_tensor *mfs_ckpt_at(const struct mfs_ckpt *ckpt, uint32_t i);
/* NULL if there is none. */
const struct mfs_global_tensor *mfs_ckpt_find(const struct mfs_ckpt *ckpt, const char *name,
					      int32_t layer, int32_t expert);
const struct mfs_global_tensor *mfs_ckpt_find_state(const struct mfs_ckpt *ckpt,
						    enum mfs_state state, const char *name,
						    int32_t layer, int32_t expert);
const struct mfs_chunk *mfs_ckpt_chunks(const struct mfs_ckpt *ckpt,
					const struct mfs_global_tensor *t);

#define MFS_CKPT_NAME_SIZE 256 /* bytes that hold any full name */

/*
 * The state that is no tensor of the model or optimizer, as rank 0 saved it: a dict with 'args',
 * 'iteration', 'opt_param_scheduler', ... in doc (legacy: of the first rank, the model still in it;
 * torch_dist: of common.pt, or of the item that replaced it). Tensors in it (random states) are
 * records of the archive zip; base is where the archive begins in file. NULL: not asked for, or
 * none.
 */
struct mfs_ckpt_common {
	struct mfs_torch_file archive;
	mfs_value root;
	uint32_t file;
	uint64_t base;
};
const struct mfs_ckpt_common *mfs_ckpt_common(const struct mfs_ckpt *ckpt);

/* "fp32_param", "exp_avg", "exp_avg_sq" for a message; "" for the model's. */
const char *mfs_state_name(enum mfs_state state);

/* Full name for a message: "decoder.layers.3.mlp.experts.experts.7.linear_fc1.weight" into text,
 * with "exp_avg of " or its like in front if it is the optimizer's. */
const char *mfs_global_tensor_name(const struct mfs_global_tensor *t, char *text, size_t size);

/* Whether it has a row for each token of the vocabulary: the embedding or the head, or the
 * optimizer's state of one. */
bool mfs_global_tensor_is_vocabulary(const struct mfs_global_tensor *t);

/* Sentences that a person should read once (norms that differ between ranks, ...); may be 0. */
uint32_t mfs_ckpt_warnings(const struct mfs_ckpt *ckpt, const char *const **ret);

/*
 * File and byte offset of a storage's first element. The container around it (a ZIP record) is read
 * and checked on first use and remembered; any thread. t is for the message.
 * -EINVAL: the record is not the tensor that the index promised.
 */
int mfs_ckpt_locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		    uint32_t *ret_file, uint64_t *ret_offset, struct mfs_error *err);

/* A storage that lies in no container, MFS_ZEROS included, has nothing to locate or check. */

/* Storages are numbered from 0; several tensors may share one. */
uint32_t mfs_ckpt_storage_count(const struct mfs_ckpt *ckpt);

/* Reads all bytes of a storage and compares their CRC-32 with the container's, where the writer
 * left one (*ret_checked). -EINVAL: they differ; t is for the message. */
int mfs_ckpt_check_bytes(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
			 bool *ret_checked, struct mfs_error *err);

#endif
