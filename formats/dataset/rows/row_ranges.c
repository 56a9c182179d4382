#include "formats/dataset/rows/row_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/search.h"

int mfs_row_ranges_add(struct mfs_row_ranges *r, uint64_t first, uint64_t end)
{
	/* The ranges [at, to) overlap the new one, or touch it. */
	const size_t at = mfs_count_while(i, r->count, r->list[i].end < first);
	size_t to = at;

	while (to < r->count && r->list[to].first <= end)
		to++;
	if (at == to) {
		if (r->count == MFS_ROW_RANGES_MAX)
			return -ENOSPC;
		if (mfs_grow(&r->list, r->count))
			return -ENOMEM;
	} else {
		first = mfs_min_u64(r->list[at].first, first);
		end = mfs_max_u64(r->list[to - 1].end, end);
	}
	memmove(r->list + at + 1, r->list + to, (r->count - to) * sizeof(*r->list));
	r->count -= to - at;
	r->list[at] = (struct mfs_row_range){first, end};
	r->count++;
	return 0;
}

bool mfs_row_ranges_have(const struct mfs_row_ranges *r, uint64_t first, uint64_t end)
{
	const size_t at = mfs_count_while(i, r->count, r->list[i].end < end);

	return at < r->count && r->list[at].first <= first;
}

uint64_t mfs_row_ranges_rows(const struct mfs_row_ranges *r)
{
	uint64_t rows = 0;

	for (size_t i = 0; i < r->count; i++)
		rows += r->list[i].end - r->list[i].first;
	return rows;
}

void mfs_row_ranges_release(struct mfs_row_ranges *r)
{
	free(r->list);
	*r = (struct mfs_row_ranges){0};
}
