#include "formats/dataset/rows/row_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/search.h"

size_t mfs_row_ranges_before(const struct mfs_row_range *list, size_t count, uint64_t row)
{
	return mfs_count_while(i, count, list[i].end <= row);
}

/* Makes room for one range at a place. */
static int open_gap(struct mfs_row_ranges *r, size_t at)
{
	if (r->count == MFS_ROW_RANGES_MAX)
		return -ENOSPC;
	if (mfs_grow(&r->list, r->count))
		return -ENOMEM;
	memmove(r->list + at + 1, r->list + at, (r->count - at) * sizeof(*r->list));
	r->count++;
	return 0;
}

int mfs_row_ranges_add(struct mfs_row_ranges *r, uint64_t first, uint64_t end)
{
	/* The ranges [at, to) overlap the new one, or touch it. */
	const size_t at = mfs_row_ranges_before(r->list, r->count, first ? first - 1 : 0);
	size_t to = at;
	int rc;

	while (to < r->count && r->list[to].first <= end)
		to++;
	if (at == to) {
		rc = open_gap(r, at);
		if (rc)
			return rc;
		r->list[at] = (struct mfs_row_range){first, end};
		return 0;
	}
	r->list[at].first = mfs_min_u64(r->list[at].first, first);
	r->list[at].end = mfs_max_u64(r->list[to - 1].end, end);
	memmove(r->list + at + 1, r->list + to, (r->count - to) * sizeof(*r->list));
	r->count -= to - at - 1;
	return 0;
}

void mfs_row_ranges_release(struct mfs_row_ranges *r)
{
	free(r->list);
	*r = (struct mfs_row_ranges){0};
}
