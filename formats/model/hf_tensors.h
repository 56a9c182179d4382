/*
 * The tensors of an HF directory by HF's names, and where each lies. The directory may store them
 * in any of four ways (docs/formats/hf-names.md).
 *
 * An index ({"metadata": {...}, "weight_map": {tensor: file}}) says which file a tensor is read
 * from. A second copy in another shard is ignored, as vLLM and transformers do. A tensor that the
 * index does not name is used if exactly one shard has it.
 */
#ifndef MFS_MODEL_HF_TENSORS_H
#define MFS_MODEL_HF_TENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/prefixes.h"
#include "formats/ckpt/ckpt.h"

#define MFS_HF_INDEX_MAX (64u << 20) /* bytes of an index */

struct mfs_hf_entry;

struct mfs_hf_tensor {
	const char *name;
	enum mfs_dtype dtype;
	uint8_t ndim;
	bool used; /* for the caller */
	/* likewise: number of its scales, plus 1; 0: it has none. Strides and origin count floats
	 * of 4 bits as bytes */
	uint32_t scales;
	uint64_t shape[MFS_MAX_DIMS];
	uint64_t stride[MFS_MAX_DIMS]; /* elements */
	uint64_t origin;	       /* elements from the storage's start */
	uint32_t storage;	       /* of the checkpoint: mfs_ckpt_locate() */
	uint32_t file;		       /* of the checkpoint's fileset */
};

struct mfs_hf_tensors {
	struct mfs_hf_entry *entries; /* by name, in the order of the files */
	struct mfs_arena arena;
};

/* The name in dir of the file of weights that transformers would read first. *ret_index: it is an
 * index. NULL: there is none. */
const char *mfs_hf_weights_name(const char *dir, bool *ret_index);

/*
 * Parses an index in memory; name is for messages. *ret_map is its weight_map, an object of
 * strings; the caller drops the reference. -EINVAL: no JSON, no weight_map, or a value of it is no
 * string.
 */
int mfs_hf_index_parse(const char *bytes, size_t len, const char *name, json_t **ret_map,
		       struct mfs_error *err);

/*
 * Reads the headers and pickles of the weights of ckpt's directory into *ret, which is zero-filled.
 * seen: the prefixes that tensors have in files; those without a counterpart are left out, the
 * others have the prefix's. NULL: names are those of the files.
 * Files and storages are added to ckpt, which is being built. The caller releases *ret after a
 * failure too. -ENODATA: a shard, or a tensor of the index, is missing; -EINVAL: a file is damaged,
 * or a tensor is in two files; -ENOTSUP: a reader does not support the file, or a name has none of
 * the prefixes.
 */
int mfs_hf_tensors_read(struct mfs_ckpt *ckpt, struct mfs_prefixes *seen,
			struct mfs_hf_tensors *ret, struct mfs_error *err);
void mfs_hf_tensors_release(struct mfs_hf_tensors *set);

/* Adds one that a file does not have under this name. t is copied, with its name. -EINVAL: a file
 * has it; -ENOMEM. */
int mfs_hf_tensors_add(const struct mfs_ckpt *ckpt, struct mfs_hf_tensors *set,
		       const struct mfs_hf_tensor *t, struct mfs_error *err);

/* The tensor of that name. NULL: the set has none. */
struct mfs_hf_tensor *mfs_hf_tensors_find(const struct mfs_hf_tensors *set, const char *name);
/* The tensor after t; the first if t is NULL. NULL after the last. */
struct mfs_hf_tensor *mfs_hf_tensors_next(const struct mfs_hf_tensors *set,
					  const struct mfs_hf_tensor *t);

#endif
