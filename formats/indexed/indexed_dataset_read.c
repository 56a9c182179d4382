/* Where sequences lie, and their tokens. */
#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/indexed/indexed_dataset_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

#define WIDEN 1024 /* tokens that are widened at once */

static int locate(const struct mfs_idx_member *p, uint64_t i, struct mfs_sequence *ret,
		  struct mfs_error *err)
{
	int64_t pointer;
	int32_t length;
	uint64_t bytes;
	int rc = mfs_idx_pointers(p, i, 1, &pointer, err);

	if (!rc)
		rc = mfs_idx_lengths(p, i, 1, &length, err);
	if (rc)
		return rc;
	if (length < 0)
		return mfs_fail(err, -EINVAL, "%s.idx: sequence %llu has length %d", p->name,
				(unsigned long long)i, length);
	bytes = (uint64_t)length * p->token_size;
	if (length && (pointer < 0 || !mfs_range_ok((uint64_t)pointer, bytes, p->bin_size)))
		return mfs_fail(
			err, -EIO,
			"%s.bin: sequence %llu should lie at bytes %lld+%llu, but the file has "
			"%llu",
			p->name, (unsigned long long)i, (long long)pointer,
			(unsigned long long)bytes, (unsigned long long)p->bin_size);
	*ret = (struct mfs_sequence){length ? (uint64_t)pointer : 0, (uint64_t)length};
	return 0;
}

int mfs_indexed_dataset_sequence(const struct mfs_indexed_dataset *d, uint64_t i,
				 struct mfs_sequence *ret, struct mfs_error *err)
{
	const struct mfs_idx_member *p;
	int rc = mfs_idx_check_range("sequences", i, 1, d->info.sequences, err);

	if (rc)
		return rc;
	p = mfs_idx_member_of(d, i);
	rc = locate(p, i - p->first_sequence, ret, err);
	if (!rc)
		ret->offset += p->first_byte;
	return rc;
}

/* The bytes of tokens [from, from+count) of a sequence as they are mapped. */
static int map_tokens(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
		      uint64_t count, const uint8_t **ret, struct mfs_error *err)
{
	const struct mfs_idx_member *p;
	struct mfs_sequence s;
	int rc = mfs_idx_check_range("sequences", i, 1, d->info.sequences, err);

	if (rc)
		return rc;
	p = mfs_idx_member_of(d, i);
	rc = locate(p, i - p->first_sequence, &s, err);
	if (!rc)
		rc = mfs_idx_check_range("tokens", from, count, s.length, err);
	if (!rc && !p->bin_set)
		rc = mfs_fail(err, -ENODATA, "%s: its .bin was not opened", p->name);
	if (!rc)
		rc = mfs_fileset_check(p->bin_set, p->bin_file, err);
	if (!rc)
		rc = mfs_fileset_map(p->bin_set, p->bin_file, ret, err);
	if (rc)
		return rc;
	*ret += s.offset + from * p->token_size;
	mfs_fileset_served(p->bin_set, count * p->token_size);
	return 0;
}

static int unreadable(const struct mfs_indexed_dataset *d, uint64_t i, struct mfs_error *err)
{
	return mfs_fail(err, -EIO, "%s.bin: sequence %llu cannot be read",
			mfs_idx_member_of(d, i)->name, (unsigned long long)i);
}

int mfs_indexed_dataset_read(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
			     uint64_t count, void *ret, struct mfs_error *err)
{
	const uint8_t *bytes;
	int rc = map_tokens(d, i, from, count, &bytes, err);

	if (rc)
		return rc;
	if (count && mfs_guard_copy(ret, bytes, count * d->info.token_size))
		return unreadable(d, i, err);
	return 0;
}

int mfs_indexed_dataset_tokens(const struct mfs_indexed_dataset *d, uint64_t i, uint64_t from,
			       uint64_t count, int64_t *ret, struct mfs_error *err)
{
	const unsigned size = d->info.token_size;
	int64_t chunk[WIDEN];
	const uint8_t *bytes;
	int rc = map_tokens(d, i, from, count, &bytes, err);

	for (uint64_t n; count && !rc; count -= n, ret += n, bytes += n * size) {
		n = mfs_min_u64(count, WIDEN);
		if (mfs_guard_copy(chunk, bytes, n * size))
			rc = unreadable(d, i, err);
		else if (!mfs_dtype_widen(d->info.dtype, chunk, n, ret))
			rc = mfs_fail(err, -ENOTSUP, "%s: tokens of type %s are not integers",
				      mfs_idx_member_of(d, i)->name,
				      mfs_dtype_torch(d->info.dtype));
	}
	return rc;
}

