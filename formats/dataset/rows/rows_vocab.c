#include "formats/dataset/rows/rows_vocab.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows/rows_vocab_i.h"

#define BLOCK 256 /* tokens that are compared at once: a number that compilers make vectors of */

static const struct mfs_vocab_rows *vocab_of(const struct mfs_rows *r)
{
	return (const struct mfs_vocab_rows *)r;
}

#define FIRST_ABOVE(name, type)                                                                    \
	static uint64_t name(const type *tokens, uint64_t count, type last)                        \
	{                                                                                          \
		uint64_t at = 0;                                                                   \
                                                                                                   \
		for (unsigned above = 0; count - at >= BLOCK; at += BLOCK) {                       \
			for (unsigned i = 0; i < BLOCK; i++)                                       \
				above |= tokens[at + i] > last;                                    \
			if (above)                                                                 \
				break;                                                             \
		}                                                                                  \
		while (at < count && tokens[at] <= last)                                           \
			at++;                                                                      \
		return at;                                                                         \
	}

FIRST_ABOVE(first_above8, uint8_t)
FIRST_ABOVE(first_above16, uint16_t)
FIRST_ABOVE(first_above32, uint32_t)
FIRST_ABOVE(first_above64, uint64_t)

uint64_t mfs_vocab_rows_outside(const struct mfs_vocab_rows *v, const void *tokens, uint64_t count)
{
	const uint64_t last = v->limit - 1;

	switch (v->rows.token_size) {
	case 1:
		return first_above8(tokens, count, (uint8_t)last);
	case 2:
		return first_above16(tokens, count, (uint16_t)last);
	case 4:
		return first_above32(tokens, count, (uint32_t)last);
	default:
		return first_above64(tokens, count, last);
	}
}

/* Says that the token p, which is token t of all, is outside. */
static int outside(const struct mfs_vocab_rows *v, uint64_t t, const void *p, struct mfs_error *err)
{
	uint64_t row;
	int64_t token;
	int rc;

	mfs_dtype_widen(v->rows.dtype, p, 1, &token);
	rc = mfs_rows_find(v->of, t, &row, err);
	if (rc)
		return rc;
	return mfs_fail(err, -EIO, "%s: row %llu holds token %lld, outside of a vocabulary of %llu",
			v->rows.name, (unsigned long long)row, (long long)token,
			(unsigned long long)v->size);
}

static int vocab_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct mfs_vocab_rows *v = vocab_of(r);
	int rc = mfs_rows_read(v->of, first, count, ret, err);
	uint64_t at;

	if (rc)
		return rc;
	at = mfs_vocab_rows_outside(v, ret, count);
	if (at == count)
		return 0;
	return outside(v, first + at, (const uint8_t *)ret + at * v->rows.token_size, err);
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
	struct mfs_vocab_rows *v = (struct mfs_vocab_rows *)r;

	mfs_row_ranges_release(&v->bad);
	free(v);
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
	struct mfs_vocab_rows *v;
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
