#include "formats/dataset/rows/rows_i.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/io/fileset.h"

#define STARTS 4096 /* read at once, for lengths */
#define WIDEN  1024 /* tokens that are widened at once */

struct mfs_rows mfs_rows_like(const struct mfs_rows *of, const struct mfs_rows_ops *ops)
{
	struct mfs_rows r = *of;

	r.ops = ops;
	r.vocab_size = 0;
	r.bad = (struct mfs_row_ranges){0};
	return r;
}

static int check_range(const struct mfs_rows *r, const char *what, uint64_t first, uint64_t count,
		       uint64_t total, struct mfs_error *err)
{
	if (mfs_range_ok(first, count, total))
		return 0;
	return mfs_fail(err, -EINVAL, "%s: %s %llu+%llu are not among the %llu there are", r->name,
			what, (unsigned long long)first, (unsigned long long)count,
			(unsigned long long)total);
}

int mfs_rows_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		    struct mfs_error *err)
{
	int rc = check_range(r, "rows", first, count, r->rows + 1, err);

	return rc || !count ? rc : r->ops->starts(r, first, count, ret, err);
}

int mfs_rows_start(const struct mfs_rows *r, uint64_t i, uint64_t *ret, struct mfs_error *err)
{
	return mfs_rows_starts(r, i, 1, ret, err);
}

static const struct mfs_rows_scale stream = {0, 1};

static int place_of(const struct mfs_rows *r, const struct mfs_rows_scale *s, uint64_t row,
		    uint64_t *ret, struct mfs_error *err)
{
	int rc = mfs_rows_start(r, row, ret, err);

	if (!rc)
		*ret = row * s->per_row + *ret * s->per_token;
	return rc;
}

/* Finds the last row that begins at or before t. It lies between *lo, which does, and hi, which
 * begins after t if it exists. The search guesses by proportion and halves in turn, so that neither
 * even nor uneven rows take many probes. With halves alone a search in 5 million uneven rows takes
 * 33 us instead of 13. */
static int narrow(const struct mfs_rows *r, const struct mfs_rows_scale *s, uint64_t t,
		  uint64_t *lo, uint64_t hi, struct mfs_error *err)
{
	uint64_t lo_place, hi_place, place, guess;
	bool halve = false;
	int rc = place_of(r, s, *lo, &lo_place, err);

	if (!rc)
		rc = place_of(r, s, hi, &hi_place, err);
	for (; !rc && hi - *lo > 1; halve = !halve) {
		guess = *lo + (hi - *lo) / 2;
		if (!halve && t >= lo_place && hi_place > lo_place)
			guess = *lo + (uint64_t)((unsigned __int128)(hi - *lo) * (t - lo_place) /
						 (hi_place - lo_place));
		guess = guess <= *lo ? *lo + 1 : guess >= hi ? hi - 1 : guess;
		rc = place_of(r, s, guess, &place, err);
		if (rc)
			break;
		if (place <= t) {
			*lo = guess;
			lo_place = place;
		} else {
			hi = guess;
			hi_place = place;
		}
	}
	return rc;
}

int mfs_rows_find_scaled(const struct mfs_rows *r, const struct mfs_rows_scale *scale, uint64_t at,
			 uint64_t *ret, struct mfs_error *err)
{
	*ret = 0;
	return narrow(r, scale, at, ret, r->rows, err);
}

int mfs_rows_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	int rc = check_range(r, "tokens", t, 1, r->tokens, err);

	if (rc)
		return rc;
	if (r->row_length) {
		*ret = t / r->row_length;
		return 0;
	}
	return r->ops->find ? r->ops->find(r, t, ret, err)
			    : mfs_rows_find_scaled(r, &stream, t, ret, err);
}

int mfs_rows_lower_bound(const struct mfs_rows *r, uint64_t from, uint64_t t, uint64_t *ret,
			 struct mfs_error *err)
{
	uint64_t lo = from, start;
	int rc = mfs_rows_start(r, from, &start, err);

	if (rc)
		return rc;
	if (start >= t || from == r->rows) {
		*ret = from;
		return 0;
	}
	/* As start < t, the row wanted follows the last one that begins at or before t - 1. */
	rc = narrow(r, &stream, t - 1, &lo, r->rows, err);
	if (!rc)
		*ret = lo + 1;
	return rc;
}

