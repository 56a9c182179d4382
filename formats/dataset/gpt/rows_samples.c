#define _GNU_SOURCE
#include "formats/dataset/gpt/rows_samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/gpt/rows_samples_i.h"

static const struct mfs_rows_column dataset_column = {"dataset_id", MFS_I16};

static struct mfs_sample_rows *sample_rows_of(const struct mfs_rows *r)
{
	return (struct mfs_sample_rows *)r;
}

static int sample_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			 struct mfs_error *err)
{
	(void)err;
	for (uint64_t i = 0; i < count; i++)
		ret[i] = (first + i) * r->row_length;
	return 0;
}

static int sample_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
			 void *ret, struct mfs_error *err)
{
	(void)column; /* there is one */
	return mfs_blend_read(mfs_samples_blend(sample_rows_of(r)->samples), first, count, ret,
			      NULL, err);
}

static void sample_drop(const struct mfs_rows *r)
{
	const struct mfs_samples *s = sample_rows_of(r)->samples;

	for (uint32_t i = 0; i < mfs_samples_members(s); i++)
		mfs_rows_drop(mfs_samples_member(s, i)->rows);
}

static void sample_free(struct mfs_rows *r)
{
	struct mfs_sample_rows *x = sample_rows_of(r);

	free(x->name);
	free(x->sets);
	free(x);
}

static const struct mfs_rows_ops sample_ops = {
	.starts = sample_starts,
	.read = mfs_sample_rows_read,
	.column = sample_column,
	.drop = sample_drop,
	.free = sample_free,
};

/* ---- types ---- */

static bool holds(enum mfs_dtype a, enum mfs_dtype b)
{
	int64_t least[2], most[2];

	return mfs_dtype_range(a, &least[0], &most[0]) && mfs_dtype_range(b, &least[1], &most[1]) &&
	       least[0] <= least[1] && most[0] >= most[1];
}

/* The smallest type that holds both; MFS_DTYPE_NONE if one is no integer. */
static enum mfs_dtype widen(enum mfs_dtype a, enum mfs_dtype b)
{
	static const enum mfs_dtype types[] = {MFS_U8,	MFS_I8,	 MFS_I16, MFS_U16,
					       MFS_I32, MFS_U32, MFS_I64};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++)
		if (holds(types[i], a) && holds(types[i], b))
			return types[i];
	return MFS_DTYPE_NONE;
}

static int choose_dtype(struct mfs_sample_rows *x, struct mfs_error *err)
{
	const struct mfs_samples *s = x->samples;
	enum mfs_dtype dtype = mfs_samples_member(s, 0)->rows->dtype;

	for (uint32_t i = 1; i < mfs_samples_members(s); i++) {
		const struct mfs_rows *other = mfs_samples_member(s, i)->rows;
		const enum mfs_dtype both = widen(dtype, other->dtype);

		if (other->dtype == dtype)
			continue;
		if (!both)
			return mfs_fail(err, -ENOTSUP, "%s has tokens of %s, others of %s",
					other->name, mfs_dtype_torch(other->dtype),
					mfs_dtype_torch(dtype));
		dtype = both;
	}
	x->rows.dtype = dtype;
	x->rows.token_size = mfs_dtype_size(dtype);
	return 0;
}

static int set_pad(struct mfs_sample_rows *x, int64_t pad, struct mfs_error *err)
{
	int64_t least = 0, most = 0;

	mfs_dtype_range(x->rows.dtype, &least, &most);
	if (pad && (pad < least || pad > most))
		return mfs_fail(err, -EINVAL, "token %lld does not fit the type %s", (long long)pad,
				mfs_dtype_torch(x->rows.dtype));
	mfs_put_le64(x->pad, (uint64_t)pad);
	return 0;
}

/* ---- opening ---- */

static bool has_set(const struct mfs_sample_rows *x, const struct mfs_fileset *set)
{
	for (size_t i = 0; i < x->rows.set_count; i++)
		if (x->sets[i] == set)
			return true;
	return false;
}

/* The files of all datasets, each once. */
static int gather_sets(struct mfs_sample_rows *x, struct mfs_error *err)
{
	const struct mfs_samples *s = x->samples;
	size_t count = 0;

	for (uint32_t i = 0; i < mfs_samples_members(s); i++)
		count += mfs_samples_member(s, i)->rows->set_count;
	x->sets = calloc(count + 1, sizeof(struct mfs_fileset *));
	if (!x->sets)
		return mfs_fail_nomem(err);
	x->rows.sets = x->sets;
	for (uint32_t i = 0; i < mfs_samples_members(s); i++) {
		const struct mfs_rows *r = mfs_samples_member(s, i)->rows;

		for (size_t k = 0; k < r->set_count; k++)
			if (!has_set(x, r->sets[k]))
				x->sets[x->rows.set_count++] = r->sets[k];
	}
	return 0;
}

static int fill(struct mfs_sample_rows *x, int64_t pad, struct mfs_error *err)
{
	struct mfs_rows *r = &x->rows;
	int rc = choose_dtype(x, err);

	if (!rc)
		rc = set_pad(x, pad, err);
	if (!rc)
		rc = gather_sets(x, err);
	if (rc)
		return rc;
	r->rows = mfs_samples_count(x->samples);
	r->row_length = mfs_samples_length(x->samples);
	if (mfs_mul_overflows(r->rows, r->row_length, &r->tokens) || r->tokens > INT64_MAX / 8)
		return mfs_fail(err, -EINVAL, "%llu samples of %llu tokens are too many",
				(unsigned long long)r->rows, (unsigned long long)r->row_length);
	if (mfs_samples_blend(x->samples)) {
		r->columns = &dataset_column;
		r->column_count = 1;
	}
	return mfs_sample_rows_find_bad(x, err);
}

int mfs_rows_samples(struct mfs_samples *s, const char *name, int64_t pad, struct mfs_rows **ret,
		     struct mfs_error *err)
{
	struct mfs_sample_rows *x = calloc(1, sizeof(*x));
	int rc;

	if (!x || !(x->name = strdup(name))) {
		free(x);
		return mfs_fail_nomem(err);
	}
	x->samples = s;
	x->rows.ops = &sample_ops;
	x->rows.name = x->name;
	rc = fill(x, pad, err);
	if (rc) {
		mfs_rows_free(&x->rows);
		return rc;
	}
	*ret = &x->rows;
	return 0;
}
