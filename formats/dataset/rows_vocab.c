#include "formats/dataset/rows_vocab.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "formats/base/bytes.h"

#define BLOCK 256 /* tokens that are compared at once: a number that compilers make vectors of */

struct vocab {
	struct mfs_rows rows;
	const struct mfs_rows *of;
	uint64_t size;
	/* Tokens as unsigned numbers of their width are below it, or outside: negative ones are large. */
	uint64_t limit;
};

static const struct vocab *vocab_of(const struct mfs_rows *r)
{
	return (const struct vocab *)r;
}

#define ALL_BELOW(name, type)                                                                      \
	static bool name(const type *tokens, uint64_t count, type last)                            \
	{                                                                                          \
		unsigned above = 0;                                                                \
                                                                                                   \
		for (; count >= BLOCK && !above; count -= BLOCK, tokens += BLOCK)                  \
			for (unsigned i = 0; i < BLOCK; i++)                                       \
				above |= tokens[i] > last;                                         \
		for (; count && !above; count--)                                                   \
			above = *tokens++ > last;                                                  \
		return !above;                                                                     \
	}

ALL_BELOW(all_below8, uint8_t)
ALL_BELOW(all_below16, uint16_t)
ALL_BELOW(all_below32, uint32_t)
ALL_BELOW(all_below64, uint64_t)

static bool all_inside(const struct vocab *v, const void *tokens, uint64_t count)
{
	const uint64_t last = v->limit - 1;

	switch (v->rows.token_size) {
	case 1:
		return all_below8(tokens, count, (uint8_t)last);
	case 2:
		return all_below16(tokens, count, (uint16_t)last);
	case 4:
		return all_below32(tokens, count, (uint32_t)last);
	default:
		return all_below64(tokens, count, last);
	}
}

/* Says which of the tokens read at first is the first one outside. */
static int outside(const struct vocab *v, uint64_t first, const void *tokens, struct mfs_error *err)
{
	const uint8_t *p = tokens;
	uint64_t row;
	int64_t token;
	int rc;

	for (; all_inside(v, p, 1); p += v->rows.token_size)
		first++;
	mfs_dtype_widen(v->rows.dtype, p, 1, &token);
	rc = mfs_rows_find(v->of, first, &row, err);
	if (rc)
		return rc;
	return mfs_fail(err, -EIO, "%s: row %llu holds token %lld, outside of a vocabulary of %llu",
			v->rows.name, (unsigned long long)row, (long long)token,
			(unsigned long long)v->size);
}

static int vocab_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct vocab *v = vocab_of(r);
	int rc = mfs_rows_read(v->of, first, count, ret, err);

	if (rc || all_inside(v, ret, count))
		return rc;
	return outside(v, first, ret, err);
}

static int vocab_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			struct mfs_error *err)
{
	return mfs_rows_starts(vocab_of(r)->of, first, count, ret, err);
}

static int vocab_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	return mfs_rows_find(vocab_of(r)->of, t, ret, err);
}

static int vocab_gather_starts(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			       uint64_t *ret, struct mfs_error *err)
{
	return mfs_rows_gather_starts(vocab_of(r)->of, rows, count, ret, err);
}

static int vocab_lengths(const struct mfs_rows *r, uint64_t first, uint64_t count, int32_t *ret,
			 struct mfs_error *err)
{
	return mfs_rows_lengths(vocab_of(r)->of, first, count, ret, err);
}

static int vocab_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
				int32_t *ret, struct mfs_error *err)
{
	return mfs_rows_gather_lengths(vocab_of(r)->of, rows, count, ret, err);
}

static int vocab_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
			void *ret, struct mfs_error *err)
{
	return mfs_rows_column(vocab_of(r)->of, column, first, count, ret, err);
}

static void vocab_drop(const struct mfs_rows *r)
{
	mfs_rows_drop(vocab_of(r)->of);
}

static void vocab_free(struct mfs_rows *r)
{
	free(r);
}

static const struct mfs_rows_ops vocab_ops = {
	.starts = vocab_starts,
	.find = vocab_find,
	.read = vocab_read,
	.gather_starts = vocab_gather_starts,
	.lengths = vocab_lengths,
	.gather_lengths = vocab_gather_lengths,
	.column = vocab_column,
	.drop = vocab_drop,
	.free = vocab_free,
};

/* How many values of the dtype are no negative numbers. */
static bool values(enum mfs_dtype dtype, uint64_t *ret)
{
	switch (dtype) {
	case MFS_U8:
	case MFS_U16:
	case MFS_U32:
		*ret = (uint64_t)1 << 8 * mfs_dtype_size(dtype);
		return true;
	case MFS_I8:
	case MFS_I16:
	case MFS_I32:
	case MFS_I64:
		*ret = (uint64_t)1 << (8 * mfs_dtype_size(dtype) - 1);
		return true;
	default:
		return false;
	}
}

int mfs_rows_vocab(const struct mfs_rows *of, uint64_t vocab_size, struct mfs_rows **ret,
		   struct mfs_error *err)
{
	struct vocab *v;
	uint64_t count;

	if (!values(of->dtype, &count))
		return mfs_fail(err, -ENOTSUP,
				"%s: tokens of type %s cannot be compared with a vocabulary",
				of->name, mfs_dtype_torch(of->dtype));
	if (!vocab_size)
		return mfs_fail(err, -EINVAL, "%s: a vocabulary of no tokens", of->name);
	v = calloc(1, sizeof(*v));
	if (!v)
		return mfs_fail_nomem(err);
	v->rows = *of;
	v->rows.ops = &vocab_ops;
	v->of = of;
	v->size = vocab_size;
	v->limit = mfs_min_u64(vocab_size, count);
	*ret = &v->rows;
	return 0;
}
