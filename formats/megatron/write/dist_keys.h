/*
 * Keys of a torch_dist checkpoint, as a GPTModel's sharded_state_dict() has them.
 *
 *   decoder.layers.self_attention.linear_qkv.weight      stacked, all layers
 *   decoder.layers.7.self_attention.linear_qkv.weight    where layers are numbered
 *   mtp.layers.0.transformer_layer.mlp.linear_fc2.weight always numbered
 *   optimizer.state.exp_avg.KEY
 *   KEY._extra_state/shard_7_32, /shard_7.3_32.8 (experts), /shard_0_1
 *
 * Sources: megatron/core/transformer/transformer_block.py, transformer_layer.py, moe/experts.py,
 * multi_token_prediction.py: sharded_state_dict; models/gpt/gpt_layer_specs.py: sharded_state_dict_keys_map
 * (the local modules' norms have the names of Transformer Engine's fused ones, but for MLA);
 * dist_checkpointing/mapping.py: ShardedObject.unique_key; optimizer/optimizer.py, distrib_optimizer.py.
 */
#ifndef MFS_MEGATRON_WRITE_DIST_KEYS_H
#define MFS_MEGATRON_WRITE_DIST_KEYS_H

#include "formats/megatron/write/dist_i.h"

#define MFS_DIST_KEY_SIZE (2 * MFS_CKPT_NAME_SIZE)

/* Whether a run with the checkpoint's arguments numbers the decoder's layers in its keys. */
bool mfs_dist_numbers_layers(const struct mfs_megatron_args *args);

void mfs_dist_key(char key[MFS_DIST_KEY_SIZE], const struct mfs_megatron_dist *d,
		  const struct mfs_dist_tensor *t);

/* True if the module of a model's tensor has an _extra_state in any spec: linears, norms. */
bool mfs_dist_has_extra(const struct mfs_global_tensor *t);
/* Of the i-th (layer * experts + expert) module. */
void mfs_dist_extra_key(char key[MFS_DIST_KEY_SIZE], const struct mfs_dist_extra *e, uint32_t i);

#endif
