/* Private to formats/plan: copies a rectangle of elements whose source is not contiguous. */
#ifndef MFS_PLAN_STRIDED_H
#define MFS_PLAN_STRIDED_H

#include <stdint.h>

struct mfs_strided {
	uint8_t *to;
	uint64_t to_row, to_col; /* bytes between rows, and between elements of a row */
	const uint8_t *from;
	uint64_t from_row, from_col; /* bytes */
	uint64_t rows, cols;
	unsigned element; /* bytes */
};

/* from may point into a mapping: the caller must be under mfs_guard_run(). */
void mfs_copy_strided(const struct mfs_strided *s);

#endif
