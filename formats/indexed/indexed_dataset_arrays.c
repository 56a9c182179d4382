/* The arrays of an .idx: of one member as they are stored, and of all members as one dataset. */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/indexed/indexed_dataset_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

/* Bytes. A function that copies whole pages passes over them and does not return to them soon. */
#define PASS 4096

int mfs_idx_copy(const struct mfs_idx_member *p, uint64_t off, void *buf, uint64_t len,
		 struct mfs_error *err)
{
	if (len && mfs_guard_copy(buf, p->idx + off, len))
		return mfs_fail(err, -EIO, "%s.idx: bytes %llu+%llu cannot be read", p->name,
				(unsigned long long)off, (unsigned long long)len);
	if (p->idx_set && len >= PASS)
		mfs_fileset_served(p->idx_set, len);
	return 0;
}

int mfs_idx_check_range(const char *what, uint64_t first, uint64_t count, uint64_t total,
			struct mfs_error *err)
{
	if (mfs_range_ok(first, count, total))
		return 0;
	return mfs_fail(err, -EINVAL, "%s %llu+%llu are not among the %llu there are", what,
			(unsigned long long)first, (unsigned long long)count,
			(unsigned long long)total);
}

/* ---- one member ---- */

int mfs_idx_lengths(const struct mfs_idx_member *p, uint64_t first, uint64_t count, int32_t *ret,
		    struct mfs_error *err)
{
	return mfs_idx_copy(p, MFS_IDX_HEADER + 4 * first, ret, 4 * count, err);
}

/* From the nearest sum before on. */
static int repaired_pointers(const struct mfs_idx_member *p, uint64_t first, uint64_t count,
			     int64_t *ret, struct mfs_error *err)
{
	uint64_t at = first / MFS_IDX_SUM_STRIDE * MFS_IDX_SUM_STRIDE, n;
	uint64_t sum = p->sums[at / MFS_IDX_SUM_STRIDE];
	int32_t lengths[MFS_IDX_SUM_STRIDE];

	for (; at < first + count; at += n) {
		int rc;

		n = mfs_min_u64(MFS_IDX_SUM_STRIDE, first + count - at);
		rc = mfs_idx_lengths(p, at, n, lengths, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++) {
			if (at + i >= first)
				ret[at + i - first] = (int64_t)(sum * p->token_size);
			sum += (uint64_t)lengths[i];
		}
	}
	return 0;
}

int mfs_idx_pointers(const struct mfs_idx_member *p, uint64_t first, uint64_t count, int64_t *ret,
		     struct mfs_error *err)
{
	if (p->pointers == MFS_POINTERS_REPAIRED)
		return repaired_pointers(p, first, count, ret, err);
	return mfs_idx_copy(p, p->pointers_at + 8 * first, ret, 8 * count, err);
}

/* ---- all members ---- */

const struct mfs_idx_member *mfs_idx_member_of(const struct mfs_indexed_dataset *d, uint64_t i)
{
	/* Empty ones before it begin there too. */
	return &d->members[mfs_last_while(k, d->member_count, d->members[k].first_sequence <= i)];
}

int mfs_indexed_dataset_lengths(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
				int32_t *ret, struct mfs_error *err)
{
	int rc = mfs_idx_check_range("sequences", first, count, d->info.sequences, err);

	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_idx_member *p = mfs_idx_member_of(d, first);
		const uint64_t from = first - p->first_sequence;

		n = mfs_min_u64(count, p->sequences - from);
		rc = mfs_idx_lengths(p, from, n, ret, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			if (ret[i] < 0)
				rc = mfs_fail(err, -EINVAL, "%s.idx: sequence %llu has length %d",
					      p->name, (unsigned long long)(from + i), ret[i]);
	}
	return rc;
}

/* Inside of the guard: numbers are checked before. */
struct gather {
	const struct mfs_indexed_dataset *d;
	const int32_t *sequences;
	uint64_t count;
	int32_t *ret;
};

