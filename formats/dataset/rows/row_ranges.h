/*
 * A list of ranges of rows: ascending, disjoint, not adjacent. It is short, as each run of rows
 * that cannot be read costs a view some pages.
 */
#ifndef MFS_DATASET_ROWS_ROW_RANGES_H
#define MFS_DATASET_ROWS_ROW_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_ROW_RANGES_MAX 4096

struct mfs_row_range {
	uint64_t first, end;
};

struct mfs_row_ranges {
	struct mfs_row_range *list;
	size_t count;
};

/* Adds rows [first, end), first < end, and joins the ranges that they touch. 0; -ENOMEM; -ENOSPC:
 * there would be more than MFS_ROW_RANGES_MAX. */
int mfs_row_ranges_add(struct mfs_row_ranges *r, uint64_t first, uint64_t end);
/* True if one range has all of the rows [first, end). */
bool mfs_row_ranges_have(const struct mfs_row_ranges *r, uint64_t first, uint64_t end);
/* How many rows they have together. */
uint64_t mfs_row_ranges_rows(const struct mfs_row_ranges *r);
void mfs_row_ranges_release(struct mfs_row_ranges *r);

#endif
