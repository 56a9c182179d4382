/*
 * Binary search in anything that is sorted. `holds` is an expression of the index i that is true of
 * the first elements and false of all that follow:
 *
 *	part = &parts[mfs_last_while(i, part_count, parts[i].first_row <= row)];
 *
 * `holds` may use every variable in scope, except another one named i.
 */
#ifndef MFS_BASE_SEARCH_H
#define MFS_BASE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The last element of which it is true; low if there is none. A loop of this form compiles to
 * conditional moves. Branches, half of which are mispredicted, cost twice as much in an array that
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

/* The index of the last element of which it is true; 0 also if there are no elements or it is true
 * of none. */
#define mfs_last_while(i, count, holds) mfs_search_(i, 0, count, holds)

/* The number of elements of which it is true. */
#define mfs_count_while(i, count, holds) (mfs_search_(i, SIZE_MAX, count, holds) + 1)

#endif
