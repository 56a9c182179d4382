#include "formats/text/parquet/parquet_runs.h"

bool mfs_pq_runs_varint(struct mfs_pq_runs *r, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 63 && r->at < r->end; shift += 7) {
		*ret |= (uint64_t)(*r->at & 0x7f) << shift;
		if (!(*r->at++ & 0x80))
			return true;
	}
	return false;
}

static bool begin_run(struct mfs_pq_runs *r)
{
	const unsigned bytes = (r->width + 7) / 8;
	uint64_t head;

	if (!mfs_pq_runs_varint(r, &head))
		return false;
	r->packed = head & 1;
	r->left = head >> 1;
	r->bit = 0;
	if (r->packed) {
		/* Eight numbers are as many bytes as one has bits; of the last run some may be
		 * left out. */
		r->left *= 8;
		return r->left > 0;
	}
	if ((size_t)(r->end - r->at) < bytes)
		return false;
	r->value = 0;
	for (unsigned i = 0; i < bytes; i++)
		r->value |= (uint32_t)*r->at++ << 8 * i;
	return r->left > 0;
}

bool mfs_pq_runs_packed(struct mfs_pq_runs *r, uint32_t *ret)
{
	*ret = 0;
	for (unsigned i = 0; i < r->width; i++, r->bit++) {
		if ((uint64_t)(r->end - r->at) <= r->bit / 8)
			return false;
		*ret |= (uint32_t)(r->at[r->bit / 8] >> r->bit % 8 & 1) << i;
	}
	return true;
}

bool mfs_pq_runs_next(struct mfs_pq_runs *r, uint32_t *ret)
{
	if (!r->left && !begin_run(r))
		return false;
	r->left--;
	*ret = r->value;
	if (!r->packed)
		return true;
	if (!mfs_pq_runs_packed(r, ret))
		return false;
	if (!r->left)
		r->at += r->bit / 8;
	return true;
}
