#include "formats/dataset/rows/rows_permuted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/rows/rows_i.h"

#define STRIDE	 MFS_PERMUTED_STRIDE
#define MAX_SETS 16

struct permuted_rows {
	struct mfs_rows rows;
	struct mfs_rows *of, *numbers;
	uint64_t *sums; /* tokens before row i * STRIDE */
	struct mfs_fileset *sets[MAX_SETS];
};

static const struct permuted_rows *rows_of(const struct mfs_rows *r)
{
	return (const struct permuted_rows *)r;
}

/* The numbers of rows [first, first+count), count <= STRIDE. */
static int read_numbers(const struct permuted_rows *p, uint64_t first, uint64_t count, int32_t *ret,
			struct mfs_error *err)
{
	int64_t numbers[STRIDE];
	int rc = mfs_rows_read_int64(p->numbers, first, count, numbers, err);

	for (uint64_t i = 0; i < count && !rc; i++) {
		if (numbers[i] < 0 || (uint64_t)numbers[i] >= p->of->rows)
			rc = mfs_fail(err, -EINVAL,
				      "%s: index %llu points to row %lld, but there are %llu rows",
				      p->numbers->name, (unsigned long long)(first + i),
				      (long long)numbers[i], (unsigned long long)p->of->rows);
		else
			ret[i] = (int32_t)numbers[i];
	}
	return rc;
}

/* Numbers and lengths of the rows from a multiple of STRIDE on: STRIDE rows, or fewer at the
 * end. */
struct block {
	uint64_t first, count, start;
	int32_t numbers[STRIDE], lengths[STRIDE];
};

static int read_block(const struct permuted_rows *p, uint64_t number, struct block *ret,
		      struct mfs_error *err)
{
	int rc;

	ret->first = number * STRIDE;
	ret->count = mfs_min_u64(STRIDE, p->rows.rows - ret->first);
	ret->start = p->sums[number];
	rc = read_numbers(p, ret->first, ret->count, ret->numbers, err);
	if (rc)
		return rc;
	return mfs_rows_gather_lengths(p->of, ret->numbers, ret->count, ret->lengths, err);
}

static int permuted_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			   struct mfs_error *err)
{
	const struct permuted_rows *p = rows_of(r);
	struct block b;
	int rc = 0;

	if (first + count > r->rows) /* the end */
		ret[--count] = r->tokens;
	while (count && !rc) {
		uint64_t start, i = 0;

		rc = read_block(p, first / STRIDE, &b, err);
		if (rc)
			break;
		start = b.start;
		for (; i < first - b.first; i++)
			start += (uint64_t)b.lengths[i];
		for (; i < b.count && count; i++, first++, count--) {
			*ret++ = start;
			start += (uint64_t)b.lengths[i];
		}
	}
	return rc;
}

/* The block that holds token t, and in it the row: *ret_row is its place, *ret_start the token it
 * begins at. */
static int find_in_blocks(const struct permuted_rows *p, uint64_t t, struct block *b,
			  uint64_t *ret_row, uint64_t *ret_start, struct mfs_error *err)
{
	const uint64_t blocks = (p->rows.rows + STRIDE - 1) / STRIDE;
	uint64_t start;
	int rc = read_block(p, mfs_last_while(i, blocks, p->sums[i] <= t), b, err);

	if (rc)
		return rc;
	start = b->start;
	for (uint64_t i = 0; i < b->count; start += (uint64_t)b->lengths[i], i++) {
		if (t - start >= (uint64_t)b->lengths[i])
			continue;
		*ret_row = i;
		*ret_start = start;
		return 0;
	}
	return mfs_fail(err, -EIO, "%s: the lengths of its rows have changed since it was opened",
			p->rows.name);
}

static int permuted_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	struct block b;
	uint64_t row, start;
	int rc = find_in_blocks(rows_of(r), t, &b, &row, &start, err);

	if (!rc)
		*ret = b.first + row;
	return rc;
}

/* Where a row's token lies in the rows beneath. */
static int token_beneath(const struct permuted_rows *p, int32_t number, uint64_t within,
			 uint64_t *ret, struct mfs_error *err)
{
	int rc = mfs_rows_start(p->of, (uint64_t)number, ret, err);

	*ret += rc ? 0 : within;
	return rc;
}

/* Reads tokens of one block from its row on, and moves *count and *to. */
static int read_in_block(const struct permuted_rows *p, const struct block *b, uint64_t row,
			 uint64_t within, uint64_t *count, uint8_t **to, struct mfs_error *err)
{
	uint64_t at, n;
	int rc = 0;

	for (; row < b->count && *count && !rc; row++, within = 0) {
		n = mfs_min_u64(*count, (uint64_t)b->lengths[row] - within);
		if (!n)
			continue;
		rc = token_beneath(p, b->numbers[row], within, &at, err);
		if (!rc)
			rc = mfs_rows_read(p->of, at, n, *to, err);
		*to += n * p->rows.token_size;
		*count -= n;
	}
	return rc;
}

