#include "formats/dataset/files/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"

#define PREAMBLE 10 /* magic, version, length of the header */
#define ALIGN	 64
#define GROWTH	 21 /* numpy leaves room for so many digits in the first axis */

static const char magic[8] = "\x93NUMPY\1";

static const struct {
	enum mfs_dtype dtype;
	const char *descr;
} types[] = {
	{MFS_BOOL, "|b1"}, {MFS_U8, "|u1"},  {MFS_I8, "|i1"},  {MFS_I16, "<i2"},
	{MFS_U16, "<u2"},  {MFS_F16, "<f2"}, {MFS_I32, "<i4"}, {MFS_U32, "<u4"},
	{MFS_F32, "<f4"},  {MFS_F64, "<f8"}, {MFS_I64, "<i8"}, {MFS_U64, "<u8"},
};

/* Appends "(3,)", "(3, 4)" or "()" to text. Returns the digits of the first axis. */
static size_t add_shape(char *text, size_t room, const uint64_t *shape, unsigned ndim)
{
	size_t len = strlen(text), digits = 0;

	for (unsigned d = 0; d < ndim; d++) {
		int n = snprintf(text + len, room - len, "%s%llu", d ? ", " : "",
				 (unsigned long long)shape[d]);

		len += (size_t)n;
		if (!d)
			digits = (size_t)n;
	}
	snprintf(text + len, room - len, "%s), }", ndim == 1 ? "," : "");
	return digits;
}

size_t mfs_npy_header(enum mfs_dtype dtype, const uint64_t *shape, unsigned ndim,
		      uint8_t ret[MFS_NPY_HEADER_MAX])
{
	char text[MFS_NPY_HEADER_MAX - PREAMBLE];
	const char *descr = "?";
	size_t digits, len, total;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++)
		if (types[i].dtype == dtype)
			descr = types[i].descr;
	snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
	digits = add_shape(text, sizeof(text), shape, ndim);
	len = strlen(text);
	total = PREAMBLE + len + (ndim ? GROWTH - digits : 0) + 1;
	total = mfs_round_up(total, ALIGN);
	memset(ret, ' ', total);
	memcpy(ret, magic, sizeof(magic));
	ret[8] = (uint8_t)(total - PREAMBLE);
	ret[9] = (uint8_t)((total - PREAMBLE) >> 8);
	memcpy(ret + PREAMBLE, text, len);
	ret[total - 1] = '\n';
	return total;
}

int mfs_npy_file(enum mfs_dtype dtype, const uint64_t *shape, unsigned ndim,
		 const struct mfs_computed_ops *ops, void *object, struct mfs_vfile **ret,
		 struct mfs_error *err)
{
	uint8_t *header = malloc(MFS_NPY_HEADER_MAX);
	struct mfs_vfile *f;
	uint64_t bytes;
	int rc = header ? mfs_vfile_new(&f, err) : mfs_fail_nomem(err);

	if (rc) {
		free(header);
		return rc;
	}
	rc = mfs_vfile_add_literal(f, header, mfs_npy_header(dtype, shape, ndim, header), err);
	if (rc)
		free(header);
	else if (!mfs_shape_count(shape, ndim, &bytes) ||
		 mfs_mul_overflows(bytes, mfs_dtype_size(dtype), &bytes))
		rc = mfs_fail(err, -EINVAL, "an array is too large for a file");
	else if (bytes)
		rc = mfs_vfile_add_computed(f, ops, object, 0, bytes, err);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}
