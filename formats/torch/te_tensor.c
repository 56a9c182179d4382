#include "formats/torch/te_tensor.h"

#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"

#define BLOCK	128 /* rows and columns of a block */
#define PADDING 4   /* rows of scales have a multiple of it */
#define MODULE	"transformer_engine."

struct reader {
	const struct mfs_torch_file *f;
	mfs_value args;
	struct mfs_error *err;
};

typedef int (*read_args)(const struct reader *r, struct mfs_te_tensor *ret);

/* A class, and the function that makes objects of it since 2.17. */
struct kind {
	const char *name, *function;
	read_args read;
};

static int read_whole(const struct reader *r, struct mfs_te_tensor *ret);
static int read_blocks(const struct reader *r, struct mfs_te_tensor *ret);

static const struct kind kinds[] = {
	{"Float8Tensor", "_make_float8_tensor_in_reduce_ex", read_whole},
	{"Float8BlockwiseQTensor", "_make_float8_blockwise_tensor_in_reduce_ex", read_blocks},
};

/* ---- which class ---- */

static bool is_of_te(const struct mfs_pickle *doc, mfs_value global, const char **ret_name,
		     size_t *ret_len)
{
	const char *module;
	size_t len;

	return mfs_value_global(doc, global, &module, &len, ret_name, ret_len) &&
	       len > strlen(MODULE) && !memcmp(module, MODULE, strlen(MODULE));
}

/* The name of the class or of the function that makes v. A method of a class is pickled as
 * getattr(class, name). False: it is not of Transformer Engine. */
static bool maker_of(const struct mfs_pickle *doc, mfs_value v, const char **ret, size_t *ret_len)
{
	const mfs_value callable = mfs_value_callable(doc, v);

	if (mfs_value_type(doc, callable) == MFS_V_OBJECT &&
	    mfs_value_is_object_of(doc, callable, "getattr"))
		return is_of_te(doc, mfs_value_at(doc, mfs_value_args(doc, callable), 0), ret,
				ret_len);
	return is_of_te(doc, callable, ret, ret_len);
}

bool mfs_te_is_tensor(const struct mfs_torch_file *f, mfs_value v)
{
	const char *name;
	size_t len;

	return maker_of(f->doc, v, &name, &len);
}

/* ---- arguments ---- */

static mfs_value argument(const struct reader *r, uint32_t i)
{
	return mfs_value_at(r->f->doc, r->args, i);
}

static bool is_there(const struct reader *r, uint32_t i)
{
	return !mfs_value_is_none(r->f->doc, argument(r, i));
}

/* The type of the floats: an enum's number, which is the state of pybind11's and an argument of
 * Python's. Weights are e4m3 in every format of a run, which was 6 until 2.5 and is 7 since. */
static int check_float8(const struct reader *r, uint32_t i)
{
	const struct mfs_pickle *doc = r->f->doc;
	const mfs_value type = argument(r, i), args = mfs_value_args(doc, type);
	int64_t number = 0;

	if ((mfs_value_int(doc, mfs_value_state(doc, type), &number) ||
	     mfs_value_int(doc, mfs_value_at(doc, args, 0), &number)) &&
	    (number == 6 || number == 7))
		return 0;
	if (mfs_value_is_str(doc, mfs_value_at(doc, args, 1), "kFloat8E4M3"))
		return 0;
	return mfs_fail(r->err, -ENOTSUP,
			"%s: 8-bit floats of type %lld of Transformer Engine, expected e4m3",
			r->f->zip.src.name, (long long)number);
}

static int read_dtype(const struct reader *r, uint32_t i, struct mfs_te_tensor *ret)
{
	ret->dtype = mfs_torch_dtype(r->f->doc, argument(r, i));
	if (ret->dtype == MFS_F32 || ret->dtype == MFS_BF16 || ret->dtype == MFS_F16)
		return 0;
	return mfs_fail(r->err, -ENOTSUP, "%s: a weight of 8-bit floats of type %s",
			r->f->zip.src.name, mfs_dtype_torch(ret->dtype));
}

static bool is_contiguous(const struct mfs_torch_tensor *t)
{
	return (t->shape[1] == 1 || t->stride[1] == 1) &&
	       (t->shape[0] == 1 || t->stride[0] == t->shape[1]);
}

static int read_data(const struct reader *r, uint32_t i, struct mfs_te_tensor *ret)
{
	char shape[128];
	int rc = mfs_torch_tensor(r->f, argument(r, i), &ret->data, r->err);

	if (rc)
		return rc;
	if (ret->data.dtype == MFS_U8 && ret->data.ndim == 2 && ret->data.shape[0] &&
	    ret->data.shape[1] && is_contiguous(&ret->data))
		return 0;
	return mfs_fail(r->err, -ENOTSUP,
			"%s: 8-bit floats in a tensor %s of %s, expected a matrix of uint8, row "
			"after row",
			r->f->zip.src.name,
			mfs_shape_text(ret->data.shape, ret->data.ndim, shape, sizeof(shape)),
			mfs_dtype_torch(ret->data.dtype));
}

static uint64_t blocks_of(uint64_t n, uint64_t block)
{
	return (n - 1) / block + 1;
}