int mfs_rows_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		  struct mfs_error *err)
{
	int rc = check_range(r, "tokens", first, count, r->tokens, err);

	if (rc || !count)
		return rc;
	rc = r->ops->read(r, first, count, ret, err);
	return rc || !r->vocab_size ? rc : mfs_rows_check_vocab(r, first, count, ret, err);
}

int mfs_rows_read_int64(const struct mfs_rows *r, uint64_t first, uint64_t count, int64_t *ret,
			struct mfs_error *err)
{
	int64_t chunk[WIDEN];
	int rc = 0;

	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		n = mfs_min_u64(count, WIDEN);
		rc = mfs_rows_read(r, first, n, chunk, err);
		if (!rc && !mfs_dtype_widen(r->dtype, chunk, n, ret))
			rc = mfs_fail(err, -ENOTSUP, "%s: tokens of type %s are not integers",
				      r->name, mfs_dtype_torch(r->dtype));
	}
	return rc;
}

int mfs_rows_extent(const struct mfs_rows *r, uint64_t t, uint64_t max, struct mfs_bin_extent *ret,
		    struct mfs_error *err)
{
	int rc = check_range(r, "tokens", t, max ? max : 1, r->tokens, err);

	if (rc)
		return rc;
	return r->ops->extent && !r->vocab_size ? r->ops->extent(r, t, max, ret, err) : -ENODATA;
}

static int check_numbers(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			 struct mfs_error *err)
{
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++)
		rc = check_range(r, "rows", (uint64_t)(uint32_t)rows[i], 1, r->rows, err);
	return rc;
}

int mfs_rows_gather_starts(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			   uint64_t *ret, struct mfs_error *err)
{
	int rc = check_numbers(r, rows, count, err);

	if (rc)
		return rc;
	if (r->ops->gather_starts)
		return r->ops->gather_starts(r, rows, count, ret, err);
	for (uint64_t i = 0; i < count && !rc; i++)
		rc = r->ops->starts(r, (uint64_t)rows[i], 1, &ret[i], err);
	return rc;
}

static int length_of(const struct mfs_rows *r, uint64_t row, uint64_t start, uint64_t end,
		     int32_t *ret, struct mfs_error *err)
{
	if (end - start > INT32_MAX)
		return mfs_fail(err, -EINVAL, "%s: row %llu has %llu tokens, more than 2^31 - 1",
				r->name, (unsigned long long)row,
				(unsigned long long)(end - start));
	*ret = (int32_t)(end - start);
	return 0;
}

int mfs_rows_lengths(const struct mfs_rows *r, uint64_t first, uint64_t count, int32_t *ret,
		     struct mfs_error *err)
{
	uint64_t starts[STARTS + 1];
	int rc = check_range(r, "rows", first, count, r->rows, err);

	if (!rc && count && r->ops->lengths)
		return r->ops->lengths(r, first, count, ret, err);
	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		n = mfs_min_u64(count, STARTS);
		rc = r->ops->starts(r, first, n + 1, starts, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			rc = length_of(r, first + i, starts[i], starts[i + 1], &ret[i], err);
	}
	return rc;
}

int mfs_rows_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			    int32_t *ret, struct mfs_error *err)
{
	uint64_t ends[2];
	int wrong = check_numbers(r, rows, count, err);

	if (wrong)
		return wrong;
	if (r->ops->gather_lengths)
		return r->ops->gather_lengths(r, rows, count, ret, err);
	for (uint64_t i = 0; i < count; i++) {
		int rc = mfs_rows_starts(r, (uint64_t)rows[i], 2, ends, err);

		if (!rc)
			rc = length_of(r, (uint64_t)rows[i], ends[0], ends[1], &ret[i], err);
		if (rc)
			return rc;
	}
	return 0;
}

int mfs_rows_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
		    void *ret, struct mfs_error *err)
{
	int rc = check_range(r, "columns", column, 1, r->column_count, err);

	if (!rc)
		rc = check_range(r, "rows", first, count, r->rows, err);
	return rc || !count ? rc : r->ops->column(r, column, first, count, ret, err);
}

void mfs_rows_drop(const struct mfs_rows *r)
{
	if (r->ops->drop)
		r->ops->drop(r);
}

void mfs_rows_free(struct mfs_rows *r)
{
	if (!r)
		return;
	mfs_row_ranges_release(&r->bad);
	r->ops->free(r);
}

int mfs_rows_check(const struct mfs_rows *r, struct mfs_error *err)
{
	return mfs_filesets_check(r->sets, r->set_count, err);
}
