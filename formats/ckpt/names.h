/*
 * Megatron's parameter names. Layer specs, releases and formats have different names for one
 * parameter; here each gets one canonical name (ckpt.h), and how tensor parallelism splits it.
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

enum mfs_tp_split_kind {
	MFS_TP_NONE,	 /* every rank has the whole tensor */
	MFS_TP_ROWS,	 /* axis 0: column-parallel weights and biases, vocabulary */
	MFS_TP_GATED,	 /* axis 0; in a gated model each rank holds [its gate rows; its up rows] */
	MFS_TP_SECTIONS, /* axis 0; each rank holds its rows of every section (sections.h) */
	MFS_TP_COLS,	 /* axis 1: row-parallel weights */
	MFS_TP_HEADS,	 /* q and k norms: whole, but axis 0 where they are over all heads */
	MFS_TP_AUTO,	 /* MLA's down projections: whole with TE, axis 0 with the local spec */
};

/* The halves of a gated linear_fc1, if they are saved apart (singleton_local_shards). */
enum mfs_name_part { MFS_PART_WHOLE, MFS_PART_GATE, MFS_PART_UP };

/* Of a layer. */
enum mfs_sublayer_kind {
	MFS_SUBLAYER_OTHER, /* of a Mamba mixer, or not known */
	MFS_SUBLAYER_ATTENTION,
	MFS_SUBLAYER_MLP,
};

/* MLA's two down projections in one, the query's rows first (mla_down_proj_fusion, core 0.18): of
 * legacy files alone, whose reader takes it apart. */
#define MFS_FUSED_DOWN_PROJ "self_attention.linear_qkv_down_proj.weight"

#define MFS_NAME_MAX 192

struct mfs_name {
	char canonical[MFS_NAME_MAX];
	int32_t layer;	       /* number in the key; -1: none */
	int32_t expert;	       /* the same */
	int32_t part_of_depth; /* of a hybrid model's MTP layer: number of its inner layer; -1 */
	enum mfs_sublayer_kind sublayer;
	enum mfs_tp_split_kind tp;
	enum mfs_name_part part;
	uint8_t section; /* of the tensor that the key is of, counted from 1; 0: it is of all */
	bool layered;	 /* below decoder.layers or mtp.layers */
	bool experts;	 /* belongs to routed experts */
	bool known;	 /* a parameter in the tables of names.c */
	bool ignored;	 /* not a weight: _extra_state */
	bool mtp_model_layer; /* MTP's inner layer has the name of core 0.17 and newer */
	int grouped;	      /* 1, 2: GroupedMLP's fused, transposed weight1, weight2; else 0 */
};

/* Which sublayer a parameter of a layer is of: its canonical name without the layer's prefix. */
enum mfs_sublayer_kind mfs_name_sublayer(const char *rest);

/* Parses a key. It never fails: an unknown key is its own canonical name. A key longer than
 * MFS_NAME_MAX is cut. */
void mfs_name_parse(const char *key, struct mfs_name *ret);

/* True if a torch_dist key is of the model, and not of optimizer, random states or rerun state. */
bool mfs_name_is_model(const char *key);

/* Says what a key is of if no model can be shown without it: "a LoRA adapter", "a model quantised
 * by ModelOpt". Else NULL. (Megatron-Bridge: peft/adapter_wrapper.py; ModelOpt: TensorQuantizer) */
const char *mfs_name_refused(const char *key);

/* False for a buffer (the router's expert_bias) and for a dtype that is not trained. An optimizer
 * has no state of these. */
bool mfs_name_is_parameter(const char *canonical, enum mfs_dtype dtype);

#endif
