/*
 * Describes an element of a parameter in terms of the model: row 17 of linear_qkv may be "query
 * group 1, query head 2 of it, row 1". All numbers begin at 0, as in Megatron and HF.
 *
 * Sources: the order of rows in megatron/core/transformer/attention.py
 * (get_query_key_value_tensors), multi_latent_attention.py, mlp.py (gate rows before up rows).
 */
#ifndef MFS_CKPT_ELEMENT_H
#define MFS_CKPT_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "formats/ckpt/ckpt.h"

/* index: of the element, on each axis of t. args: the arguments of t's model. The text is "" if the
 * index says all. Returns text. */
const char *mfs_element_text(const struct mfs_megatron_args *args,
			     const struct mfs_global_tensor *t, const uint64_t index[MFS_CKPT_DIMS],
			     char *text, size_t size);

#endif
