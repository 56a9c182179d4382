/*
 * Keys of a torch_dist checkpoint, as a GPTModel's sharded_state_dict() has them
 * (docs/formats/torch-dist.md): stacked or numbered layers, norms under Transformer Engine's names,
 * optimizer.state.*, _extra_state.
 */
#ifndef MFS_MEGATRON_WRITE_DIST_KEYS_H
#define MFS_MEGATRON_WRITE_DIST_KEYS_H

#include "formats/megatron/write/dist_view_i.h"

#define MFS_DIST_KEY_SIZE (2 * MFS_CKPT_NAME_SIZE)

/* True if a run with these arguments numbers the decoder's layers in its keys. */
bool mfs_dist_numbers_layers(const struct mfs_megatron_args *args);

void mfs_dist_key(char key[MFS_DIST_KEY_SIZE], const struct mfs_megatron_dist *d,
		  const struct mfs_dist_tensor *t);

/* True if the module of a model tensor has an _extra_state in any layer spec: linears, norms. */
bool mfs_dist_has_extra(const struct mfs_global_tensor *t);
/* The key of the i-th module's _extra_state; i is layer * experts + expert. */
void mfs_dist_extra_key(char key[MFS_DIST_KEY_SIZE], const struct mfs_megatron_dist *d,
			const struct mfs_dist_extra *e, uint32_t i);

#endif
