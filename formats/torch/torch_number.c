/* One number in a tensor: Adam's step, a loss scale. */
#include "formats/torch/torch_file.h"

union number {
	float f32;
	double f64;
	int32_t i32;
	int64_t i64;
};

static bool to_double(const union number *n, enum mfs_dtype dtype, double *ret)
{
	switch (dtype) {
	case MFS_F32:
		*ret = (double)n->f32;
		return true;
	case MFS_F64:
		*ret = n->f64;
		return true;
	case MFS_I32:
		*ret = n->i32;
		return true;
	case MFS_I64:
		*ret = (double)n->i64;
		return true;
	default:
		return false;
	}
}

int mfs_torch_number(const struct mfs_torch_file *f, mfs_value v, double *ret,
		     struct mfs_error *err)
{
	struct mfs_torch_tensor t;
	union number n;
	uint64_t at, count;
	int rc = mfs_torch_tensor(f, v, &t, err);

	if (!rc && (!mfs_shape_count(t.shape, t.ndim, &count) || count != 1 ||
		    mfs_dtype_size(t.dtype) > sizeof(n)))
		rc = mfs_fail(err, -EINVAL, "%s: expected one number", f->zip.src.name);
	if (!rc)
		rc = mfs_zip_locate(&f->zip.src, t.record, &at, err);
	if (!rc)
		rc = mfs_source_read(&f->zip.src, at + t.offset * mfs_dtype_size(t.dtype), &n,
				     mfs_dtype_size(t.dtype), err);
	if (!rc && !to_double(&n, t.dtype, ret))
		rc = mfs_fail(err, -EINVAL, "%s: expected a number, found %s", f->zip.src.name,
			      mfs_dtype_torch(t.dtype));
	return rc;
}