static void gather(void *arg)
{
	const struct gather *g = arg;
	const struct mfs_idx_member *p = g->d->members;

	for (uint64_t k = 0; k < g->count; k++) {
		const uint64_t i = (uint64_t)g->sequences[k];

		if (i - p->first_sequence >= p->sequences)
			p = mfs_idx_member_of(g->d, i);
		g->ret[k] =
			(int32_t)mfs_le32(p->idx + MFS_IDX_HEADER + 4 * (i - p->first_sequence));
	}
}

int mfs_indexed_dataset_gather_lengths(const struct mfs_indexed_dataset *d,
				       const int32_t *sequences, uint64_t count, int32_t *ret,
				       struct mfs_error *err)
{
	struct gather g = {d, sequences, count, ret};

	for (uint64_t k = 0; k < count; k++)
		if (sequences[k] < 0 || (uint64_t)sequences[k] >= d->info.sequences)
			return mfs_idx_check_range("sequences", (uint64_t)sequences[k], 1,
						   d->info.sequences, err);
	if (mfs_guard_run(gather, &g))
		return mfs_fail(err, -EIO, "%s.idx: lengths cannot be read", d->members->name);
	for (uint64_t k = 0; k < count; k++)
		if (ret[k] < 0)
			return mfs_fail(err, -EINVAL, "%s.idx: sequence %d has length %d",
					mfs_idx_member_of(d, (uint64_t)sequences[k])->name,
					sequences[k], ret[k]);
	return 0;
}

int mfs_indexed_dataset_pointers(const struct mfs_indexed_dataset *d, uint64_t first,
				 uint64_t count, int64_t *ret, struct mfs_error *err)
{
	int rc = mfs_idx_check_range("sequences", first, count, d->info.sequences, err);

	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_idx_member *p = mfs_idx_member_of(d, first);
		const uint64_t from = first - p->first_sequence;

		n = mfs_min_u64(count, p->sequences - from);
		rc = mfs_idx_pointers(p, from, n, ret, err);
		/* A wrong pointer stays wrong: what it is added to wraps around. */
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] = (int64_t)((uint64_t)ret[i] + p->first_byte);
	}
	return rc;
}

int mfs_indexed_dataset_modes(const struct mfs_indexed_dataset *d, uint64_t first, uint64_t count,
			      int8_t *ret, struct mfs_error *err)
{
	int rc = mfs_idx_check_range("sequences", first, count, d->info.sequences, err);

	if (!rc && !d->info.multimodal)
		return mfs_fail(err, -ENODATA, "%s.idx: not multimodal, it has no modes",
				d->members->name);
	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_idx_member *p = mfs_idx_member_of(d, first);

		n = mfs_min_u64(count, p->first_sequence + p->sequences - first);
		rc = mfs_idx_copy(p, p->modes_at + first - p->first_sequence, ret, n, err);
	}
	return rc;
}

/* The member whose entries, without its first one, hold entry e >= 1. */
static const struct mfs_idx_member *member_of_entry(const struct mfs_indexed_dataset *d, uint64_t e)
{
	return &d->members[mfs_last_while(i, d->member_count, d->members[i].first_entry < e)];
}

int mfs_indexed_dataset_documents(const struct mfs_indexed_dataset *d, uint64_t first,
				  uint64_t count, int64_t *ret, struct mfs_error *err)
{
	int rc = mfs_idx_check_range("document entries", first, count, d->info.document_entries,
				     err);

	if (!rc && count && !first) {
		*ret++ = 0;
		first++;
		count--;
	}
	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_idx_member *p = member_of_entry(d, first);
		const uint64_t from = first - p->first_entry;

		n = mfs_min_u64(count, p->entries - from);
		rc = mfs_idx_copy(p, p->documents_at + 8 * from, ret, 8 * n, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] = (int64_t)((uint64_t)ret[i] + p->first_sequence);
	}
	return rc;
}
