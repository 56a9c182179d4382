/*
 * Binary search in whatever is in order. `holds` is an expression of i, true of the first elements
 * and of none that follow, as `starts[i] <= t` is where starts do not fall:
 *
 *	part = &parts[mfs_last_while(i, part_count, parts[i].first_row <= row)];
 *
 * It may use anything in sight but i of the outside.
 */
#ifndef MFS_BASE_SEARCH_H
#define MFS_BASE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The last element of which it is true, if it is true of low. A loop of this form compiles to
 * conditional moves: branches, of which half are mispredicted, cost twice as much in an array that
 * is in the cache. */
#define mfs_search_(i, low, count, holds)                                                          \
	({                                                                                         \
		size_t low_ = (low), high_ = (count);                                              \
		while (high_ - low_ > 1) {                                                         \
			const size_t i = low_ + (high_ - low_) / 2;                                \
			if (holds)                                                                 \
				low_ = i;                                                          \
			else                                                                       \
				high_ = i;                                                         \
		}                                                                                  \
		low_;                                                                              \
	})

/* The index of the last element that it is true of: 0, too, if there are none or it is true of
 * none. */
#define mfs_last_while(i, count, holds) mfs_search_(i, 0, count, holds)

/* How many elements it is true of: from before the first one, -1. */
#define mfs_count_while(i, count, holds) (mfs_search_(i, SIZE_MAX, count, holds) + 1)

#endif
