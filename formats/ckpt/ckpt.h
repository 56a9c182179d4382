/*
 * A checkpoint is a set of global tensors. A global tensor is a list of chunks; a chunk is a box of
 * the tensor with its place in a file (megatron/core/dist_checkpointing/mapping.py: ShardedTensor).
 * Readers of all formats produce this, so code above does not depend on the format.
 *
 * Names are Megatron's, without the numbers of layer and expert:
 *   "embedding.word_embeddings.weight"                       layer -1, expert -1
 *   "decoder.layers.self_attention.linear_qkv.weight"        layer 0..L-1
 *   "decoder.layers.mlp.experts.experts.linear_fc1.weight"   layer, expert 0..E-1
 *   "mtp.layers.enorm.weight"                                layer = MTP depth
 * Each parameter has one name, for every layer spec: norms are "input_layernorm",
 * "pre_mlp_layernorm", "q_layernorm", "k_layernorm", "kv_layernorm". Transformer Engine's fused
 * "linear_qkv.layer_norm_weight" and others are read as these. A shape is of one layer and one
 * expert: [out, in]. A gated linear_fc1 is [all gate rows; all up rows], as in torch_dist.
 */
#ifndef MFS_CKPT_CKPT_H
#define MFS_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/format.h"
#include "formats/io/fileset.h"
#include "formats/args/megatron_args.h"
#include "formats/base/tensor.h"
#include "formats/torch/torch_file.h"

#define MFS_CKPT_DIMS 4 /* axes of a global tensor, layer and expert axes taken out */

/*
 * A global tensor is a parameter of the model or one of its optimizer states. In a mixed-precision
 * run the optimizer (Adam) holds three tensors of the parameter's shape. MAIN is the fp32 copy
 * (megatron/core/optimizer/optimizer.py: Float16OptimizerWithFloat16Params,
 * "fp32_from_fp16_params"; in other formats "fp32_param" or "param").
 */
enum mfs_state {
	MFS_STATE_MODEL,
	MFS_STATE_MAIN,
	MFS_STATE_EXP_AVG,
	MFS_STATE_EXP_AVG_SQ,
	MFS_STATE_MOMENTUM, /* of SGD, which has no moments */
	MFS_STATE_COUNT,
};
/* [MFS_STATE_MAIN, MFS_STATE_ADAM_END): what the distributed optimizer has, whose base is Adam. */
#define MFS_STATE_ADAM_END (MFS_STATE_EXP_AVG_SQ + 1)

#define MFS_ZEROS UINT32_MAX /* storage of a chunk that is zeros and in no file */

struct mfs_chunk {
	uint64_t lo[MFS_CKPT_DIMS],
		size[MFS_CKPT_DIMS];	/* box in the tensor's coordinates, elements */
	uint64_t stride[MFS_CKPT_DIMS]; /* elements between neighbours along an axis */
	uint64_t origin;		/* elements from the storage's first element */
	uint32_t storage;		/* see mfs_ckpt_locate() */
	uint32_t scales; /* of floats of 8 or 4 bits: number of their scales, plus 1; 0: none */
};

struct mfs_global_tensor {
	const char *name; /* interned: equal names are equal pointers */
	int32_t layer, expert;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint8_t state;	 /* enum mfs_state */
	bool whole_norm; /* a norm that is stored as it is, though norms are weight - 1 */
	bool quantised;	 /* its chunks are floats of 8 or 4 bits: mfs_ckpt_scales() */
	uint64_t shape[MFS_CKPT_DIMS];
	uint32_t first_chunk, chunk_count;
};

/* The type of the elements in its storages. Floats of 4 bits count as the 8-bit floats that they
 * are turned into, with places as if each had a byte: formats/plan makes places of these. */
static inline enum mfs_dtype mfs_global_tensor_stored(const struct mfs_global_tensor *t)
{
	return t->quantised ? MFS_F8_E4M3 : t->dtype;
}

/*
 * The scales of a matrix of 8-bit floats, row after row (numbers/fp8.h), or of 4-bit floats
 * (numbers/fp4.h). They are a matrix with an element for each block, row after row, in a storage of
 * their own.
 */
struct mfs_ckpt_scales {
	uint32_t storage;
	enum mfs_dtype dtype;		 /* float32, bfloat16; uint8 of 4-bit floats */
	uint64_t rows, cols;		 /* of the matrix */
	uint64_t block_rows, block_cols; /* the last block of a row or column may be smaller */
	uint64_t matrix; /* where the matrix begins: elements from its own storage's first one */
	uint64_t first;	 /* where the scales begin, likewise in theirs */
	uint64_t stride; /* scales from a row of them to the next; at least as many as it has */
};

/* The layout that was found in the files. A size that is not used is 1. */
struct mfs_ckpt_layout {
	uint32_t tp, pp, ep, etp, vpp;
	/* legacy: [vpp * pp] layers of each model chunk, in the order vp * pp + p; else NULL */
	const uint32_t *stage_layers;
};

struct mfs_ckpt;

/* What to read in addition to the model's tensors. */
#define MFS_CKPT_COMMON	  1u /* the state that is no tensor: mfs_ckpt_common() */
#define MFS_CKPT_LANGUAGE 4u /* of a vision-language model the language model: language_part.h */
#define MFS_CKPT_ADAPTER  2u /* it may hold the tensors of an adapter: ckpt/delta.h */

