/*
 * torch.save archives that can be laid out before any tensor is read. Every header follows from
 * names and sizes, so a virtual file is literal pieces with payloads between them.
 *
 * Records, their order, headers, padding and ZIP64 fields are those of torch 2.13
 * (torch/serialization.py:_save, caffe2/serialize/inline_container.cc, third_party/miniz). If no
 * payload has a CRC-32, the archive equals torch.save's under torch.serialization.skip_data() to
 * the byte, except for the serialization id. Records in memory have a real CRC-32. Other payloads
 * have 0, which torch does not look at and our reader takes for "not computed".
 */
#ifndef MFS_TORCH_TORCH_WRITE_H
#define MFS_TORCH_TORCH_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/base/tensor.h"

/* The storage of record data/N, N counting from 0. */
struct mfs_torch_payload {
	uint64_t size;	   /* bytes */
	const void *bytes; /* NULL: not in memory; it becomes a segment */
};

#define MFS_TORCH_LITERAL UINT32_MAX

struct mfs_torch_segment {
	uint32_t payload; /* which one, whole; or MFS_TORCH_LITERAL */
	size_t offset;	  /* of a literal: in the archive's literals */
	uint64_t length;  /* bytes */
};

/* A file, front to back. The literals stand in one buffer, in the file's order. Between two
 * payloads there is always a literal: 100 000 storages make 200 001 segments over about 20 MB of
 * literals. */
struct mfs_torch_archive {
	struct mfs_buf literals;
	struct mfs_torch_segment *segments;
	uint32_t count;
	uint64_t size; /* bytes */
};

/*
 * prefix: the directory of all records in the archive. torch.save takes it from the file's name
 * ("model_optim_rng"), and "archive" for a stream. pickle: data.pkl, written by pickle_write.h with
 * protocol 2. -EINVAL: a prefix that is empty, has more than 128 bytes or a slash; more than 2^31
 * payloads; a size that overflows.
 */
int mfs_torch_archive(const char *prefix, const void *pickle, size_t pickle_len,
		      const struct mfs_torch_payload *payloads, uint32_t count,
		      struct mfs_torch_archive *ret, struct mfs_error *err);
void mfs_torch_archive_release(struct mfs_torch_archive *a);

/* Appends a whole archive to out. All payloads must be in memory (-EINVAL). With prefix "archive"
 * and the pickle of a list [object] it is a byte item of a torch_dist checkpoint. */
int mfs_torch_save(const char *prefix, const void *pickle, size_t pickle_len,
		   const struct mfs_torch_payload *payloads, uint32_t count, struct mfs_buf *out,
		   struct mfs_error *err);

/*
 * A tensor's item in a .distcp file: an archive with the prefix "archive" that holds one contiguous
 * tensor. Offsets in it count from its own start. So all items of one dtype and shape have the same
 * bytes around their payloads, and these bytes are made once.
 */
struct mfs_torch_item {
	const void *head;
	size_t head_len;
	uint64_t payload; /* bytes of tensor data; 0 for a tensor without elements */
	const void *tail;
	size_t tail_len;
};

struct mfs_torch_items; /* the table that owns heads and tails */

int mfs_torch_items_new(struct mfs_torch_items **ret, struct mfs_error *err);
void mfs_torch_items_free(struct mfs_torch_items *items);
/* What *ret points to lives as long as the table. Not thread-safe. -EINVAL: a size that overflows,
 * no dtype, or more than MFS_MAX_DIMS axes. */
int mfs_torch_item(struct mfs_torch_items *items, enum mfs_dtype dtype, const uint64_t *shape,
		   unsigned ndim, struct mfs_torch_item *ret, struct mfs_error *err);
static inline uint64_t mfs_torch_item_size(const struct mfs_torch_item *item)
{
	return item->head_len + item->payload + item->tail_len;
}

#endif
