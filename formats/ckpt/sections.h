/*
 * Tensors whose rows are several matrices below one another: [gate; up] of a gated linear_fc1,
 * [query; key; value; z; beta; alpha] of a gated delta net's in_proj, [z; x; B; C; dt] of a Mamba-2
 * mixer's. Tensor parallelism divides each of them, so a rank holds its rows of the first, then its
 * rows of the second, and so on.
 *
 * Sources: megatron/core/transformer/mlp.py (apply_swiglu_sharded_factory), ssm/gated_delta_net.py,
 * ssm/mamba_mixer.py (sharded_state_dict, whose keys end with the sections' names).
 */
#ifndef MFS_CKPT_SECTIONS_H
#define MFS_CKPT_SECTIONS_H

#include <stdint.h>

#include "formats/args/megatron_args.h"

#define MFS_SECTIONS_MAX 6

/* Rows of the sections of a whole tensor, by its canonical name; returns their number. 0: another
 * tensor. A gated linear_fc1 has two halves, which its rows tell. */
unsigned mfs_sections(const struct mfs_megatron_args *a, const char *canonical,
		      uint64_t ret[MFS_SECTIONS_MAX]);

/* What torch_dist's key of a section ends with: ".query". section: below mfs_sections(). */
const char *mfs_section_suffix(const char *canonical, unsigned section);

/* Cuts a section's suffix off the part of a name that follows a layer's number. Returns the
 * section's number, counted from 1; 0: there is none. */
uint8_t mfs_section_take(char *rest);

#endif
