#include "formats/torch/dcp_write.h"

#include "formats/torch/pickle_write.h"

#define METADATA "torch.distributed.checkpoint.metadata"
#define VERSION	 "1.0.0" /* filesystem.py:CURRENT_DCP_VERSION */

/* The 5-tuple of TensorProperties.__getstate__(). */
static void put_properties(struct mfs_pickle_writer *w, enum mfs_dtype dtype)
{
	mfs_pickle_global(w, METADATA, "TensorProperties");
	mfs_pickle_op(w, MFS_OP_EMPTY_TUPLE);
	mfs_pickle_op(w, MFS_OP_NEWOBJ);
	mfs_pickle_op(w, MFS_OP_MARK);
	mfs_pickle_dtype(w, dtype);
	mfs_pickle_global(w, "torch.serialization", "_get_layout");
	mfs_pickle_name(w, "torch.strided");
	mfs_pickle_op(w, MFS_OP_TUPLE1);
	mfs_pickle_op(w, MFS_OP_REDUCE);
	mfs_pickle_bool(w, false); /* requires_grad */
	mfs_pickle_global(w, METADATA, "_MEM_FORMAT_ENCODING");
	mfs_pickle_int(w, 0); /* TORCH_CONTIGUOUS_FORMAT */
	mfs_pickle_op(w, MFS_OP_TUPLE1);
	mfs_pickle_op(w, MFS_OP_REDUCE);
	mfs_pickle_bool(w, false); /* pin_memory */
	mfs_pickle_op(w, MFS_OP_TUPLE);
	mfs_pickle_op(w, MFS_OP_BUILD);
}

static void put_chunk(struct mfs_pickle_writer *w, const struct mfs_dcp_write_chunk *chunk,
		      unsigned ndim)
{
	mfs_pickle_object_begin(w, METADATA, "ChunkStorageMetadata");
	mfs_pickle_name(w, "offsets");
	mfs_pickle_size(w, chunk->lo, ndim);
	mfs_pickle_name(w, "sizes");
	mfs_pickle_size(w, chunk->size, ndim);
	mfs_pickle_object_end(w);
}

static int put_tensor(struct mfs_pickle_writer *w, const struct mfs_dcp_write_ops *d, uint32_t i,
		      struct mfs_error *err)
{
	struct mfs_dcp_write_tensor t = {0};
	struct mfs_dcp_write_chunk chunk = {0};
	int rc = d->tensor(d->arg, i, &t, err);

	if (rc)
		return rc;
	if (!t.dtype)
		return mfs_fail(err, -EINVAL, "'%s': the tensor has no element type", t.key);
	mfs_pickle_name(w, t.key);
	mfs_pickle_object_begin(w, METADATA, "TensorStorageMetadata");
	mfs_pickle_name(w, "properties");
	put_properties(w, t.dtype);
	mfs_pickle_name(w, "size");
	mfs_pickle_size(w, t.shape, t.ndim);
	mfs_pickle_name(w, "chunks");
	mfs_pickle_list_begin(w);
	for (uint32_t c = 0; c < t.chunk_count && !rc; c++) {
		mfs_pickle_batch(w, MFS_OP_APPENDS, c);
		rc = d->chunk(d->arg, i, c, &chunk, err);
		if (!rc)
			put_chunk(w, &chunk, t.ndim);
	}
	mfs_pickle_list_end(w);
	mfs_pickle_object_end(w);
	return rc;
}

/* state_dict_metadata: what there is. */
static int put_keys(struct mfs_pickle_writer *w, const struct mfs_dcp_write_ops *d,
		    struct mfs_error *err)
{
	struct mfs_dcp_write_bytes bytes = {0};
	int rc = 0;

	mfs_pickle_dict_begin(w);
	for (uint32_t i = 0; i < d->tensor_count && !rc; i++) {
		mfs_pickle_batch(w, MFS_OP_SETITEMS, i);
		rc = put_tensor(w, d, i, err);
	}
	for (uint32_t i = 0; i < d->bytes_count && !rc; i++) {
		mfs_pickle_batch(w, MFS_OP_SETITEMS, i);
		rc = d->bytes(d->arg, i, &bytes, err);
		if (rc)
			break;
		mfs_pickle_name(w, bytes.key);
		mfs_pickle_global(w, METADATA, "BytesStorageMetadata");
		mfs_pickle_op(w, MFS_OP_EMPTY_TUPLE);
		mfs_pickle_op(w, MFS_OP_NEWOBJ);
	}
	mfs_pickle_dict_end(w);
	return rc;
}

