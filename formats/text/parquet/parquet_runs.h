/* Runs of numbers of some bits: the same again and again, or packed (Encodings.md, RLE). */
#ifndef MFS_TEXT_PARQUET_RUNS_H
#define MFS_TEXT_PARQUET_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mfs_pq_runs {
	const uint8_t *at, *end;
	unsigned width; /* bits, at most 32 */
	uint64_t left;	/* of the run at hand */
	bool packed;
	uint32_t value; /* of a run of equals */
	uint64_t bit;	/* of a packed run: the next one, from at */
};

/* Each is false where the bytes end too early, or are none of these. */
bool mfs_pq_runs_next(struct mfs_pq_runs *r, uint32_t *ret);
/* A number of r->width bits, from r->bit on; r->at stays. */
bool mfs_pq_runs_packed(struct mfs_pq_runs *r, uint32_t *ret);
bool mfs_pq_runs_varint(struct mfs_pq_runs *r, uint64_t *ret);

#endif
