/* Repetition and definition levels, computed of the starts of rows. */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/dataset/files/parquet_image_i.h"

void mfs_parquet_entries(struct entries *e, const struct mfs_rows *rows, const struct group *g,
			 uint64_t row, uint64_t token)
{
	e->rows = rows;
	e->row = row;
	e->token = token;
	e->end = g->end;
	e->token_end = g->token + g->tokens;
	e->starts_count = 0;
}

/* Where the row at hand begins and ends, in tokens. */
static int row_of(struct entries *e, uint64_t *ret_start, uint64_t *ret_end, struct mfs_error *err)
{
	uint64_t i;

	if (e->row >= e->end)
		return mfs_fail(err, -EIO, "%s: row %llu was not after all that comes before it",
				e->rows->name, (unsigned long long)e->row);
	if (!e->starts_count || e->row - e->starts_first >= e->starts_count) {
		const uint64_t n = mfs_min_u64(MFS_PARQUET_STARTS, e->end - e->row);
		int rc = mfs_rows_starts(e->rows, e->row, n + 1, e->starts, err);

		if (rc)
			return rc;
		e->starts_first = e->row;
		e->starts_count = n;
	}
	i = e->row - e->starts_first;
	*ret_start = e->starts[i];
	*ret_end = e->starts[i + 1];
	if (e->token < *ret_start || e->token > *ret_end || *ret_end > e->token_end ||
	    (e->token == *ret_end && *ret_end != *ret_start))
		return mfs_fail(err, -EIO,
				"%s: row %llu does not begin where the one before it ends",
				e->rows->name, (unsigned long long)e->row);
	return 0;
}

/* The run at the end of what was written so far, which grows while levels stay the same. */
struct rle_run {
	uint64_t count;
	uint8_t level;
};

static void end_run(struct rle_run *r, struct mfs_buf *b)
{
	if (r->count)
		mfs_parquet_rle(b, r->level, r->count);
	r->count = 0;
}

static void add_level(struct rle_run *r, struct mfs_buf *b, uint8_t level, uint64_t count)
{
	if (r->level != level)
		end_run(r, b);
	r->level = level;
	r->count += count;
}

static void clear_bit(uint8_t *bits, uint64_t i)
{
	bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

int mfs_parquet_levels(struct entries *e, uint64_t count, struct levels *ret, struct mfs_error *err)
{
	struct rle_run run = {0};
	uint64_t start, end, n;

	ret->values = 0;
	memset(ret->repetition, 0xff, (count + 7) / 8);
	for (uint64_t i = count; i % 8; i++)
		clear_bit(ret->repetition, i);
	for (uint64_t i = 0; i < count; i += n) {
		int rc = row_of(e, &start, &end, err);

		if (rc)
			return rc;
		if (e->token == start)
			clear_bit(ret->repetition, i);
		n = start == end ? 1 : mfs_min_u64(end - e->token, count - i);
		add_level(&run, &ret->definition,
			  start == end ? MFS_PARQUET_EMPTY : MFS_PARQUET_ELEMENT, n);
		if (start < end) {
			ret->values += n;
			e->token += n;
		}
		e->row += e->token == end;
	}
	end_run(&run, &ret->definition);
	return ret->definition.failed ? mfs_fail_nomem(err) : 0;
}
