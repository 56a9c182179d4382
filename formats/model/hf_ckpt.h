/*
 * A HuggingFace directory as a checkpoint: Megatron's global tensors, whose chunks are boxes of
 * HF's tensors by the family's rules read backwards. Everything that works on a checkpoint of
 * Megatron (views at any layout, the HF view, diff, verify) works on it. docs/formats/hf-names.md
 * says which files of weights are read, which tensors are left out, and when a head is tied.
 *
 * The checkpoint's format is MFS_CKPT_HF, its layout 1 everywhere; it has no optimizer and no
 * state. Its vocabulary is not padded: word_embeddings and output_layer have HF's rows, which are
 * args' vocab_size and padded_vocab_size alike. Tensors keep their dtypes.
 */
#ifndef MFS_MODEL_HF_CKPT_H
#define MFS_MODEL_HF_CKPT_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

/* True if dir holds a config.json and one of the four files of weights. Reads neither. */
bool mfs_hf_ckpt_looks_like_one(const char *dir);

/*
 * arch: as for mfs_hf_args_parse(). what: as for mfs_ckpt_open(); there is nothing more to read.
 *
 * -ENODATA: incomplete (a shard, a tensor or a key of config.json is missing, and is named);
 * -EINVAL: files that contradict each other or their format (tensor, expected, found); -ENOTSUP: a
 * model that no family can express, a tensor that is left over, quantised weights.
 */
int mfs_hf_ckpt_open(const char *dir, const char *arch, unsigned what, struct mfs_ckpt **ret,
		     struct mfs_error *err);

/* True if config.json, or its class's default, ties a head that is no copy of the embedding. */
bool mfs_hf_ckpt_is_untied(const struct mfs_ckpt *ckpt);

#endif
