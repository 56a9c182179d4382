#include "formats/dataset/rows/rows_eod.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows/rows_i.h"

#define CHUNK 256 /* rows that are laid out at once */

/* Token t of row i is token t - i of the rows within. The end of row i comes after its last
 * token. */
struct eod_rows {
	struct mfs_rows rows;
	struct mfs_rows *of;
	int64_t eod; /* its first token_size bytes are the token */
};

static const struct eod_rows *rows_of(const struct mfs_rows *r)
{
	return (const struct eod_rows *)r;
}

static int eod_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		      struct mfs_error *err)
{
	int rc = mfs_rows_starts(rows_of(r)->of, first, count, ret, err);

	for (uint64_t i = 0; i < count && !rc; i++)
		ret[i] += first + i;
	return rc;
}

static int eod_gather_starts(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			     uint64_t *ret, struct mfs_error *err)
{
	int rc = mfs_rows_gather_starts(rows_of(r)->of, rows, count, ret, err);

	for (uint64_t i = 0; i < count && !rc; i++)
		ret[i] += (uint64_t)rows[i];
	return rc;
}

static int eod_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			      int32_t *ret, struct mfs_error *err)
{
	int rc = mfs_rows_gather_lengths(rows_of(r)->of, rows, count, ret, err);

	for (uint64_t i = 0; i < count && !rc; i++) {
		if (ret[i] == INT32_MAX)
			return mfs_fail(
				err, -EINVAL,
				"%s: row %d has 2^31 tokens with its end token, more than 2^31 - 1",
				r->name, rows[i]);
		ret[i]++;
	}
	return rc;
}

/* Lays out whole rows: tokens of the rows within from `from` on, with an end token after each of
 * ends[0..count). All tokens are read to where the last ones belong, and the others are then moved
 * forward. */
static int lay_out(const struct eod_rows *e, uint64_t from, const uint64_t *ends, uint64_t count,
		   uint8_t *to, struct mfs_error *err)
{
	const unsigned size = e->rows.token_size;
	const uint8_t *next = to + count * size;
	int rc = mfs_rows_read(e->of, from, ends[count - 1] - from, to + count * size, err);

	for (uint64_t i = 0; i < count && !rc; i++) {
		const size_t len = (ends[i] - from) * size;

		memmove(to, next, len);
		memcpy(to + len, &e->eod, size);
		to += len + size;
		next += len;
		from = ends[i];
	}
	return rc;
}

/* Reads count tokens. The first is token `from` of the rows within, which is in `row`, or the
 * end of `row` before it. */
static int read_rows(const struct eod_rows *e, uint64_t row, uint64_t from, uint64_t count,
		     uint8_t *to, struct mfs_error *err)
{
	const unsigned size = e->rows.token_size;
	uint64_t ends[CHUNK];
	int rc = 0;

	while (count && !rc) {
		const uint64_t n = mfs_min_u64(CHUNK, e->rows.rows - row);
		uint64_t whole = 0, len;

		rc = mfs_rows_starts(e->of, row + 1, n, ends, err);
		while (!rc && whole < n && ends[whole] - from + whole + 1 <= count)
			whole++;
		if (!rc && whole) {
			len = ends[whole - 1] - from + whole;
			rc = lay_out(e, from, ends, whole, to, err);
			to += len * size;
			count -= len;
			from = ends[whole - 1];
			row += whole;
		}
		if (!rc && whole < n) /* what is left ends within row */
			return mfs_rows_read(e->of, from, count, to, err);
	}
	return rc;
}

static int eod_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		    struct mfs_error *err)
{
	uint64_t row;
	int rc = mfs_rows_find(r, first, &row, err);

	return rc ? rc : read_rows(rows_of(r), row, first - row, count, ret, err);
}

static int eod_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
		      void *ret, struct mfs_error *err)
{
	return mfs_rows_column(rows_of(r)->of, column, first, count, ret, err);
}

static void eod_drop(const struct mfs_rows *r)
{
	mfs_rows_drop(rows_of(r)->of);
}

static void eod_free(struct mfs_rows *r)
{
	mfs_rows_free(((struct eod_rows *)r)->of);
	free(r);
}

static const struct mfs_rows_ops eod_ops = {
	.starts = eod_starts,
	.read = eod_read,
	.gather_starts = eod_gather_starts,
	.gather_lengths = eod_gather_lengths,
	.column = eod_column,
	.drop = eod_drop,
	.free = eod_free,
};

int mfs_rows_eod(struct mfs_rows *of, int64_t eod, struct mfs_rows **ret, struct mfs_error *err)
{
	struct eod_rows *e;
	int64_t least, most;

	if (!mfs_dtype_range(of->dtype, &least, &most) || eod < least || eod > most)
		return mfs_fail(err, -EINVAL,
				"%s: its tokens are %s, which cannot hold the end token %lld",
				of->name, mfs_dtype_torch(of->dtype), (long long)eod);
	e = calloc(1, sizeof(*e));
	if (!e)
		return mfs_fail_nomem(err);
	e->rows = mfs_rows_like(of, &eod_ops);
	e->rows.tokens += of->rows; /* both are below 2^63 */
	if (of->row_length)
		e->rows.row_length++;
	e->of = of;
	e->eod = eod;
	*ret = &e->rows;
	return 0;
}
