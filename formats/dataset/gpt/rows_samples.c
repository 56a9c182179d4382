#define _GNU_SOURCE
#include "formats/dataset/gpt/rows_samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	mfs_row_ranges_release(&x->bad);
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

/* Integers by what they hold, smallest first. */
static const struct range {
	enum mfs_dtype dtype;
	int64_t least, most;
} ranges[] = {
	{MFS_U8, 0, UINT8_MAX},		 {MFS_I8, INT8_MIN, INT8_MAX},
	{MFS_I16, INT16_MIN, INT16_MAX}, {MFS_U16, 0, UINT16_MAX},
	{MFS_I32, INT32_MIN, INT32_MAX}, {MFS_U32, 0, UINT32_MAX},
	{MFS_I64, INT64_MIN, INT64_MAX},
};

static const struct range *range_of(enum mfs_dtype dtype)
{
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (ranges[i].dtype == dtype)
			return &ranges[i];
	return NULL;
}

static bool holds(const struct range *a, const struct range *b)
{
	return a->least <= b->least && a->most >= b->most;
}

/* The first type that holds both; NULL if one is none of the integers above. */
static const struct range *widen(enum mfs_dtype a, enum mfs_dtype b)
{
	const struct range *x = range_of(a), *y = range_of(b), *both = ranges;

	if (!x || !y)
		return NULL;
	while (!holds(both, x) || !holds(both, y))
		both++;
	return both;
}

static int choose_dtype(struct mfs_sample_rows *x, struct mfs_error *err)
{
	const struct mfs_samples *s = x->samples;
	enum mfs_dtype dtype = mfs_samples_member(s, 0)->rows->dtype;

	for (uint32_t i = 1; i < mfs_samples_members(s); i++) {
		const struct mfs_rows *other = mfs_samples_member(s, i)->rows;
		const struct range *both;

		if (other->dtype == dtype)
			continue;
		both = widen(dtype, other->dtype);
		if (!both)
			return mfs_fail(err, -ENOTSUP, "%s has tokens of %s, others of %s",
					other->name, mfs_dtype_torch(other->dtype),
					mfs_dtype_torch(dtype));
		dtype = both->dtype;
	}
	x->rows.dtype = dtype;
	x->rows.token_size = mfs_dtype_size(dtype);
	return 0;
}

static int set_pad(struct mfs_sample_rows *x, int64_t pad, struct mfs_error *err)
{
	const struct range *range = range_of(x->rows.dtype);

	if (pad && (!range || pad < range->least || pad > range->most))
		return mfs_fail(err, -EINVAL, "%lld is no token of type %s", (long long)pad,
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
		sample_free(&x->rows);
		return rc;
	}
	*ret = &x->rows;
	return 0;
}
