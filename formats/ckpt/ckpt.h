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
 * expert's tensor: [out, in]. Gated linear_fc1 is [all gate rows; all up rows], as torch_dist has it.
 */
#ifndef MFS_CKPT_H
#define MFS_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/fileset.h"
#include "formats/megatron_args.h"
#include "formats/tensor.h"

#define MFS_CKPT_DIMS 4 /* axes of a global tensor, layer and expert axes taken out */

enum mfs_ckpt_format {
	MFS_CKPT_TORCH,	     /* mp_rank_TT/model_optim_rng.pt */
	MFS_CKPT_TORCH_DIST, /* .metadata and __R_W.distcp */
};

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
	uint64_t shape[MFS_CKPT_DIMS];
	uint32_t first_chunk, chunk_count;
};

/* Layout of the files as found; 1 where an axis is not used. */
struct mfs_layout {
	uint32_t tp, pp, ep, etp, vpp;
	const uint32_t *
		stage_layers; /* legacy: [vpp * pp] layers of each chunk, order vp*pp+p; else NULL */
};

struct mfs_ckpt;

/* dir is one iteration's directory. -ENODATA: incomplete (what is missing); -ENOTSUP, -EINVAL. */
int mfs_ckpt_open(const char *dir, struct mfs_ckpt **ret, struct mfs_error *err);
void mfs_ckpt_free(struct mfs_ckpt *ckpt);

enum mfs_ckpt_format mfs_ckpt_format(const struct mfs_ckpt *ckpt);
const char *mfs_ckpt_dir(const struct mfs_ckpt *ckpt);
struct mfs_fileset *mfs_ckpt_files(const struct mfs_ckpt *ckpt);
const struct mfs_megatron_args *mfs_ckpt_args(const struct mfs_ckpt *ckpt);
const struct mfs_layout *mfs_ckpt_layout(const struct mfs_ckpt *ckpt);

/* All model tensors, sorted by (name, layer, expert). */
uint32_t mfs_ckpt_count(const struct mfs_ckpt *ckpt);
const struct mfs_global_tensor *mfs_ckpt_at(const struct mfs_ckpt *ckpt, uint32_t i);
/* NULL if there is none. */
const struct mfs_global_tensor *mfs_ckpt_find(const struct mfs_ckpt *ckpt, const char *name,
					      int32_t layer, int32_t expert);
const struct mfs_chunk *mfs_ckpt_chunks(const struct mfs_ckpt *ckpt,
					const struct mfs_global_tensor *t);

#define MFS_CKPT_NAME_SIZE 256 /* bytes that hold any full name */

/* Full name for a message: "decoder.layers.3.mlp.experts.experts.7.linear_fc1.weight" into text. */
const char *mfs_global_tensor_name(const struct mfs_global_tensor *t, char *text, size_t size);

/* Sentences that a person should read once (norms that differ between ranks, ...); may be 0. */
uint32_t mfs_ckpt_warnings(const struct mfs_ckpt *ckpt, const char *const **ret);

/*
 * File and byte offset of a storage's first element. The container around it (a ZIP record) is read
 * and checked on first use and remembered; any thread. t is for the message.
 * -EINVAL: the record is not the tensor that the index promised.
 */
int mfs_ckpt_locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		    uint32_t *ret_file, uint64_t *ret_offset, struct mfs_error *err);

/* Storages are numbered from 0; several tensors may share one. */
uint32_t mfs_ckpt_storage_count(const struct mfs_ckpt *ckpt);

/* Reads all bytes of a storage and compares their CRC-32 with the container's, where the writer left
 * one (*ret_checked). -EINVAL: they differ; t is for the message. */
int mfs_ckpt_check_bytes(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
			 bool *ret_checked, struct mfs_error *err);

#endif
