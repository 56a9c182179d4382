/*
 * The tensors of an HF directory by HF's names, whichever of the four ways of storing them it has
 * (docs/formats/hf-names.md), and where each lies.
 *
 * An index ({"metadata": {...}, "weight_map": {tensor: file}}) says which file a tensor is read
 * from, as vLLM and transformers do; a second copy in another shard is passed over. A tensor that
 * no index entry names counts if it is in one shard.
 */
#ifndef MFS_MODEL_HF_TENSORS_H
#define MFS_MODEL_HF_TENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

#define MFS_HF_INDEX_MAX (64u << 20) /* bytes of an index */

struct mfs_hf_entry;

struct mfs_hf_tensor {
	const char *name;
	enum mfs_dtype dtype;
	uint8_t ndim;
	bool used; /* for the caller */
	uint64_t shape[MFS_MAX_DIMS];
	uint64_t stride[MFS_MAX_DIMS]; /* elements */
	uint64_t origin;	       /* elements from the storage's first */
	uint32_t storage;	       /* of the checkpoint: mfs_ckpt_locate() */
	uint32_t file;		       /* of the checkpoint's fileset */
};

struct mfs_hf_tensors {
	struct mfs_hf_entry *entries; /* by name, in the order of the files */
	struct mfs_arena arena;
};

/* The file of weights that transformers would read: its name in dir, and whether that is an index.
 * NULL: there is none. */
const char *mfs_hf_weights_name(const char *dir, bool *ret_index);

/*
 * An index from memory; name is for messages. *ret_map is its weight_map, an object of texts, with
 * a reference of its own. -EINVAL: no JSON, no weight_map, or a file in it that is no text.
 */
int mfs_hf_index_parse(const char *bytes, size_t len, const char *name, json_t **ret_map,
		       struct mfs_error *err);

/*
 * Reads headers and pickles of dir's weights into a set that was zeroed; files and storages are
 * added to ckpt (which is being built). Released also after a failure. -ENODATA: a shard, or a
 * tensor of the index, is missing; -EINVAL: a damaged file, or a tensor in two files; -ENOTSUP:
 * what its reader refuses.
 */
int mfs_hf_tensors_read(struct mfs_ckpt *ckpt, struct mfs_hf_tensors *ret, struct mfs_error *err);
void mfs_hf_tensors_release(struct mfs_hf_tensors *set);

/* NULL: there is none. */
struct mfs_hf_tensor *mfs_hf_tensors_find(const struct mfs_hf_tensors *set, const char *name);
/* The one behind t, the first if t is NULL; NULL behind the last. */
struct mfs_hf_tensor *mfs_hf_tensors_next(const struct mfs_hf_tensors *set,
					  const struct mfs_hf_tensor *t);

#endif
