/*
 * Tokens are compared with the vocabulary as they are read. An embedding has no row for a token
 * outside of it, and a program that meets one fails far from here.
 */
#include "formats/dataset/rows/rows_i.h"

#include <errno.h>

#include "formats/base/bytes.h"

#define BLOCK 256 /* tokens that are compared at once: a number that compilers make vectors of */

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

/* Negative tokens are large as unsigned numbers. */
uint64_t mfs_rows_first_outside(const struct mfs_rows *r, const void *tokens, uint64_t count)
{
	int64_t least, most;
	uint64_t last;

	mfs_dtype_range(r->dtype, &least, &most);
	last = mfs_min_u64(r->vocab_size - 1, (uint64_t)most);
	switch (r->token_size) {
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

int mfs_rows_check_vocab(const struct mfs_rows *r, uint64_t first, uint64_t count,
			 const void *tokens, struct mfs_error *err)
{
	const uint64_t at = mfs_rows_first_outside(r, tokens, count);
	uint64_t row;
	int64_t token;
	int rc;

	if (at == count)
		return 0;
	mfs_dtype_widen(r->dtype, (const uint8_t *)tokens + at * r->token_size, 1, &token);
	rc = mfs_rows_find(r, first + at, &row, err);
	return rc ? rc
		  : mfs_fail(err, -EIO,
			     "%s: row %llu holds token %lld, outside of a vocabulary of %llu",
			     r->name, (unsigned long long)row, (long long)token,
			     (unsigned long long)r->vocab_size);
}

int mfs_rows_set_vocab(struct mfs_rows *r, uint64_t vocab_size, struct mfs_error *err)
{
	int64_t least, most;

	if (!mfs_dtype_range(r->dtype, &least, &most))
		return mfs_fail(err, -ENOTSUP,
				"%s: tokens of type %s cannot be compared with a vocabulary",
				r->name, mfs_dtype_torch(r->dtype));
	if (!vocab_size)
		return mfs_fail(err, -EINVAL, "%s: the vocabulary is empty", r->name);
	r->vocab_size = vocab_size;
	return 0;
}
