/* Private to formats/plan: a rectangle of elements, copied one by one where neither side is
 * contiguous. */
#ifndef MFS_PLAN_STRIDED_H
#define MFS_PLAN_STRIDED_H

#include <stdint.h>

struct mfs_strided {
	uint8_t *to;
	uint64_t to_row; /* bytes between rows; elements of a row lie side by side */
	const uint8_t *from;
	uint64_t from_row, from_col; /* bytes */
	uint64_t rows, cols;
	unsigned element; /* bytes */
};

/* from may point into a mapping: to be called under mfs_guard_run(). */
void mfs_copy_strided(const struct mfs_strided *s);

#endif
