/*
 * safetensors headers, written and read (safetensors/src/tensor.rs). A file begins with 8 bytes,
 * the little-endian length N of the header. N bytes of JSON follow, padded with spaces to a
 * multiple of 8, and then the tensors without holes. Their order is by dtype rank, descending (the
 * order of enum mfs_dtype), then by name, ascending bytewise.
 */
#ifndef MFS_HF_SAFETENSORS_H
#define MFS_HF_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/io/source.h"
#include "formats/base/tensor.h"

#define MFS_SAFETENSORS_MAX_HEADER 100000000 /* bytes, the reference's own limit */

struct mfs_safetensors_tensor {
	const char *name;
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_MAX_DIMS];
	uint64_t begin, end; /* bytes from the first tensor byte; filled by layout and by open */
};

/* Orders tensors as the reference writer does and assigns offsets. -EINVAL on overflow. */
int mfs_safetensors_layout(struct mfs_safetensors_tensor *tensors, uint32_t count,
			   struct mfs_error *err);

/* Appends the length and the JSON, with {"format":"pt"}, of tensors that were laid out. The bytes
 * are exactly the reference writer's. out->failed: out of memory. */
void mfs_safetensors_header(const struct mfs_safetensors_tensor *tensors, uint32_t count,
			    struct mfs_buf *out);

struct mfs_safetensors_text {
	const char *key, *value;
};

struct mfs_safetensors {
	struct mfs_safetensors_tensor *tensors; /* in file order */
	uint32_t count;
	struct mfs_safetensors_text *metadata; /* in the header's order */
	uint32_t metadata_count;
	uint64_t data; /* offset of the first tensor byte in the source */
	struct mfs_arena arena;
};

/* Reads and checks a header. -EINVAL: the reference refuses it, too (holes, overlaps, wrong sizes,
 * duplicates, trailing bytes). -ENOTSUP: a dtype of less than a byte. */
int mfs_safetensors_open(const struct mfs_source *src, struct mfs_safetensors *ret,
			 struct mfs_error *err);
void mfs_safetensors_release(struct mfs_safetensors *st);

#endif
