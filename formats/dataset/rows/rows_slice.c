/* A range of other rows: a split of a dataset. */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows/rows_i.h"

struct slice {
	struct mfs_rows rows;
	const struct mfs_rows *of;
	uint64_t first, skipped; /* rows and tokens before it */
};

static const struct slice *slice_of(const struct mfs_rows *r)
{
	return (const struct slice *)r;
}

static int slice_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			struct mfs_error *err)
{
	const struct slice *s = slice_of(r);
	int rc = mfs_rows_starts(s->of, s->first + first, count, ret, err);

	for (uint64_t i = 0; i < count && !rc; i++)
		ret[i] -= s->skipped;
	return rc;
}

static int slice_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	const struct slice *s = slice_of(r);
	int rc = mfs_rows_find(s->of, s->skipped + t, ret, err);

	if (!rc)
		*ret -= s->first;
	return rc;
}

static int slice_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct slice *s = slice_of(r);

	return mfs_rows_read(s->of, s->skipped + first, count, ret, err);
}

static int slice_extent(const struct mfs_rows *r, uint64_t t, uint64_t max,
			struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct slice *s = slice_of(r);

	return mfs_rows_extent(s->of, s->skipped + t, max, ret, err);
}

static int slice_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
			void *ret, struct mfs_error *err)
{
	const struct slice *s = slice_of(r);

	return mfs_rows_column(s->of, column, s->first + first, count, ret, err);
}

static void slice_drop(const struct mfs_rows *r)
{
	mfs_rows_drop(slice_of(r)->of);
}

static void slice_free(struct mfs_rows *r)
{
	free(r);
}

static const struct mfs_rows_ops slice_ops = {
	.starts = slice_starts,
	.find = slice_find,
	.read = slice_read,
	.extent = slice_extent,
	.column = slice_column,
	.drop = slice_drop,
	.free = slice_free,
};

/* The unreadable rows that are among those of the slice. */
static int take_bad(struct slice *s, uint64_t end)
{
	const struct mfs_row_ranges *bad = &s->of->bad;
	int rc = 0;

	for (size_t i = 0; i < bad->count && !rc; i++) {
		const uint64_t from = mfs_max_u64(bad->list[i].first, s->first);
		const uint64_t to = mfs_min_u64(bad->list[i].end, end);

		if (from < to)
			rc = mfs_row_ranges_add(&s->rows.bad, from - s->first, to - s->first);
	}
	return rc;
}

int mfs_rows_slice(const struct mfs_rows *of, uint64_t first, uint64_t end, struct mfs_rows **ret,
		   struct mfs_error *err)
{
	uint64_t before, after;
	struct slice *s;
	int rc;

	if (first > end || end > of->rows)
		return mfs_fail(err, -EINVAL,
				"%s: rows [%llu, %llu) are not among the %llu there are", of->name,
				(unsigned long long)first, (unsigned long long)end,
				(unsigned long long)of->rows);
	rc = mfs_rows_start(of, first, &before, err);
	if (!rc)
		rc = mfs_rows_start(of, end, &after, err);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return mfs_fail_nomem(err);
	s->rows = mfs_rows_like(of, &slice_ops);
	s->rows.rows = end - first;
	s->rows.tokens = after - before;
	s->of = of;
	s->first = first;
	s->skipped = before;
	if (take_bad(s, end)) {
		mfs_rows_free(&s->rows);
		return mfs_fail_nomem(err);
	}
	*ret = &s->rows;
	return 0;
}
