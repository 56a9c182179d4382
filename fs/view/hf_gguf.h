/*
 * Private to fs/view/hf.c: a model as one file that llama.cpp reads (formats/gguf/gguf.h). Names,
 * keys and shapes are those that its converter gives the same model
 * (gguf: gguf/constants.py, gguf/tensor_mapping.py; llama.cpp: convert_hf_to_gguf.py and
 * conversion/{base,llama,qwen}.py):
 *
 *   vectors, norms and routers are float32, all others of one type;
 *   where llama.cpp rotates neighbours (its architecture "llama"), the rows of queries and keys are
 *   reordered, head by head: row i of a head's first half, row i of its second half, ...;
 *   the experts of a layer are one tensor;
 *   Llama 3's rotary scaling is a tensor of factors, "rope_freqs.weight";
 *   a tied head is left out.
 *
 * What its graphs do not compute is refused. A window is not known to them: the context ends where
 * the window would begin to matter.
 */
#ifndef MFS_FS_VIEW_HF_GGUF_H
#define MFS_FS_VIEW_HF_GGUF_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"

struct mfs_ckpt;
struct mfs_family;
struct mfs_fileset;
struct mfs_model;
struct mfs_view;

struct mfs_hf_gguf;

#define MFS_GGUF_FILE "model.gguf"

/* -ENOTSUP: llama.cpp has no architecture for the family, or not for this model. */
int mfs_hf_gguf_possible(const struct mfs_ckpt *ckpt, const struct mfs_family *family,
			 struct mfs_error *err);

/*
 * Adds the file to a view. config: the text of the HF view's config.json, which knows token ids and
 * the factor of Llama 3's scaling. tokenizer: the directory of tokenizer.json; files that are read
 * are added to it. NULL: there is none. A tokenizer that cannot be carried along is left out, with
 * a warning of the model that says why. The file points into *ret, which the caller frees after it,
 * also if this fails.
 */
int mfs_hf_gguf_add(struct mfs_view *v, struct mfs_model *model, enum mfs_dtype dtype,
		    const char *config, size_t config_len, struct mfs_fileset *tokenizer,
		    struct mfs_hf_gguf **ret, struct mfs_error *err);
void mfs_hf_gguf_free(struct mfs_hf_gguf *gguf);

#endif