static int permuted_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
			 struct mfs_error *err)
{
	const struct permuted_rows *p = rows_of(r);
	struct block b;
	uint64_t row, start;
	uint8_t *to = ret;
	int rc = find_in_blocks(p, first, &b, &row, &start, err);

	if (!rc)
		rc = read_in_block(p, &b, row, first - start, &count, &to, err);
	for (uint64_t next = b.first / STRIDE + 1; count && !rc; next++) {
		rc = read_block(p, next, &b, err);
		if (!rc)
			rc = read_in_block(p, &b, 0, 0, &count, &to, err);
	}
	return rc;
}

static int permuted_extent(const struct mfs_rows *r, uint64_t t, uint64_t max,
			   struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct permuted_rows *p = rows_of(r);
	struct block b;
	uint64_t row, start, at;
	int rc = find_in_blocks(p, t, &b, &row, &start, err);

	if (!rc)
		rc = token_beneath(p, b.numbers[row], t - start, &at, err);
	if (rc)
		return rc;
	max = mfs_min_u64(max, start + (uint64_t)b.lengths[row] - t);
	return mfs_rows_extent(p->of, at, max, ret, err);
}

static int permuted_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
				   int32_t *ret, struct mfs_error *err)
{
	const struct permuted_rows *p = rows_of(r);
	int32_t number;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		rc = read_numbers(p, (uint64_t)rows[i], 1, &number, err);
		if (!rc)
			rc = mfs_rows_gather_lengths(p->of, &number, 1, &ret[i], err);
	}
	return rc;
}

static void permuted_drop(const struct mfs_rows *r)
{
	mfs_rows_drop(rows_of(r)->of);
	mfs_rows_drop(rows_of(r)->numbers);
}

static void permuted_free(struct mfs_rows *r)
{
	struct permuted_rows *p = (struct permuted_rows *)r;

	mfs_rows_free(p->of);
	mfs_rows_free(p->numbers);
	free(p->sums);
	free(p);
}

static const struct mfs_rows_ops permuted_ops = {
	.starts = permuted_starts,
	.find = permuted_find,
	.read = permuted_read,
	.extent = permuted_extent,
	.gather_lengths = permuted_gather_lengths,
	.drop = permuted_drop,
	.free = permuted_free,
};

/* The pass over all lengths. */
static int sum_up(struct permuted_rows *p, struct mfs_error *err)
{
	const uint64_t blocks = (p->rows.rows + STRIDE - 1) / STRIDE;
	uint64_t tokens = 0;
	struct block b;

	p->sums = calloc(blocks + 1, sizeof(*p->sums));
	if (!p->sums)
		return mfs_fail_nomem(err);
	for (uint64_t i = 0; i < blocks; i++) {
		int rc = read_block(p, i, &b, err);

		if (rc)
			return rc;
		p->sums[i] = tokens;
		for (uint64_t k = 0; k < b.count; k++)
			if (mfs_add_overflows(tokens, (uint64_t)b.lengths[k], &tokens) ||
			    tokens > INT64_MAX)
				return mfs_fail(err, -EINVAL, "%s: it has too many tokens",
						p->rows.name);
	}
	p->rows.tokens = tokens;
	return 0;
}

static int join_sets(struct permuted_rows *p, struct mfs_error *err)
{
	const size_t count = p->of->set_count + p->numbers->set_count;

	if (count > MAX_SETS)
		return mfs_fail(err, -ENOTSUP, "%s: its rows come from too many directories",
				p->rows.name);
	memcpy(p->sets, p->of->sets, p->of->set_count * sizeof(*p->sets));
	memcpy(p->sets + p->of->set_count, p->numbers->sets,
	       p->numbers->set_count * sizeof(*p->sets));
	p->rows.sets = p->sets;
	p->rows.set_count = count;
	return 0;
}

int mfs_rows_permuted(struct mfs_rows *of, struct mfs_rows *numbers, struct mfs_rows **ret,
		      struct mfs_error *err)
{
	struct permuted_rows *p;
	int rc;

	if (of->rows > INT32_MAX)
		return mfs_fail(err, -ENOTSUP,
				"%s: indices of %llu rows, more than 2^31 - 1, are not followed",
				of->name, (unsigned long long)of->rows);
	p = calloc(1, sizeof(*p));
	if (!p)
		return mfs_fail_nomem(err);
	p->rows = mfs_rows_like(of, &permuted_ops);
	p->rows.rows = numbers->rows;
	p->of = of;
	p->numbers = numbers;
	rc = join_sets(p, err);
	if (!rc)
		rc = sum_up(p, err);
	if (rc) {
		free(p->sums);
		free(p);
		return rc;
	}
	*ret = &p->rows;
	return 0;
}
