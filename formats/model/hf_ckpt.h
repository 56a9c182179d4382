/*
 * A HuggingFace directory as a checkpoint of Megatron's global tensors. Their chunks are boxes of
 * HF's tensors, found by reading the family's rules backwards. Everything that works on a
 * checkpoint of Megatron (views at any layout, the HF view, diff, verify) works on it.
 * docs/formats/hf-names.md says which files of weights are read, which tensors are left out, and
 * when a head is tied.
 *
 * All sizes of the checkpoint's layout are 1. It has no optimizer and no common state. Its
 * vocabulary is not padded: word_embeddings and output_layer have HF's rows, and vocab_size and
 * padded_vocab_size of the arguments are both this number. Tensors keep their dtypes; 8-bit floats
 * in blocks (hf_quantised.h) become bfloat16 when they are read.
 */
#ifndef MFS_MODEL_HF_CKPT_H
#define MFS_MODEL_HF_CKPT_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

extern const struct mfs_ckpt_format mfs_ckpt_format_hf;

/* True if dir has a config.json and one of the four files of weights. Neither is read. */
bool mfs_hf_ckpt_looks_like_one(const char *dir);

/*
 * arch: as for mfs_hf_args_parse(). what: as for mfs_ckpt_open_part(); an HF directory has nothing
 * more than its model. MFS_CKPT_LANGUAGE: of a vision-language model the language model
 * (language.h); without it such a model is refused, and with it any other.
 *
 * -ENODATA: a shard, a tensor or a key of config.json is missing; the message names it. -EINVAL:
 * files contradict each other or their format; the message gives tensor, expected and found value.
 * -ENOTSUP: no family can express the model, a tensor is left over, or weights are quantised.
 */
int mfs_hf_ckpt_open(const char *dir, const char *arch, unsigned what, struct mfs_ckpt **ret,
		     struct mfs_error *err);

/* True if config.json (or its class's default) says that the head is tied, but the stored head
 * differs from the embedding. */
bool mfs_hf_ckpt_is_untied(const struct mfs_ckpt *ckpt);

#endif
