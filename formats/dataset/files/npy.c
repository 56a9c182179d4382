#include "formats/dataset/files/npy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"

#define PREAMBLE   10 /* magic, version, length of the header */
#define ALIGN	   64
#define GROWTH	   21	 /* numpy leaves room for so many digits in the first axis */
#define MAX_HEADER 10000 /* numpy's own limit on what it reads */

static const char magic[8] = "\x93NUMPY\1";

static const struct {
	enum mfs_dtype dtype;
	const char *descr;
} types[] = {
	{MFS_BOOL, "|b1"}, {MFS_U8, "|u1"},  {MFS_I8, "|i1"},  {MFS_I16, "<i2"},
	{MFS_U16, "<u2"},  {MFS_F16, "<f2"}, {MFS_I32, "<i4"}, {MFS_U32, "<u4"},
	{MFS_F32, "<f4"},  {MFS_F64, "<f8"}, {MFS_I64, "<i8"}, {MFS_U64, "<u8"},
};

/* "(3,)", "(3, 4)", "()" behind what is there; returns the digits of the first axis. */
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

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (types[i].dtype == dtype)
			descr = types[i].descr;
	snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
	digits = add_shape(text, sizeof(text), shape, ndim);
	len = strlen(text);
	total = PREAMBLE + len + (ndim ? GROWTH - digits : 0) + 1;
	total = (total + ALIGN - 1) / ALIGN * ALIGN;
	memset(ret, ' ', total);
	memcpy(ret, magic, sizeof(magic));
	ret[8] = (uint8_t)(total - PREAMBLE);
	ret[9] = (uint8_t)((total - PREAMBLE) >> 8);
	memcpy(ret + PREAMBLE, text, len);
	ret[total - 1] = '\n';
	return total;
}

/* ---- reading ---- */

/* The value of 'key': in the dict's text, or NULL. numpy itself writes every key once, in single quotes. */
static const char *value_of(const char *header, const char *key)
{
	char quoted[32];
	const char *p;

	snprintf(quoted, sizeof(quoted), "'%s':", key);
	p = strstr(header, quoted);
	if (!p)
		return NULL;
	p += strlen(quoted);
	return p + strspn(p, " ");
}

static int read_descr(const char *p, struct mfs_npy *npy)
{
	for (size_t i = 0; p && i < sizeof(types) / sizeof(*types); i++)
		if (p[0] == '\'' && !strncmp(p + 1, types[i].descr, 3) && p[4] == '\'')
			npy->dtype = types[i].dtype;
	return npy->dtype ? 0 : -ENOTSUP;
}

static bool read_shape(const char *p, struct mfs_npy *npy)
{
	if (!p || *p++ != '(')
		return false;
	for (;;) {
		char *end;

		p += strspn(p, " ");
		if (*p == ')')
			return true;
		if (*p < '0' || *p > '9' || npy->ndim == MFS_MAX_DIMS)
			return false;
		errno = 0;
		npy->shape[npy->ndim++] = strtoull(p, &end, 10);
		if (errno)
			return false;
		p = end + strspn(end, " ");
		if (*p == ',')
			p++;
		else if (*p != ')')
			return false;
	}
}

static int read_header(const struct mfs_source *src, char **ret, struct mfs_npy *npy,
		       struct mfs_error *err)
{
	uint8_t preamble[PREAMBLE];
	uint64_t len;
	void *text;
	int rc;

	if (src->size < PREAMBLE)
		return mfs_fail(err, -EINVAL, "%s: not an .npy file", src->name);
	rc = mfs_source_read(src, 0, preamble, PREAMBLE, err);
	if (rc)
		return rc;
	if (memcmp(preamble, magic, 6))
		return mfs_fail(err, -EINVAL, "%s: not an .npy file", src->name);
	if (preamble[6] != 1 || preamble[7])
		return mfs_fail(err, -ENOTSUP, "%s: .npy version %u.%u; only 1.0 is known",
				src->name, preamble[6], preamble[7]);
	len = mfs_le16(preamble + 8);
	if (len > MAX_HEADER || !mfs_range_ok(PREAMBLE, len, src->size))
		return mfs_fail(err, -EINVAL, "%s: its header cannot have %llu bytes", src->name,
				(unsigned long long)len);
	npy->data = PREAMBLE + len;
	rc = mfs_source_slurp(src, PREAMBLE, len, &text, err);
	if (rc)
		return rc;
	*ret = strndup(text, len);
	free(text);
	return *ret ? 0 : mfs_fail_nomem(err);
}

int mfs_npy_open(const struct mfs_source *src, struct mfs_npy *ret, struct mfs_error *err)
{
	struct mfs_npy npy = {0};
	const char *order;
	uint64_t bytes;
	char *header;
	int rc = read_header(src, &header, &npy, err);

	if (rc)
		return rc;
	order = value_of(header, "fortran_order");
	if (!order || !read_shape(value_of(header, "shape"), &npy))
		rc = mfs_fail(err, -EINVAL, "%s: its header lacks the order or the shape",
			      src->name);
	else if (read_descr(value_of(header, "descr"), &npy) || strncmp(order, "False", 5))
		rc = mfs_fail(err, -ENOTSUP, "%s: not an array of little-endian numbers in C order",
			      src->name);
	free(header);
	if (rc)
		return rc;
	if (!mfs_shape_count(npy.shape, npy.ndim, &bytes) ||
	    mfs_mul_overflows(bytes, mfs_dtype_size(npy.dtype), &bytes) ||
	    bytes != src->size - npy.data)
		return mfs_fail(err, -EINVAL, "%s: its shape and its size disagree", src->name);
	*ret = npy;
	return 0;
}
