/*
 * Private to fs/view/hf_gguf.c: the keys of a GGUF file, from the arguments of a model and from its
 * tokenizer (gguf/constants.py: Keys).
 */
#ifndef MFS_FS_VIEW_GGUF_KEYS_H
#define MFS_FS_VIEW_GGUF_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/model/features.h"

struct mfs_fileset;
struct mfs_gguf;
struct mfs_model;

/* What the HF view's config.json says beyond the arguments. */
struct mfs_gguf_extra {
	struct mfs_hf_tokens tokens;
	/* By which Llama 3's scaling divides the frequency of each rotary pair; the caller frees
	 * them. */
	float *factors;
	uint32_t factor_count; /* 0: there is no such scaling */
};

/* True if the architecture rotates neighbouring rows of a head: llama.cpp's LLAMA_ROPE_TYPE_NORM.
 * Others rotate row i with row i + head / 2, as HF does. */
bool mfs_gguf_rotates_pairs(const char *architecture);
/* Features that llama.cpp's graph of an architecture does not compute, or computes otherwise.
 * False: there is no such architecture here. */
bool mfs_gguf_refused(const char *architecture, mfs_features *ret);

int mfs_gguf_read_config(const struct mfs_model *model, const char *config, size_t len,
			 struct mfs_gguf_extra *ret, struct mfs_error *err);

/* Keys of the model. dtype: of most tensors. */
int mfs_gguf_add_keys(struct mfs_gguf *g, struct mfs_model *model, enum mfs_dtype dtype,
		      struct mfs_error *err);

/* Keys of the tokenizer in files, or of none where llama.cpp could not use it; a warning of the
 * model then says why. -EINVAL: tokenizer.json or tokenizer_config.json breaks its format. */
int mfs_gguf_add_tokenizer(struct mfs_gguf *g, struct mfs_model *model,
			   const struct mfs_gguf_extra *extra, struct mfs_fileset *files,
			   struct mfs_error *err);

#endif
