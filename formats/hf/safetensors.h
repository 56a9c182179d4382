/*
 * safetensors headers, written and read (safetensors/src/tensor.rs): 8 bytes little-endian length
 * N, N bytes of JSON padded with spaces to a multiple of 8, then the tensors without holes, in the
 * order: dtype rank descending (enum mfs_dtype's order), then name ascending bytewise.
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

/* Appends length and JSON with {"format":"pt"} of tensors that were laid out: the reference
 * writer's bytes exactly. out->failed tells of lack of memory. */
void mfs_safetensors_header(const struct mfs_safetensors_tensor *tensors, uint32_t count,
			    struct mfs_buf *out);

struct mfs_safetensors {
	struct mfs_safetensors_tensor *tensors; /* in file order */
	uint32_t count;
	uint64_t data; /* offset of the first tensor byte in the source */
	struct mfs_arena arena;
};

/* Reads and checks a header: -EINVAL for anything the reference refuses (holes, overlaps, wrong
 * sizes, duplicates, trailing bytes); -ENOTSUP for dtypes of less than a byte. */
int mfs_safetensors_open(const struct mfs_source *src, struct mfs_safetensors *ret,
			 struct mfs_error *err);
void mfs_safetensors_release(struct mfs_safetensors *st);

#endif
