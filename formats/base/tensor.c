#include "formats/base/tensor.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"

static const struct {
	unsigned size;
	const char *safetensors, *torch, *storage;
} dtypes[] = {
	[MFS_DTYPE_NONE] = {0, "?", "?", "?"},
	[MFS_BOOL] = {1, "BOOL", "bool", "BoolStorage"},
	[MFS_U8] = {1, "U8", "uint8", "ByteStorage"},
	[MFS_I8] = {1, "I8", "int8", "CharStorage"},
	[MFS_F8_E5M2] = {1, "F8_E5M2", "float8_e5m2", "?"},
	[MFS_F8_E4M3] = {1, "F8_E4M3", "float8_e4m3fn", "?"},
	[MFS_I16] = {2, "I16", "int16", "ShortStorage"},
	[MFS_U16] = {2, "U16", "uint16", "?"},
	[MFS_F16] = {2, "F16", "float16", "HalfStorage"},
	[MFS_BF16] = {2, "BF16", "bfloat16", "BFloat16Storage"},
	[MFS_I32] = {4, "I32", "int32", "IntStorage"},
	[MFS_U32] = {4, "U32", "uint32", "?"},
	[MFS_F32] = {4, "F32", "float32", "FloatStorage"},
	[MFS_F64] = {8, "F64", "float64", "DoubleStorage"},
	[MFS_I64] = {8, "I64", "int64", "LongStorage"},
	[MFS_U64] = {8, "U64", "uint64", "?"},
	[MFS_C64] = {8, "C64", "complex64", "ComplexFloatStorage"},
	[MFS_C128] = {16, "?", "complex128", "ComplexDoubleStorage"},
};

#define DTYPES MFS_ARRAY_SIZE(dtypes)

unsigned mfs_dtype_size(enum mfs_dtype t)
{
	return dtypes[t].size;
}

bool mfs_dtype_is_float(enum mfs_dtype t)
{
	return t == MFS_BF16 || t == MFS_F16 || t == MFS_F32 || t == MFS_F64;
}

const char *mfs_dtype_name(enum mfs_dtype t)
{
	return dtypes[t].safetensors;
}

const char *mfs_dtype_torch(enum mfs_dtype t)
{
	return dtypes[t].torch;
}

enum mfs_dtype mfs_dtype_from_torch(const char *name)
{
	for (size_t i = 1; i < DTYPES; i++)
		if (!strcmp(dtypes[i].torch, name))
			return (enum mfs_dtype)i;
	return MFS_DTYPE_NONE;
}

enum mfs_dtype mfs_dtype_from_safetensors(const char *name)
{
	for (size_t i = 1; i < DTYPES; i++)
		if (strcmp(dtypes[i].safetensors, "?") && !strcmp(dtypes[i].safetensors, name))
			return (enum mfs_dtype)i;
	return MFS_DTYPE_NONE;
}

enum mfs_dtype mfs_dtype_from_storage(const char *class_name)
{
	for (size_t i = 1; i < DTYPES; i++)
		if (strcmp(dtypes[i].storage, "?") && !strcmp(dtypes[i].storage, class_name))
			return (enum mfs_dtype)i;
	return MFS_DTYPE_NONE;
}

const char *mfs_dtype_storage(enum mfs_dtype t)
{
	return strcmp(dtypes[t].storage, "?") ? dtypes[t].storage : NULL;
}

bool mfs_dtype_range(enum mfs_dtype dtype, int64_t *ret_least, int64_t *ret_most)
{
	const unsigned bits = 8 * mfs_dtype_size(dtype);

	switch (dtype) {
	case MFS_U8:
	case MFS_U16:
	case MFS_U32:
		*ret_least = 0;
		*ret_most = ((int64_t)1 << bits) - 1;
		return true;
	case MFS_I8:
	case MFS_I16:
	case MFS_I32:
	case MFS_I64:
		*ret_most = INT64_MAX >> (64 - bits);
		*ret_least = -*ret_most - 1;
		return true;
	default:
		return false;
	}
}

bool mfs_shape_count(const uint64_t *shape, unsigned ndim, uint64_t *ret_count)
{
	uint64_t count = 1;

	for (unsigned i = 0; i < ndim; i++)
		if (mfs_mul_overflows(count, shape[i], &count))
			return false;
	*ret_count = count;
	return true;
}

const char *mfs_shape_text(const uint64_t *shape, unsigned ndim, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "[");

	for (unsigned i = 0; i < ndim && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%llu", i ? ", " : "",
					 (unsigned long long)shape[i]);
	if (used < size)
		snprintf(text + used, size - used, "]");
	return text;
}

#define WIDEN_FROM(type)                                                                           \
	do {                                                                                       \
		const type *v_ = (const type *)from;                                               \
                                                                                                   \
		for (uint64_t k = 0; k < count; k++)                                               \
			ret[k] = v_[k];                                                            \
	} while (0)

bool mfs_dtype_widen(enum mfs_dtype dtype, const void *from, uint64_t count, int64_t *ret)
{
	switch (dtype) {
	case MFS_U8:
		WIDEN_FROM(uint8_t);
		return true;
	case MFS_I8:
		WIDEN_FROM(int8_t);
		return true;
	case MFS_I16:
		WIDEN_FROM(int16_t);
		return true;
	case MFS_U16:
		WIDEN_FROM(uint16_t);
		return true;
	case MFS_I32:
		WIDEN_FROM(int32_t);
		return true;
	case MFS_U32:
		WIDEN_FROM(uint32_t);
		return true;
	case MFS_I64:
		WIDEN_FROM(int64_t);
		return true;
	default:
		return false;
	}
}
