/*
 * The order of tiles of a product: down a band of rows, column by column, then the next band.
 *
 * Clusters take tiles of 128 x 512 in that order, so 66 in a row are computed at once, and read
 * rows of a and columns of b by way of the L2 cache. Down all rows of a tall product they would
 * read 66 x 128 rows and 512 columns, 8960 in all; in bands 16 x 128 and at most 6 x 512, 5120.
 */
#ifndef MFK_CUDA_BANDS_H
#define MFK_CUDA_BANDS_H

#ifdef __CUDACC__
#define MFK_BANDS static __host__ __device__ __forceinline__
#else
#define MFK_BANDS static inline
#endif

#define MFK_BAND 16 /* tiles: 16 down and 4 across are nearly as little as can be */

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
