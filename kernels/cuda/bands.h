/*
 * The order of tiles of a product: down a band of rows, column by column, then the next band.
 *
 * Blocks take tiles in that order, so some 130 in a row are computed at once, and read rows of a and
 * columns of b by way of the L2 cache. Down all rows of a tall product they would read each row of a
 * for a column of their own: of 28672 x 4096, 132 tiles need 133 strips of a and b; in bands 25.
 */
#ifndef MFK_CUDA_BANDS_H
#define MFK_CUDA_BANDS_H

#ifdef __CUDACC__
#define MFK_BANDS static __host__ __device__ __forceinline__
#else
#define MFK_BANDS static inline
#endif

#define MFK_BAND 16 /* tiles: 16 down and 8 across are nearly as few strips as can be */

/* Where tile at is, below down * across, in tiles. */
MFK_BANDS void mfk_band_tile(int at, int down, int across, int *row, int *col)
{
	const int band = at / (MFK_BAND * across), first = band * MFK_BAND;
	const int rows = down - first < MFK_BAND ? down - first : MFK_BAND;

	at -= first * across;
	*row = first + at % rows;
	*col = at / rows;
}

#endif
