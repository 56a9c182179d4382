/* Element types and shapes of tensors. */
#ifndef MFS_BASE_TENSOR_H
#define MFS_BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_MAX_DIMS 8 /* a tensor with more axes is refused by the readers */

enum mfs_dtype {
	MFS_DTYPE_NONE,
	MFS_BOOL,
	MFS_U8,
	MFS_I8,
	MFS_F8_E5M2,
	MFS_F8_E4M3,
	MFS_I16,
	MFS_U16,
	MFS_F16,
	MFS_BF16,
	MFS_I32,
	MFS_U32,
	MFS_F32,
	MFS_F64,
	MFS_I64,
	/* the order is safetensors' alignment rank, low to high (safetensors/src/tensor.rs) */
	MFS_U64,
	MFS_C64,
	MFS_C128,
};

/* Bytes of one element; 0 for MFS_DTYPE_NONE. */
unsigned mfs_dtype_size(enum mfs_dtype t);
/* What weights are of, and torch computes with. */
bool mfs_dtype_is_float(enum mfs_dtype t);
/* safetensors' name ("BF16"); "?" if it has none. */
const char *mfs_dtype_name(enum mfs_dtype t);
/* torch's name ("bfloat16"), as in torch.bfloat16 and config.json's "dtype". */
const char *mfs_dtype_torch(enum mfs_dtype t);
enum mfs_dtype mfs_dtype_from_torch(const char *name);
enum mfs_dtype mfs_dtype_from_safetensors(const char *name);
/* From a storage class ("BFloat16Storage"); MFS_DTYPE_NONE if unknown. */
enum mfs_dtype mfs_dtype_from_storage(const char *class_name);
/* The storage class of a type. NULL: it has none, and torch pickles it with an untyped storage. */
const char *mfs_dtype_storage(enum mfs_dtype t);

/* Widens integers to int64. from is aligned for its type. False: the type is not an integer of at
 * most 32 bits, nor int64. */
bool mfs_dtype_widen(enum mfs_dtype dtype, const void *from, uint64_t count, int64_t *ret);

/* The least and the largest integer of the same types. False: it is none of them. */
bool mfs_dtype_range(enum mfs_dtype dtype, int64_t *ret_least, int64_t *ret_most);

/* The number of elements of a shape; 1 if ndim is 0. False: it overflows. */
bool mfs_shape_count(const uint64_t *shape, unsigned ndim, uint64_t *ret_count);

/* Writes "[1024, 64]" into text, which has size bytes, and returns it. */
const char *mfs_shape_text(const uint64_t *shape, unsigned ndim, char *text, size_t size);

#endif