/* MetadataIndex: _StorageInfo. chunk is NULL for bytes, whose index has no offset. The index hint
 * is left out: it does not count for equality, and a reader without it searches. */
static void put_place(struct mfs_pickle_writer *w, const char *key,
		      const struct mfs_dcp_write_chunk *chunk, unsigned ndim,
		      const struct mfs_dcp_write_item *item)
{
	mfs_pickle_object_begin(w, METADATA, "MetadataIndex");
	mfs_pickle_name(w, "fqn");
	mfs_pickle_name(w, key);
	mfs_pickle_name(w, "index");
	mfs_pickle_none(w);
	if (chunk) {
		mfs_pickle_name(w, "offset");
		mfs_pickle_size(w, chunk->lo, ndim);
	}
	mfs_pickle_object_end(w);
	mfs_pickle_object_begin(w, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
	mfs_pickle_name(w, "relative_path");
	mfs_pickle_name(w, item->file);
	mfs_pickle_name(w, "offset");
	mfs_pickle_uint(w, item->offset);
	mfs_pickle_name(w, "length");
	mfs_pickle_uint(w, item->length);
	mfs_pickle_object_end(w);
}

/* storage_data: where it lies. */
static int put_places(struct mfs_pickle_writer *w, const struct mfs_dcp_write_ops *d,
		      struct mfs_error *err)
{
	struct mfs_dcp_write_tensor t = {0};
	struct mfs_dcp_write_chunk chunk = {0};
	struct mfs_dcp_write_bytes bytes = {0};
	int rc = 0;

	mfs_pickle_dict_begin(w);
	for (uint32_t i = 0; i < d->bytes_count && !rc; i++) {
		mfs_pickle_batch(w, MFS_OP_SETITEMS, i);
		rc = d->bytes(d->arg, i, &bytes, err);
		if (!rc)
			put_place(w, bytes.key, NULL, 0, &bytes.item);
	}
	for (uint32_t i = 0; i < d->tensor_count && !rc; i++) {
		mfs_pickle_batch(w, MFS_OP_SETITEMS, i);
		rc = d->tensor(d->arg, i, &t, err);
		for (uint32_t c = 0; c < t.chunk_count && !rc; c++) {
			mfs_pickle_batch(w, MFS_OP_SETITEMS, c);
			rc = d->chunk(d->arg, i, c, &chunk, err);
			if (!rc)
				put_place(w, t.key, &chunk, t.ndim, &chunk.item);
		}
	}
	mfs_pickle_dict_end(w);
	return rc;
}

/* planner_data is {}, as in torch's own files, because torch's tools look up keys in it.
 * megatron-core 0.8 to 0.15 asks mcore_data about flattened optimizer tensors, of which there are
 * none here; other readers ignore it. */
static int put_metadata(struct mfs_pickle_writer *w, const struct mfs_dcp_write_ops *d,
			struct mfs_error *err)
{
	int rc;

	mfs_pickle_object_begin(w, METADATA, "Metadata");
	mfs_pickle_name(w, "state_dict_metadata");
	rc = put_keys(w, d, err);
	if (rc)
		return rc;
	mfs_pickle_name(w, "planner_data");
	mfs_pickle_op(w, MFS_OP_EMPTY_DICT);
	mfs_pickle_name(w, "storage_data");
	rc = put_places(w, d, err);
	mfs_pickle_name(w, "storage_meta");
	mfs_pickle_none(w);
	mfs_pickle_name(w, "version");
	mfs_pickle_str(w, VERSION);
	mfs_pickle_name(w, "mcore_data");
	mfs_pickle_op(w, MFS_OP_EMPTY_DICT);
	mfs_pickle_object_end(w);
	return rc;
}

int mfs_dcp_write(const struct mfs_dcp_write_ops *writer, struct mfs_buf *out,
		  struct mfs_error *err)
{
	struct mfs_pickle_writer w;
	int rc;

	mfs_pickle_begin(&w, out, 4);
	rc = put_metadata(&w, writer, err);
	if (rc) {
		mfs_pickle_abandon(&w);
		return rc;
	}
	return mfs_pickle_end(&w, err);
}
