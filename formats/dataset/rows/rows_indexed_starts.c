/* Where the rows of one prefix begin. */
#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/rows/rows_indexed_i.h"
#include "formats/io/fileset.h"

#define LOOK  16	 /* starts of as many rows are read by themselves */
#define FAULT (1u << 20) /* bytes of an .idx that a look through its mapping may have mapped */

int mfs_rows_member_check(const struct mfs_rows_member *member, struct mfs_error *err)
{
	const struct mfs_idx_member *p = member->p;

	return p->idx_set ? mfs_fileset_check(p->idx_set, p->idx_file, err) : 0;
}

/* Pointers become tokens before rows [first, first+count) of a member, none of them its end, within
 * the member. */
static int pointers_to_starts(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			      uint64_t *starts, struct mfs_error *err)
{
	const unsigned size = member->p->token_size;
	uint64_t before = 0;

	for (uint64_t i = 0; i < count; i++) {
		const uint64_t start = starts[i] / size;

		if (starts[i] % size || start < before || start > member->tokens)
			return mfs_fail(
				err, -EIO,
				"%s.idx: sequence %llu begins at byte %lld, which is before the "
				"previous sequence or after the last one",
				member->p->name, (unsigned long long)(first + i),
				(long long)starts[i]);
		starts[i] = before = start;
	}
	return 0;
}

static int contiguous_starts(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			     uint64_t *ret, struct mfs_error *err)
{
	int rc = mfs_idx_pointers(member->p, first, count, (int64_t *)ret, err);

	return rc ? rc : pointers_to_starts(member, first, count, ret, err);
}

/*
 * Reads a few pointers with a system call. A search for rows, or for places where a file is to be
 * cut, looks at thousands of them, and each fault of the mapping would read as far around it as the
 * device's read-ahead goes.
 */
static int look_at_starts(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			  uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_idx_member *p = member->p;
	int rc = mfs_fileset_read(p->idx_set, p->idx_file, p->pointers_at + 8 * first, ret,
				  8 * count, err);

	return rc ? rc : pointers_to_starts(member, first, count, ret, err);
}

int mfs_rows_member_bad_length(const struct mfs_rows_member *member, uint64_t i, int32_t length,
			       int code, struct mfs_error *err)
{
	return mfs_fail(err, code, "%s.idx: sequence %llu has length %d", member->p->name,
			(unsigned long long)i, length);
}

static int summed_starts(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			 uint64_t *ret, struct mfs_error *err)
{
	uint64_t at = first / MFS_ROWS_STRIDE * MFS_ROWS_STRIDE,
		 sum = member->sums[at / MFS_ROWS_STRIDE], n;
	int32_t lengths[MFS_ROWS_STRIDE];

	for (; at < first + count; at += n) {
		int rc;

		n = mfs_min_u64(MFS_ROWS_STRIDE, first + count - at);
		rc = mfs_idx_lengths(member->p, at, n, lengths, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++) {
			if (lengths[i] < 0)
				return mfs_rows_member_bad_length(member, at + i, lengths[i], -EIO,
								  err);
			if (at + i >= first)
				ret[at + i - first] = sum;
			sum += (uint64_t)lengths[i];
		}
	}
	return 0;
}

int mfs_rows_member_starts(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			   uint64_t *ret, struct mfs_error *err)
{
	return mfs_rows_member_summed(member) ? summed_starts(member, first, count, ret, err)
					      : contiguous_starts(member, first, count, ret, err);
}

int mfs_rows_member_look(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			 uint64_t *ret, struct mfs_error *err)
{
	int rc;

	if (count <= LOOK && member->p->idx_set && member->p->pointers == MFS_POINTERS_CONTIGUOUS)
		return look_at_starts(member, first, count, ret, err);
	rc = mfs_rows_member_check(member, err);
	if (!rc)
		rc = mfs_rows_member_starts(member, first, count, ret, err);
	/* They are few bytes, but a fault may have mapped so much around them. */
	if (member->p->idx_set)
		mfs_fileset_served(member->p->idx_set, FAULT);
	return rc;
}

int mfs_rows_member_find(const struct mfs_rows_member *member, uint64_t t, uint64_t *ret_row,
			 uint64_t *ret_before, struct mfs_error *err)
{
	const uint64_t strides = (member->p->sequences + MFS_ROWS_STRIDE - 1) / MFS_ROWS_STRIDE;
	const uint64_t stride = mfs_last_while(i, strides, member->sums[i] <= t);
	const uint64_t first = stride * MFS_ROWS_STRIDE;
	const uint64_t n = mfs_min_u64(MFS_ROWS_STRIDE, member->p->sequences - first);
	int32_t lengths[MFS_ROWS_STRIDE];
	int rc = mfs_idx_lengths(member->p, first, n, lengths, err);

	t -= member->sums[stride];
	for (uint64_t i = 0; i < n && !rc; i++) {
		if (lengths[i] < 0)
			return mfs_rows_member_bad_length(member, first + i, lengths[i], -EIO, err);
		if (t < (uint64_t)lengths[i]) {
			*ret_row = first + i;
			*ret_before = t;
			return 0;
		}
		t -= (uint64_t)lengths[i];
	}
	return rc ? rc
		  : mfs_fail(err, -EIO, "%s.idx: its lengths have changed since it was opened",
			     member->p->name);
}
