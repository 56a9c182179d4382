/*
 * How a model lies on ranks: sizes of tensor, pipeline, expert and expert-tensor parallelism, and
 * which layers each pipeline chunk has.
 *
 * A layout's name is tp{T}-pp{P}, then where it differs from the default -ep{E} (1), -etp{X} (tp; 1
 * for a dense model counts as tp), -vpp{V} (1: chunks of each stage, interleaved), -first{N} and
 * -last{N} (layers of the first and the last stage, where they are not the others' share:
 * Megatron's --decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers).
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
};

#define MFS_LAYOUT_MAX	     100000 /* of any size, and of their products */
#define MFS_LAYOUT_NAME_SIZE 96

/* False: not a layout's name. Parts stand in the order above; tp and pp are always there; numbers
 * have no leading zeros. etp not named: tp. */
bool mfs_layout_parse(const char *name, struct mfs_layout *ret);
/* The shortest name of a layout; returns text. */
const char *mfs_layout_name(const struct mfs_layout *p, char text[MFS_LAYOUT_NAME_SIZE]);

/*
 * Where no uneven stage is named and the layers cannot be divided equally, but the run that wrote
 * the checkpoint had its first or last stage smaller by some layers (Llama 3.1 405B: 126 layers, 7
 * and 7 of them on the ends of 16 stages), the same is taken here: tp2-pp4 of it means
 * -first31-last31.
 */
void mfs_layout_resolve(struct mfs_layout *p, const struct mfs_megatron_args *a);

/* -EINVAL: the model cannot lie so; the sentence says which number is not divisible by which. */
int mfs_layout_check(const struct mfs_layout *p, const struct mfs_megatron_args *a,
		     struct mfs_error *err);

/* Layers of chunk (vp, pp) of a layout that was checked; and the global number of its first one. */
uint32_t mfs_layout_layers(const struct mfs_layout *p, const struct mfs_megatron_args *a,
			   uint32_t vp, uint32_t pp, uint32_t *ret_first);

/* The layout that a checkpoint was saved at. False if this has no name (uneven stages of another
 * kind than first and last). An HF directory's is tp1-pp1. */
bool mfs_layout_of(const struct mfs_ckpt *ckpt, struct mfs_layout *ret);

/*
 * Rows of the embedding at a layout: rows, padded to a multiple of make_vocab_size_divisible_by *
 * tp (megatron/training/tokenizer: vocab_size_with_padding). rows 0: the true size is not known,
 * and what is stored is padded further where the layout asks for it.
 */
uint64_t mfs_layout_vocab(const struct mfs_layout *p, const struct mfs_ckpt *ckpt, uint64_t rows);

#endif
