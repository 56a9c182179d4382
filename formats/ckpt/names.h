/*
 * Megatron's parameter names: one canonical name (ckpt.h) for what module specs, releases and
 * formats spell differently, and how tensor parallelism splits it.
 *
 * Sources: megatron/core/models/gpt/gpt_layer_specs.py (sharded_state_dict_keys_map),
 * tensor_parallel/ layers.py and extensions/transformer_engine.py (axes),
 * transformer/moe/experts.py, transformer/ mlp.py (apply_swiglu_sharded_factory),
 * transformer/multi_token_prediction.py.
 */
#ifndef MFS_CKPT_NAMES_H
#define MFS_CKPT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/tensor.h"

enum mfs_tp_split {
	MFS_TP_NONE,  /* every rank has the whole tensor */
	MFS_TP_ROWS,  /* axis 0: column-parallel weights and biases, vocabulary */
	MFS_TP_GATED, /* axis 0, and each rank holds [its gate rows; its up rows] if gated */
	MFS_TP_COLS,  /* axis 1: row-parallel weights */
	MFS_TP_AUTO,  /* MLA's down projections: whole with TE, axis 0 with the local spec */
};

/* One of the two halves of a gated linear_fc1, where they are saved apart
 * (singleton_local_shards). */
enum mfs_name_part { MFS_PART_WHOLE, MFS_PART_GATE, MFS_PART_UP };

#define MFS_NAME_MAX 192

struct mfs_name {
	char canonical[MFS_NAME_MAX];
	int32_t layer;	/* as numbered in the key; -1: no number in it */
	int32_t expert; /* likewise */
	enum mfs_tp_split tp;
	enum mfs_name_part part;
	bool layered;	      /* below decoder.layers or mtp.layers */
	bool experts;	      /* belongs to routed experts */
	bool known;	      /* a parameter that the table below names */
	bool ignored;	      /* no weight: _extra_state */
	bool mtp_model_layer; /* MTP's inner layer under the name that it has since core 0.17 */
	int grouped;	      /* 1, 2: GroupedMLP's fused, transposed weight1, weight2; else 0 */
};

/* Never fails: an unknown key is its own canonical name. Keys longer than MFS_NAME_MAX are cut. */
void mfs_name_parse(const char *key, struct mfs_name *ret);

/* True if a torch_dist key belongs to the model (not optimizer, rng, rerun state, ...). */
bool mfs_name_is_model(const char *key);

/* False of a buffer (the router's expert_bias), or of a type that is not trained: no optimizer
 * knows the tensor. */
bool mfs_name_is_parameter(const char *canonical, enum mfs_dtype dtype);

#endif
