/*
 * What a worker of vLLM holds of a model: its part of each parameter, after vLLM has put queries,
 * keys and values into one, gates and ups, and the experts of a layer. What vLLM calls a parameter
 * is in the family's file. How a worker cuts is written in vllm/model_executor/layers: linear.py,
 * vocab_parallel_embedding.py, fused_moe/routed_experts.py. SGLang's layers are descendants of
 * these (sglang/srt/layers): they cut alike, under other names.
 */
#ifndef MFS_FS_VIEW_VLLM_PARAMETERS_H
#define MFS_FS_VIEW_VLLM_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/ckpt/target.h"
#include "fs/view/vllm_layout.h"

struct mfs_hf_target;
struct mfs_model;

/* HF tensors that are one parameter; of experts all of the first expert's, then the second's. */
struct mfs_vllm_group {
	const struct mfs_hf_target *const *of;
	uint32_t count;
};

/* A range of an HF tensor along an axis. */
struct mfs_vllm_slice {
	const struct mfs_hf_target *of;
	uint64_t from, count;
};

/* Slices of HF tensors, one after the other along an axis of these. Without slices it is a number,
 * which vLLM registers and does not compute. */
struct mfs_vllm_parameter {
	struct mfs_target base;
	const struct mfs_hf_target *like; /* an HF tensor of its layer */
	const char *as;			  /* its name, without the layer's prefix */
	const struct mfs_vllm_slice *slices;
	uint32_t count;
	uint32_t parts;	  /* slices of each expert; 0: experts are not stacked */
	uint64_t padding; /* zeros after them, along the axis */
	uint8_t axis;	  /* of the HF tensors */
	bool minus_one;	  /* the number is -1, not 1 */
};

/* The groups of a model, in the order of their first tensors. Layers of multi-token prediction are
 * left out: the engines' classes do not hold them. -ENOMEM. */
int mfs_vllm_groups(const struct mfs_model *m, enum mfs_engine engine, struct mfs_arena *arena,
		    struct mfs_vllm_group **ret, uint32_t *ret_count, struct mfs_error *err);

/* The parameter of a group at a worker. -EINVAL: the workers cannot share a tensor, which the
 * message names; -ENOMEM. */
int mfs_vllm_parameter(const struct mfs_vllm_group *g, const struct mfs_vllm_layout *layout,
		       uint32_t rank, struct mfs_arena *arena, struct mfs_vllm_parameter *ret,
		       struct mfs_error *err);

/* A parameter without axes in an HF tensor's layer: 1 in float32, or -1 in the model's type. */
int mfs_vllm_number(const struct mfs_hf_target *like, const char *as, bool minus_one,
		    struct mfs_vllm_parameter *ret, struct mfs_error *err);
/* True if no slice of the parameter but the last begins or ends inside a block of so many. */
bool mfs_vllm_is_of_blocks(const struct mfs_vllm_parameter *p, uint64_t block);

#endif
