#define _GNU_SOURCE
#include "formats/dataset/rows/rows_indexed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/rows/rows_indexed_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

static const struct mfs_rows_column mode_column = {"mode", MFS_I8};

static const struct mfs_rows_of_members *indexed_of(const struct mfs_rows *r)
{
	return (const struct mfs_rows_of_members *)r;
}

static const struct mfs_rows_member *part_of_row(const struct mfs_rows_of_members *x, uint64_t i)
{
	return &x->members[mfs_idx_member_of(x->d, i) - x->d->members];
}

/* The member that holds token t: the last one that begins at or before it. Members without
 * tokens come before it. */
static const struct mfs_rows_member *part_of_token(const struct mfs_rows_of_members *x, uint64_t t)
{
	return &x->members[mfs_last_while(i, x->member_count, x->members[i].first_token <= t)];
}

static int indexed_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			  struct mfs_error *err)
{
	const struct mfs_rows_of_members *x = indexed_of(r);
	int rc = 0;

	if (first + count > r->rows)
		ret[--count] = r->tokens;
	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_rows_member *member = part_of_row(x, first);
		const uint64_t from = first - member->p->first_sequence;

		n = mfs_min_u64(count, member->p->sequences - from);
		rc = mfs_rows_member_look(member, from, n, ret, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] += member->first_token;
	}
	return rc;
}

/* ---- tokens ---- */

/* Where the member's tokens from t on lie in its .bin, and how many lie there together, at most
 * max. -EIO: token t is not in it. */
static int locate(const struct mfs_rows_member *member, uint64_t t, uint64_t max,
		  uint64_t *ret_byte, uint64_t *ret_count, struct mfs_error *err)
{
	const struct mfs_idx_member *p = member->p;
	uint64_t row, before, room;
	int64_t pointer = 0;
	int32_t length;
	int rc = 0;

	if (mfs_rows_member_summed(member)) {
		rc = mfs_rows_member_find(member, t, &row, &before, err);
		if (!rc)
			rc = mfs_idx_pointers(p, row, 1, &pointer, err);
		if (!rc)
			rc = mfs_idx_lengths(p, row, 1, &length, err);
		if (rc)
			return rc;
		max = mfs_min_u64(max, (uint64_t)length - before);
		t = before;
	}
	/* No overflow: a .bin is smaller than 2^63, and tokens before t are fewer than 2^60. */
	room = pointer < 0 || (uint64_t)pointer > p->bin_size ? 0 : p->bin_size - (uint64_t)pointer;
	room /= p->token_size;
	if (t >= room)
		return mfs_fail(
			err, -EIO,
			"%s.bin: it has %llu bytes, but its .idx puts a token at byte %lld + %llu",
			p->name, (unsigned long long)p->bin_size, (long long)pointer,
			(unsigned long long)(t * p->token_size));
	*ret_byte = (uint64_t)pointer + t * p->token_size;
	*ret_count = mfs_min_u64(max, room - t);
	return 0;
}

static int map_bin(const struct mfs_rows_member *member, const uint8_t **ret, struct mfs_error *err)
{
	const struct mfs_idx_member *p = member->p;
	int rc;

	if (!p->bin_set)
		return mfs_fail(err, -ENODATA, "%s: its .bin was not opened", p->name);
	rc = mfs_rows_member_check(member, err);
	if (!rc)
		rc = mfs_fileset_check(p->bin_set, p->bin_file, err);
	return rc ? rc : mfs_fileset_map(p->bin_set, p->bin_file, ret, err);
}

static int read_in_member(const struct mfs_rows_member *member, uint64_t t, uint64_t count,
			  uint8_t *to, struct mfs_error *err)
{
	const unsigned size = member->p->token_size;
	const uint8_t *bin;
	uint64_t byte, n;
	int rc = map_bin(member, &bin, err);

	for (; count && !rc; t += n, count -= n, to += n * size) {
		rc = locate(member, t, count, &byte, &n, err);
		if (rc)
			return rc;
		if (mfs_guard_copy(to, bin + byte, n * size))
			return mfs_fail(err, -EIO, "%s.bin: bytes %llu+%llu cannot be read",
					member->p->name, (unsigned long long)byte,
					(unsigned long long)(n * size));
		mfs_fileset_served(member->p->bin_set, n * size);
	}
	return rc;
}

static int indexed_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
			struct mfs_error *err)
{
	uint8_t *to = ret;
	int rc = 0;