/* One scale has one axis or none; it becomes a matrix of one. */
static int read_scale(const struct reader *r, uint32_t i, struct mfs_te_tensor *ret)
{
	const uint64_t rows = blocks_of(ret->data.shape[0], ret->block_rows),
		       cols = blocks_of(ret->data.shape[1], ret->block_cols);
	const bool one = ret->block_rows == ret->data.shape[0] && rows == 1 && cols == 1;
	struct mfs_torch_tensor *t = &ret->scale;
	char shape[128];
	uint64_t count;
	int rc = mfs_torch_tensor(r->f, argument(r, i), t, r->err);

	if (rc)
		return rc;
	if (t->dtype == MFS_F32 && t->ndim == 2 && t->shape[0] == rows && is_contiguous(t) &&
	    (t->shape[1] == cols || t->shape[1] == mfs_round_up(cols, PADDING)))
		return 0;
	if (t->dtype == MFS_F32 && one && mfs_shape_count(t->shape, t->ndim, &count) &&
	    count == 1) {
		t->ndim = 2;
		t->shape[0] = t->shape[1] = t->stride[0] = t->stride[1] = 1;
		return 0;
	}
	return mfs_fail(r->err, -EINVAL,
			"%s: scales %s of %s, expected float32 of %llu rows and %llu columns",
			r->f->zip.src.name, mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape)),
			mfs_dtype_torch(t->dtype), (unsigned long long)rows,
			(unsigned long long)cols);
}

/* The shape that is given must be that of the data. */
static int check_shape(const struct reader *r, uint32_t i, const struct mfs_te_tensor *t)
{
	const struct mfs_pickle *doc = r->f->doc;
	const mfs_value size = mfs_torch_size(doc, argument(r, i));
	int64_t rows = -1, cols = -1;

	if (!is_there(r, i)) /* 1.x gives none */
		return 0;
	mfs_value_int(doc, mfs_value_at(doc, size, 0), &rows);
	mfs_value_int(doc, mfs_value_at(doc, size, 1), &cols);
	if (mfs_value_count(doc, size) == 2 && (uint64_t)rows == t->data.shape[t->transposed] &&
	    (uint64_t)cols == t->data.shape[!t->transposed])
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s: a weight of another shape than its 8-bit floats [%llu, %llu]",
			r->f->zip.src.name, (unsigned long long)t->data.shape[0],
			(unsigned long long)t->data.shape[1]);
}

/* Float8Tensor: data, type, scale, dtype; since 2.0 shape; since 2.19 the transposed data, where
 * there is no other. */
static int read_whole(const struct reader *r, struct mfs_te_tensor *ret)
{
	int rc = check_float8(r, 1);

	ret->transposed = !is_there(r, 0) && is_there(r, 5);
	if (!rc)
		rc = read_dtype(r, 3, ret);
	if (!rc)
		rc = read_data(r, ret->transposed ? 5 : 0, ret);
	if (rc)
		return rc;
	ret->block_rows = ret->data.shape[0];
	ret->block_cols = ret->data.shape[1];
	rc = read_scale(r, 2, ret);
	return rc ? rc : check_shape(r, 4, ret);
}

/* Float8BlockwiseQTensor: shape, data and scales, transposed data and scales, type, dtype, the
 * quantizer, is_2D_scaled. */
static int read_blocks(const struct reader *r, struct mfs_te_tensor *ret)
{
	bool square = false;
	int rc = check_float8(r, 5);

	if (!rc)
		rc = read_dtype(r, 6, ret);
	if (rc)
		return rc;
	mfs_value_bool(r->f->doc, argument(r, 8), &square);
	if (!square)
		return mfs_fail(r->err, -ENOTSUP,
				"%s: a weight with scales of single rows, expected blocks of %d "
				"rows and columns",
				r->f->zip.src.name, BLOCK);
	ret->transposed = !is_there(r, 1);
	ret->block_rows = ret->block_cols = BLOCK;
	rc = read_data(r, ret->transposed ? 3 : 1, ret);
	if (!rc)
		rc = read_scale(r, ret->transposed ? 4 : 2, ret);
	return rc ? rc : check_shape(r, 0, ret);
}

int mfs_te_tensor(const struct mfs_torch_file *f, mfs_value v, struct mfs_te_tensor *ret,
		  struct mfs_error *err)
{
	const struct reader r = {f, mfs_value_args(f->doc, v), err};
	struct mfs_te_tensor t = {0};
	const char *name;
	size_t len = 0;

	if (!maker_of(f->doc, v, &name, &len))
		return mfs_fail(err, -ENOTSUP, "%s: not a tensor of Transformer Engine",
				f->zip.src.name);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++) {
		const struct kind *k = &kinds[i];

		if ((len == strlen(k->name) && !memcmp(name, k->name, len)) ||
		    (len == strlen(k->function) && !memcmp(name, k->function, len))) {
			int rc = k->read(&r, &t);

			if (!rc)
				*ret = t;
			return rc;
		}
	}
	return mfs_fail(err, -ENOTSUP,
			"%s: a weight that is kept as %.*s of Transformer Engine, which is not "
			"supported",
			f->zip.src.name, (int)mfs_min_u64(len, 64), name);
}
