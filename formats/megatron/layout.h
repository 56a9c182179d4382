/*
 * A layout says how a model lies on ranks: the sizes of tensor, pipeline, expert and expert-tensor
 * parallelism, and which layers each model chunk has.
 *
 * A layout's name is tp{T}-pp{P}, then each of these that is not the default:
 *
 *   -ep{E}      1
 *   -etp{X}     tp; for a dense model 1 means tp too
 *   -vpp{V}     1: model chunks of each stage, interleaved
 *   -first{N}   an equal share: layers of the first stage (--decoder-first-pipeline-num-layers)
 *   -last{N}    an equal share: layers of the last stage (--decoder-last-pipeline-num-layers)
 *
 * Sources: megatron/core/transformer/transformer_block.py: get_num_layers_to_build,
 * transformer_layer.py: get_transformer_layer_offset; megatron/core/parallel_state.py;
 * megatron/training/arguments.py.
 */
#ifndef MFS_MEGATRON_LAYOUT_H
#define MFS_MEGATRON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

struct mfs_layout {
	uint32_t tp, pp, ep, etp, vpp;
	uint32_t first, last; /* layers of the first and last stage; 0: an equal share */
	/* [vpp * pp]: layers of model chunk vp * P + pp, by --pipeline-model-parallel-layout and
	 * the like, which a layout's name cannot say; a chunk may have none. NULL: the sizes say
	 * it. They belong to the code that made the layout. */
	const uint32_t *chunk_layers;
	/* Files number attention and MLP of each block as layers of their own, as a HybridModel
	 * does. A layout's name is the same for both. */
	bool hybrid;
};

#define MFS_LAYOUT_MAX	     100000 /* of any size, and of their products */
#define MFS_LAYOUT_NAME_SIZE 96

/* False: not a layout's name. The parts stand in the order above, tp and pp are required, and
 * numbers have no leading zeros. Without -etp, etp is tp. */
bool mfs_layout_parse(const char *name, struct mfs_layout *ret);
/* Writes the shortest name of a layout without chunk_layers; returns text. */
const char *mfs_layout_name(const struct mfs_layout *p, char text[MFS_LAYOUT_NAME_SIZE]);

/*
 * Sets first and last if p names neither and has no chunk_layers, the layers cannot be divided
 * equally, and the first or last stage of the run that wrote the checkpoint had fewer layers than
 * the others. The ends then have as many fewer here. Example: Llama 3.1 405B has 126 layers on 16
 * stages, 7 on each end and 8 on the others; so tp2-pp4 means -first31-last31.
 */
void mfs_layout_resolve(struct mfs_layout *p, const struct mfs_megatron_args *a);

/* -EINVAL: the model cannot be divided so; the message says which number is not divisible by
 * which. */
int mfs_layout_check_model(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			   struct mfs_error *err);
/* Like mfs_layout_check_model(), and -EINVAL where etp does not divide tp: a run may be divided so,
 * but files that are named after ranks cannot. */
int mfs_layout_check(const struct mfs_layout *p, const struct mfs_megatron_args *a,
		     struct mfs_error *err);

/* Number of layers of model chunk (vp, pp). *ret_first: global number of its first layer. The
 * layout has been checked. */
uint32_t mfs_layout_layers(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			   uint32_t vp, uint32_t pp, uint32_t *ret_first);

/* The layout that a checkpoint was saved at; tp1-pp1 for an HF directory. False: it has no name,
 * since other stages than the first and the last are uneven. */
bool mfs_layout_of(const struct mfs_ckpt *ckpt, struct mfs_layout *ret);

/*
 * Rows of the embedding at a layout: rows padded to a multiple of make_vocab_size_divisible_by * tp
 * (megatron/training/tokenizer: vocab_size_with_padding). rows 0: the true size is not known; the
 * stored rows are padded further if the layout needs it.
 */
uint64_t mfs_layout_vocab(const struct mfs_layout *p, const struct mfs_ckpt *ckpt, uint64_t rows);

#endif
