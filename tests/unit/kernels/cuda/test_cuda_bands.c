/* The order of tiles of a product: kernels/cuda/gemm/bands.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm/bands.h"

#define MOST	224
#define AT_ONCE 132 /* tiles, as an H100 has multiprocessors */

/* Each tile comes once. */
START_TEST(all_tiles)
{
	static char seen[40][40];

	for (int down = 1; down <= 40; down++)
		for (int across = 1; across <= 40; across++) {
			memset(seen, 0, sizeof(seen));
			for (int at = 0; at < down * across; at++) {
				int row = -1, col = -1;

				mfk_band_tile(at, down, across, &row, &col);
				ck_assert(row >= 0 && row < down && col >= 0 && col < across);
				ck_assert_int_eq(seen[row][col]++, 0);
			}
		}
}
END_TEST

/* Low products are gone through column by column. */
START_TEST(one_band)
{
	for (int at = 0; at < MFK_BAND * 5; at++) {
		int row, col;

		mfk_band_tile(at, MFK_BAND, 5, &row, &col);
		ck_assert_int_eq(row, at % MFK_BAND);
		ck_assert_int_eq(col, at / MFK_BAND);
	}
}
END_TEST

static int strips(int first, int down, int across)
{
	char rows[MOST] = {0}, cols[MOST] = {0};
	int count = 0;

	for (int at = first; at < first + AT_ONCE; at++) {
		int row, col;

		mfk_band_tile(at, down, across, &row, &col);
		count += !rows[row] + !cols[col];
		rows[row] = cols[col] = 1;
	}
	return count;
}

/* Tiles that are computed at once are of few rows and columns. */
START_TEST(tiles_at_once)
{
	const int inside = MFK_BAND + (AT_ONCE + MFK_BAND - 1) / MFK_BAND + 1;

	for (int at = 0; at + AT_ONCE <= MFK_BAND * 32; at++)
		ck_assert_int_le(strips(at, MOST, 32), inside);
	/* Where a band ends, those of the next begin. */
	for (int at = 0; at + AT_ONCE <= MOST * 32; at++)
		ck_assert_int_le(strips(at, MOST, 32), 2 * inside);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("cuda_bands");
	TCase *c = unit_case(s, "order", all_tiles);

	tcase_add_test(c, one_band);
	tcase_add_test(c, tiles_at_once);
	return s;
}