/* True if it is the language model of a vision-language one. */
bool mfs_ckpt_is_language(const struct mfs_ckpt *ckpt);

/* Opened by mfs_ckpt_open() (ckpt/read/ckpt_open.h), mfs_optim_open() (optim/read/optim_open.h) or
 * mfs_hf_ckpt_open(). */
void mfs_ckpt_free(struct mfs_ckpt *ckpt);

const struct mfs_ckpt_format *mfs_ckpt_format(const struct mfs_ckpt *ckpt);
const char *mfs_ckpt_dir(const struct mfs_ckpt *ckpt);
struct mfs_fileset *mfs_ckpt_files(const struct mfs_ckpt *ckpt);
const struct mfs_megatron_args *mfs_ckpt_args(const struct mfs_ckpt *ckpt);
const struct mfs_ckpt_layout *mfs_ckpt_layout(const struct mfs_ckpt *ckpt);

/* All model tensors, sorted by (name, layer, expert). */
uint32_t mfs_ckpt_count(const struct mfs_ckpt *ckpt);
/* All tensors, also the optimizer's, sorted by (state, name, layer, expert). The model's come
 * first. */
uint32_t mfs_ckpt_count_all(const struct mfs_ckpt *ckpt);
const struct mfs_global_tensor *mfs_ckpt_at(const struct mfs_ckpt *ckpt, uint32_t i);
/* A tensor by its name. NULL: there is none. */
const struct mfs_global_tensor *mfs_ckpt_find(const struct mfs_ckpt *ckpt, const char *name,
					      int32_t layer, int32_t expert);
const struct mfs_global_tensor *mfs_ckpt_find_state(const struct mfs_ckpt *ckpt,
						    enum mfs_state state, const char *name,
						    int32_t layer, int32_t expert);
const struct mfs_chunk *mfs_ckpt_chunks(const struct mfs_ckpt *ckpt,
					const struct mfs_global_tensor *t);

#define MFS_CKPT_NAME_SIZE 256 /* bytes that hold any full name */

/*
 * The common state as rank 0 saved it: the dict root with 'args', 'iteration',
 * 'opt_param_scheduler' and others. In legacy saves it is the first rank's file, the model
 * included; in torch_dist it is common.pt, or the item that replaced it. Tensors in it (random
 * states) are records of archive, which begins at base of file. mfs_ckpt_common() is NULL without
 * MFS_CKPT_COMMON, or if there is no such state.
 */
struct mfs_ckpt_common {
	struct mfs_torch_file archive;
	mfs_value root;
	uint32_t file;
	uint64_t base;
};
const struct mfs_ckpt_common *mfs_ckpt_common(const struct mfs_ckpt *ckpt);

/* True if tensors of this state are among them. */
bool mfs_ckpt_has_state(const struct mfs_ckpt *ckpt, enum mfs_state state);

/* Megatron's name of a state: "fp32_param", "exp_avg", "exp_avg_sq", "momentum_buffer"; "" for the
 * model. */
const char *mfs_state_name(enum mfs_state state);

/* Writes the full name for messages: "decoder.layers.3.mlp.experts.experts.7.linear_fc1.weight". An
 * optimizer state begins with "exp_avg of " or its like. Returns text. */
const char *mfs_global_tensor_name(const struct mfs_global_tensor *t, char *text, size_t size);

/* True if it has a row for each token: the embedding, the head, or an optimizer state of these. */
bool mfs_global_tensor_is_vocabulary(const struct mfs_global_tensor *t);

/* True if it is the weight of a norm that Megatron may store as weight - 1 (apply_layernorm_1p).
 * A Mamba mixer's own norm is none (mamba_mixer.py: ExtendedRMSNorm). */
bool mfs_global_tensor_is_norm(const struct mfs_global_tensor *t);

/* True if it is such a weight and stored as weight - 1. Of optimizer states only the fp32 parameter
 * is one. */
bool mfs_global_tensor_is_shifted(const struct mfs_megatron_args *args,
				  const struct mfs_global_tensor *t);

/* Warnings: sentences that a person should read once. Returns their number. */
uint32_t mfs_ckpt_warnings(const struct mfs_ckpt *ckpt, const char *const **ret);

/*
 * File and byte offset of a storage's first element. The first call reads and checks the container
 * (a ZIP record), and all of its bytes where proof is demanded (proof.h). t is for messages.
 * -EINVAL: the record is not the tensor that the index says, or has another sum. Any thread.
 */
int mfs_ckpt_locate(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
		    uint32_t *ret_file, uint64_t *ret_offset, struct mfs_error *err);

/* The scales of a chunk of 8-bit or 4-bit floats. NULL: it has none. */
const struct mfs_ckpt_scales *mfs_ckpt_scales(const struct mfs_ckpt *ckpt,
					      const struct mfs_chunk *c);

/* A storage that lies in no container, MFS_ZEROS included, has nothing to locate or check. */

/* Storages are numbered from 0; several tensors may share one. */
uint32_t mfs_ckpt_storage_count(const struct mfs_ckpt *ckpt);

/* Reads all bytes of a storage and compares their CRC-32 with the container's. *ret_checked: the
 * container has one. t is for messages. -EINVAL: they differ. */
int mfs_ckpt_check_bytes(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t, uint32_t storage,
			 bool *ret_checked, struct mfs_error *err);

#endif
