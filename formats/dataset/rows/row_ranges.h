/*
 * A list of ranges of rows that grows: ascending, disjoint, not adjacent, and short, since each run of rows
 * that cannot be read costs a view some pages.
 */
#ifndef MFS_DATASET_ROWS_ROW_RANGES_H
#define MFS_DATASET_ROWS_ROW_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "formats/dataset/rows/rows.h"

#define MFS_ROW_RANGES_MAX 4096

struct mfs_row_ranges {
	struct mfs_row_range *list;
	size_t count;
};

/* Joins what it touches. 0; -ENOMEM; -ENOSPC: there would be more than MFS_ROW_RANGES_MAX. first < end. */
int mfs_row_ranges_add(struct mfs_row_ranges *r, uint64_t first, uint64_t end);
/* How many of the ranges end at or before a row: the place of the one that holds it, if one does. */
size_t mfs_row_ranges_before(const struct mfs_row_range *list, size_t count, uint64_t row);
void mfs_row_ranges_release(struct mfs_row_ranges *r);

#endif
