/*
 * What torch.save has written: a ZIP of data.pkl and one record per storage
 * (torch/serialization.py:_save), or the stream of torch before 1.6 (torch_stream.h), whose
 * storages are records likewise.
 *
 * Opening reads the pickle and where the records are, but no tensor data. TorchScript archives and
 * compressed ones are refused, and the message says which it is.
 */
#ifndef MFS_TORCH_TORCH_FILE_H
#define MFS_TORCH_TORCH_FILE_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/io/source.h"
#include "formats/torch/pickle.h"
#include "formats/base/tensor.h"
#include "formats/torch/zip.h"

struct mfs_torch_file {
	struct mfs_zip zip;
	void *pickle_bytes;
	struct mfs_pickle *doc;
};

/* A tensor's shape and strides over a storage, in elements. Negative strides are refused. */
struct mfs_torch_tensor {
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_MAX_DIMS], stride[MFS_MAX_DIMS];
	uint64_t offset; /* elements from the storage's start */
	const struct mfs_zip_entry *record;
};

/* src is copied; what it reads from must outlive the file. */
int mfs_torch_file_open(const struct mfs_source *src, struct mfs_torch_file *ret,
			struct mfs_error *err);
void mfs_torch_file_release(struct mfs_torch_file *f);

/* The record of a name without the archive's prefix: "data/0". NULL: there is none. */
const struct mfs_zip_entry *mfs_torch_file_record(const struct mfs_torch_file *f, const char *name);

/* The record of the storage that a persistent id names by key. NULL: there is none. */
const struct mfs_zip_entry *mfs_torch_file_storage(const struct mfs_torch_file *f, const char *key,
						   size_t key_len);

/* Reads all bytes of a record into arena. It is meant for small tensors of a state (random states
 * have 5 kB): the caller has looked at the size. -EINVAL: the record's CRC-32 differs from the one
 * that the writer left, if it left one. */
int mfs_torch_file_read(const struct mfs_torch_file *f, const struct mfs_zip_entry *e,
			struct mfs_arena *arena, void **ret, struct mfs_error *err);

/* The tuple or list inside a torch.Size, or v itself if it is a plain tuple or list of sizes: count
 * it with mfs_value_count(). */
mfs_value mfs_torch_size(const struct mfs_pickle *doc, mfs_value v);
/* The element type of a global torch.NAME; MFS_DTYPE_NONE: it is not an element type. */
enum mfs_dtype mfs_torch_dtype(const struct mfs_pickle *doc, mfs_value v);

/* True if v is a tensor (or a parameter around one), without checking it further. */
bool mfs_torch_is_tensor(const struct mfs_torch_file *f, mfs_value v);

/*
 * Reads the tensor that v stands for. -ENOTSUP: v is not a tensor that lies strided in a storage
 * (the caller adds its name to the message). -EINVAL: the storage's record is missing or too small
 * for the tensor.
 */
int mfs_torch_tensor(const struct mfs_torch_file *f, mfs_value v, struct mfs_torch_tensor *ret,
		     struct mfs_error *err);

/* A tensor whose storage nobody has looked at. */
struct mfs_torch_view {
	struct mfs_torch_tensor tensor; /* record: NULL; dtype: NONE where the storage has it */
	mfs_value storage;
};

/* The two halves of mfs_torch_tensor(), for a pickle whose storages are elsewhere. The first reads
 * the tensor that v of doc stands for, with name for messages. */
int mfs_torch_view(const struct mfs_pickle *doc, const char *name, mfs_value v,
		   struct mfs_torch_view *ret, struct mfs_error *err);
/* The second finds its record. storage: a value of f. */
int mfs_torch_view_over(const struct mfs_torch_file *f, mfs_value storage,
			const struct mfs_torch_view *view, struct mfs_torch_tensor *ret,
			struct mfs_error *err);

/* Reads the one element of a tensor. -EINVAL: it has another number of them, or is no number. */
int mfs_torch_number(const struct mfs_torch_file *f, mfs_value v, double *ret,
		     struct mfs_error *err);

#endif
