/*
 * Binary search in whatever is in order. `holds` is an expression of i, true of the first elements and of none that
 * follow, as `starts[i] <= t` is where starts do not fall:
 *
 *	part = &parts[mfs_last_while(i, part_count, parts[i].first_row <= row)];
 *
 * It may use anything in sight but i of the outside.
 */
#ifndef MFS_BASE_SEARCH_H
#define MFS_BASE_SEARCH_H

#include <stddef.h>

/* How many elements it is true of, of those behind the first `from`, which it is true of without being asked. */
#define mfs_search_(i, from, count, holds)                                                         \
	({                                                                                         \
		size_t low_ = (from), high_ = (count);                                             \
		while (low_ < high_) {                                                             \
			const size_t i = low_ + (high_ - low_) / 2;                                \
			if (holds)                                                                 \
				low_ = i + 1;                                                      \
			else                                                                       \
				high_ = i;                                                         \
		}                                                                                  \
		low_;                                                                              \
	})

/* How many elements it is true of. */
#define mfs_count_while(i, count, holds) mfs_search_(i, 0, count, holds)

/* The index of the last element that it is true of: 0, too, if there are none or it is true of none. */
#define mfs_last_while(i, count, holds) (mfs_search_(i, 1, count, holds) - 1)

#endif