int mfs_indexed_dataset_extent(const struct mfs_indexed_dataset *d, uint64_t offset,
			       struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct mfs_idx_member *p;

	if (offset >= d->info.bin_size)
		return mfs_idx_check_range("bytes", offset, 1, d->info.bin_size, err);
	p = &d->members[mfs_last_while(i, d->member_count, d->members[i].first_byte <= offset)];
	*ret = (struct mfs_bin_extent){p->bin_set, p->bin_file, offset - p->first_byte,
				       p->first_byte + p->bin_size - offset};
	return 0;
}

/* ---- counting ---- */

/* Where sequence i of contiguous pointers begins, in tokens; i may be N. */
static int tokens_before(const struct mfs_idx_member *p, uint64_t i, uint64_t *ret,
			 struct mfs_error *err)
{
	const bool last = i == p->sequences;
	int64_t pointer = 0;
	int32_t length = 0;
	int rc = 0;

	if (p->sequences)
		rc = mfs_idx_pointers(p, i - last, 1, &pointer, err);
	if (!rc && p->sequences && last)
		rc = mfs_idx_lengths(p, i - 1, 1, &length, err);
	if (rc)
		return rc;
	if (pointer < 0 || length < 0 || pointer % p->token_size)
		return mfs_fail(err, -EINVAL, "%s.idx: sequence %llu at byte %lld, of length %d",
				p->name, (unsigned long long)(i - last), (long long)pointer,
				length);
	*ret = (uint64_t)pointer / p->token_size + (uint64_t)length;
	return 0;
}

static int count_by_lengths(const struct mfs_idx_member *p, uint64_t first, uint64_t end,
			    uint64_t *ret, struct mfs_error *err)
{
	int32_t lengths[4096];
	int rc;

	for (uint64_t n; first < end; first += n) {
		n = mfs_min_u64(end - first, 4096);
		rc = mfs_idx_lengths(p, first, n, lengths, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++) {
			if (lengths[i] < 0)
				return mfs_fail(err, -EINVAL, "%s.idx: sequence %llu has length %d",
						p->name, (unsigned long long)(first + i),
						lengths[i]);
			*ret += (uint64_t)lengths[i];
		}
	}
	return 0;
}

static int count_in_member(const struct mfs_idx_member *p, uint64_t first, uint64_t end,
			   uint64_t *ret, struct mfs_error *err)
{
	uint64_t before, after;
	int rc;

	if (p->pointers == MFS_POINTERS_AS_WRITTEN)
		return count_by_lengths(p, first, end, ret, err);
	rc = tokens_before(p, first, &before, err);
	if (!rc)
		rc = tokens_before(p, end, &after, err);
	if (rc)
		return rc;
	if (after < before)
		return mfs_fail(err, -EINVAL, "%s.idx: sequence %llu lies after sequence %llu",
				p->name, (unsigned long long)first, (unsigned long long)end);
	*ret += after - before;
	return 0;
}

int mfs_indexed_dataset_token_count(const struct mfs_indexed_dataset *d, uint64_t first,
				    uint64_t end, uint64_t *ret, struct mfs_error *err)
{
	uint64_t total = 0;
	int rc;

	if (first > end || end > d->info.sequences)
		return mfs_fail(err, -EINVAL,
				"sequences [%llu, %llu) are not among the %llu there are",
				(unsigned long long)first, (unsigned long long)end,
				(unsigned long long)d->info.sequences);
	for (uint64_t n; first < end; first += n) {
		const struct mfs_idx_member *p = mfs_idx_member_of(d, first);
		const uint64_t from = first - p->first_sequence;

		n = mfs_min_u64(end - first, p->sequences - from);
		rc = count_in_member(p, from, from + n, &total, err);
		if (rc)
			return rc;
	}
	*ret = total;
	return 0;
}
