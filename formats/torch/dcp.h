/*
 * The `.metadata` of a torch.distributed.checkpoint: which tensors there are, their chunks, and the
 * file, offset and length of each chunk's item (torch/distributed/checkpoint/metadata.py).
 */
#ifndef MFS_TORCH_DCP_H
#define MFS_TORCH_DCP_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"

struct mfs_dcp_item {
	uint32_t file;		 /* index into files */
	uint64_t offset, length; /* bytes */
};

struct mfs_dcp_chunk {
	const uint64_t *lo, *size; /* [ndim] elements */
	/* [ndim] elements that the item has along each axis, of which the chunk is the first ones;
	 * NULL: size. Items of `.metadata` have no more; the last ones of a zarr array may. */
	const uint64_t *stored;
	struct mfs_dcp_item item;
};

struct mfs_dcp_tensor {
	const char *key;
	enum mfs_dtype dtype;
	uint8_t ndim;
	const uint64_t *shape; /* [ndim] */
	struct mfs_dcp_chunk *chunks;
	uint32_t chunk_count;
	/* Set for a flattened tensor alone (Megatron 0.8 to 0.15, fully_sharded_model_space): the
	 * shape of the tensor that was flattened, from Metadata.mcore_data:
	 * nd_reformulated_orig_global_shape. `shape` is then [fragments along each axis...,
	 * elements of a fragment]. NULL for all other tensors. */
	const uint64_t *original; /* [ndim - 1] */
};

/* A pickled object: a torch.save archive of a list [object] (Megatron) or of the object (plain
 * DCP). */
struct mfs_dcp_bytes {
	const char *key;
	struct mfs_dcp_item item;
};

struct mfs_dcp {
	struct mfs_dcp_tensor *tensors; /* sorted by key */
	uint32_t tensor_count;
	struct mfs_dcp_bytes *bytes; /* sorted by key */
	uint32_t bytes_count;
	const char **files; /* relative names */
	uint32_t file_count;
	struct mfs_arena arena;
};

#define MFS_DCP_FILE_NONE UINT32_MAX /* item.file of a chunk that storage_data does not know */

/*
 * Parses the pickle. all_local_plans is skipped. Tensors are not checked yet, so that an
 * optimizer's odd tensor does not keep anybody from the weights: see mfs_dcp_check(). -EINVAL names
 * the key.
 */
int mfs_dcp_parse(const void *bytes, size_t len, const char *name, struct mfs_dcp *ret,
		  struct mfs_error *err);
void mfs_dcp_release(struct mfs_dcp *dcp);

/* Sorts the chunks of a tensor by lo, as those of a parsed index are. */
void mfs_dcp_sort_chunks(struct mfs_dcp_tensor *t);

/* Checks that every chunk has an item, that it lies inside the tensor, and that the chunks together
 * have as many elements as the tensor (torch's _validate_global_plan does the same). name: the
 * file's, for messages. -EINVAL names the key; -ENOTSUP: an element type that is not supported. */
int mfs_dcp_check(const struct mfs_dcp_tensor *t, const char *name, struct mfs_error *err);

/* The tensor or the bytes under a key; NULL: there is none. */
const struct mfs_dcp_tensor *mfs_dcp_tensor(const struct mfs_dcp *dcp, const char *key);
const struct mfs_dcp_bytes *mfs_dcp_bytes(const struct mfs_dcp *dcp, const char *key);

#endif
