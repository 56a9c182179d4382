/* The lengths that DELTA_LENGTH_BYTE_ARRAY has before the bytes of its values. */
#include "formats/text/parquet/parquet_i.h"

#include <stdlib.h>

/* Lengths of a page, which may have no bytes of their own. */
#define LENGTHS_MAX (MFS_PQ_PAGE_MAX / 64)

/* Blocks of miniblocks of packed differences (Encodings.md, DELTA_BINARY_PACKED). */
bool mfs_pq_lengths_read(struct mfs_pq_column *c, struct mfs_pq_runs *r)
{
	uint64_t block, minis, total, raw, n = 0;
	int64_t value;

	if (!mfs_pq_runs_varint(r, &block) || !mfs_pq_runs_varint(r, &minis) ||
	    !mfs_pq_runs_varint(r, &total) || !mfs_pq_runs_varint(r, &raw) || !minis ||
	    minis > 512 || block % minis || block / minis % 8 || block > 1u << 20 ||
	    total > c->page_values || total > LENGTHS_MAX)
		return false;
	value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
	free(c->lengths);
	c->lengths = calloc(total + 1, sizeof(*c->lengths));
	if (!c->lengths)
		return false;
	c->length_count = total;
	c->length_at = 0;
	if (total)
		c->lengths[n++] = (uint32_t)value;
	while (n < total) {
		const uint8_t *widths;
		int64_t least;

		if (!mfs_pq_runs_varint(r, &raw) || (uint64_t)(r->end - r->at) < minis)
			return false;
		least = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
		widths = r->at;
		r->at += minis;
		for (uint64_t m = 0; m < minis && n < total; m++) {
			if (widths[m] > 32)
				return false;
			r->width = widths[m];
			r->bit = 0;
			for (uint64_t i = 0; i < block / minis; i++) {
				uint32_t delta;

				if (!mfs_pq_runs_packed(r, &delta))
					return false;
				value = (int64_t)((uint64_t)value + (uint64_t)least + delta);
				if (n < total)
					c->lengths[n++] = (uint32_t)value;
			}
			r->at += r->bit / 8;
		}
	}
	return true;
}
