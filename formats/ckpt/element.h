/*
 * Where an element of a parameter lies, as somebody who knows the model says it: of row 17 of
 * linear_qkv "query group 1, query head 2 of it, row 1". All numbers from 0, as Megatron and HF
 * count.
 *
 * Sources: the order of rows in megatron/core/transformer/attention.py
 * (get_query_key_value_tensors), multi_latent_attention.py, mlp.py (gate rows before up rows).
 */
#ifndef MFS_CKPT_ELEMENT_H
#define MFS_CKPT_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "formats/ckpt/ckpt.h"

/* index: on each axis of t, which is one of a model with these arguments. "" where there is nothing
 * to say that the index does not. Returns text. */
const char *mfs_element_text(const struct mfs_megatron_args *args,
			     const struct mfs_global_tensor *t, const uint64_t index[MFS_CKPT_DIMS],
			     char *text, size_t size);

#endif