	for (uint64_t n; count && !rc; first += n, count -= n, to += n * r->token_size) {
		const struct mfs_rows_member *member = part_of_token(indexed_of(r), first);
		const uint64_t from = first - member->first_token;

		n = mfs_min_u64(count, member->tokens - from);
		rc = read_in_member(member, from, n, to, err);
	}
	return rc;
}

static int indexed_extent(const struct mfs_rows *r, uint64_t t, uint64_t max,
			  struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct mfs_rows_member *member = part_of_token(indexed_of(r), t);
	const uint64_t from = t - member->first_token;
	uint64_t byte, count;
	int rc;

	if (!member->p->bin_set)
		return -ENODATA;
	rc = locate(member, from, mfs_min_u64(max, member->tokens - from), &byte, &count, err);
	if (rc)
		return rc == -EIO ? -ENODATA : rc;
	*ret = (struct mfs_bin_extent){member->p->bin_set, member->p->bin_file, byte,
				       count * r->token_size};
	return 0;
}

static int indexed_gather_starts(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
				 uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_rows_member *member, *checked = NULL;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		member = part_of_row(indexed_of(r), (uint64_t)rows[i]);
		rc = member == checked ? 0 : mfs_rows_member_check(member, err);
		checked = member;
		if (!rc)
			rc = mfs_rows_member_starts(member,
						    (uint64_t)rows[i] - member->p->first_sequence,
						    1, &ret[i], err);
		if (!rc)
			ret[i] += member->first_token;
	}
	return rc;
}

static int indexed_lengths(const struct mfs_rows *r, uint64_t first, uint64_t count, int32_t *ret,
			   struct mfs_error *err)
{
	return mfs_indexed_dataset_lengths(indexed_of(r)->d, first, count, ret, err);
}

static int indexed_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
				  int32_t *ret, struct mfs_error *err)
{
	return mfs_indexed_dataset_gather_lengths(indexed_of(r)->d, rows, count, ret, err);
}

static int indexed_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
			  void *ret, struct mfs_error *err)
{
	const struct mfs_rows_of_members *x = indexed_of(r);
	const struct mfs_rows_member *member;
	int rc = 0;

	(void)column; /* there is one */
	for (uint64_t i = first; i < first + count && !rc;) {
		member = part_of_row(x, i);
		i = member->p->first_sequence + member->p->sequences;
		rc = mfs_rows_member_check(member, err);
	}
	return rc ? rc : mfs_indexed_dataset_modes(x->d, first, count, ret, err);
}

static void indexed_drop(const struct mfs_rows *r)
{
	mfs_indexed_dataset_drop(indexed_of(r)->d);
}

static void indexed_free(struct mfs_rows *r)
{
	struct mfs_rows_of_members *x = (struct mfs_rows_of_members *)r;

	for (size_t i = 0; i < x->member_count; i++)
		free(x->members[i].sums);
	free(x->members);
	free(x->name);
	free(x);
}

static const struct mfs_rows_ops indexed_ops = {
	.starts = indexed_starts,
	.read = indexed_read,
	.extent = indexed_extent,
	.gather_starts = indexed_gather_starts,
	.lengths = indexed_lengths,
	.gather_lengths = indexed_gather_lengths,
	.column = indexed_column,
	.drop = indexed_drop,
	.free = indexed_free,
};

static char *name_of(const struct mfs_indexed_dataset *d)
{
	char *name = NULL;

	if (d->member_count == 1)
		return strdup(d->members->name);
	return asprintf(&name, "%s and %zu more", d->members->name, d->member_count - 1) < 0 ? NULL
											     : name;
}

static void describe(struct mfs_rows_of_members *x)
{
	const struct mfs_indexed_dataset *d = x->d;

	x->rows = (struct mfs_rows){
		.ops = &indexed_ops,
		.name = x->name,
		.dtype = d->info.dtype,
		.token_size = d->info.token_size,
		.rows = d->info.sequences,
		.columns = &mode_column,
		.column_count = d->info.multimodal,
		.sets = d->sets,
		.set_count = d->set_count,
	};
}

int mfs_rows_indexed(const struct mfs_indexed_dataset *d, struct mfs_rows **ret,
		     struct mfs_error *err)
{
	struct mfs_rows_of_members *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return mfs_fail_nomem(err);
	x->d = d;
	x->name = name_of(d);
	describe(x);
	x->members = calloc(d->member_count, sizeof(*x->members));
	rc = x->name && x->members ? mfs_rows_measure(x, err) : mfs_fail_nomem(err);
	if (rc) {
		mfs_rows_free(&x->rows);
		return rc;
	}
	*ret = &x->rows;
	return 0;
}
