/*
 * Writes the `.metadata` of a torch.distributed.checkpoint as torch 2.13 pickles it. torch 2.5 and
 * Megatron read it (torch/distributed/checkpoint/metadata.py, filesystem.py:_StorageInfo).
 *
 * The writer asks for tensors and chunks one by one, and for each of them twice: once to say what
 * there is, once to say where it lies. So 100 000 chunks need no array of their own.
 */
#ifndef MFS_TORCH_DCP_WRITE_H
#define MFS_TORCH_DCP_WRITE_H

#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"

struct mfs_dcp_write_tensor {
	const char *key;
	enum mfs_dtype dtype;
	unsigned ndim;
	const uint64_t *shape; /* [ndim] of the global tensor, elements */
	uint32_t chunk_count;  /* 0 only for a tensor without elements */
};

/* Where an item lies. */
struct mfs_dcp_write_item {
	const char *file;	 /* relative to the directory of .metadata: "__0_0.distcp" */
	uint64_t offset, length; /* bytes */
};

struct mfs_dcp_write_chunk {
	const uint64_t *lo, *size; /* [ndim] elements */
	struct mfs_dcp_write_item item;
};

/* A pickled object. */
struct mfs_dcp_write_bytes {
	const char *key;
	struct mfs_dcp_write_item item;
};

/*
 * What the metadata describes. Each function fills *ret for an index below the count. It returns 0,
 * or -errno with err filled, and then the writing ends. Strings and arrays live until the next call
 * of the same function.
 */
struct mfs_dcp_write_ops {
	void *arg;
	uint32_t tensor_count, bytes_count;
	int (*tensor)(void *arg, uint32_t tensor, struct mfs_dcp_write_tensor *ret,
		      struct mfs_error *err);
	int (*chunk)(void *arg, uint32_t tensor, uint32_t chunk, struct mfs_dcp_write_chunk *ret,
		     struct mfs_error *err);
	int (*bytes)(void *arg, uint32_t index, struct mfs_dcp_write_bytes *ret,
		     struct mfs_error *err);
};

/* Appends the pickle to out. The caller keeps the rules of mfs_dcp_check(). */
int mfs_dcp_write(const struct mfs_dcp_write_ops *writer, struct mfs_buf *out,
		  struct mfs_error *err);

#endif
