#include "formats/plan/strided.h"

#include <string.h>

#include "formats/base/bytes.h"

#define TILE 32 /* elements: a tile of two-byte elements is one cache line wide */

static inline void copy_tile(const struct mfs_strided *s, uint64_t row, uint64_t rows, uint64_t col,
			     uint64_t cols, unsigned element)
{
	for (uint64_t i = row; i < row + rows; i++)
		for (uint64_t k = col; k < col + cols; k++)
			memcpy(s->to + i * s->to_row + k * s->to_col,
			       s->from + i * s->from_row + k * s->from_col, element);
}

/* Copies tile by tile, so that each cache line of the source serves many rows of the target. */
void mfs_copy_strided(const struct mfs_strided *s)
{
	for (uint64_t row = 0; row < s->rows; row += TILE) {
		uint64_t rows = mfs_min_u64(TILE, s->rows - row);

		for (uint64_t col = 0; col < s->cols; col += TILE) {
			uint64_t cols = mfs_min_u64(TILE, s->cols - col);

			/* With a constant size the compiler emits one load and one store. */
			if (s->element == 2)
				copy_tile(s, row, rows, col, cols, 2);
			else if (s->element == 4)
				copy_tile(s, row, rows, col, cols, 4);
			else
				copy_tile(s, row, rows, col, cols, s->element);
		}
	}
}
