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

static const struct mfs_rows_of_parts *indexed_of(const struct mfs_rows *r)
{
	return (const struct mfs_rows_of_parts *)r;
}

static const struct mfs_rows_part *part_of_row(const struct mfs_rows_of_parts *x, uint64_t i)
{
	return &x->parts[mfs_idx_part_of(x->d, i) - x->d->parts];
}

/* The part that holds token t: the last one that begins at or before it, as ones without tokens come before. */
static const struct mfs_rows_part *part_of_token(const struct mfs_rows_of_parts *x, uint64_t t)
{
	return &x->parts[mfs_last_while(i, x->part_count, x->parts[i].first_token <= t)];
}

static int indexed_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			  struct mfs_error *err)
{
	const struct mfs_rows_of_parts *x = indexed_of(r);
	int rc = 0;

	if (first + count > r->rows)
		ret[--count] = r->tokens;
	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct mfs_rows_part *part = part_of_row(x, first);
		const uint64_t from = first - part->p->first_sequence;

		n = mfs_min_u64(count, part->p->sequences - from);
		rc = mfs_rows_part_look(part, from, n, ret, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] += part->first_token;
	}
	return rc;
}

/* ---- tokens ---- */

/* Where tokens from t on lie, relative to the part: bytes of its .bin, as many tokens as lie there together
 * or max. -EIO: token t does not lie in it. */
static int locate(const struct mfs_rows_part *part, uint64_t t, uint64_t max, uint64_t *ret_byte,
		  uint64_t *ret_count, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	uint64_t row, before, room;
	int64_t pointer = 0;
	int32_t length;
	int rc = 0;

	if (mfs_rows_part_summed(part)) {
		rc = mfs_rows_part_find(part, t, &row, &before, err);
		if (!rc)
			rc = mfs_idx_pointers(p, row, 1, &pointer, err);
		if (!rc)
			rc = mfs_idx_lengths(p, row, 1, &length, err);
		if (rc)
			return rc;
		max = mfs_min_u64(max, (uint64_t)length - before);
		t = before;
	}
	/* A .bin is smaller than 2^63, tokens before t are fewer than 2^60. */
	room = pointer < 0 || (uint64_t)pointer > p->bin_size ? 0 : p->bin_size - (uint64_t)pointer;
	room /= p->token_size;
	if (t >= room)
		return mfs_fail(
			err, -EIO,
			"%s.bin: it has %llu bytes, its .idx puts a token at byte %lld + %llu",
			p->name, (unsigned long long)p->bin_size, (long long)pointer,
			(unsigned long long)(t * p->token_size));
	*ret_byte = (uint64_t)pointer + t * p->token_size;
	*ret_count = mfs_min_u64(max, room - t);
	return 0;
}

static int map_bin(const struct mfs_rows_part *part, const uint8_t **ret, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	int rc;

	if (!p->bin_set)
		return mfs_fail(err, -ENODATA, "%s: its .bin is not at hand", p->name);
	rc = mfs_rows_part_check(part, err);
	if (!rc)
		rc = mfs_fileset_check(p->bin_set, p->bin_file, err);
	return rc ? rc : mfs_fileset_map(p->bin_set, p->bin_file, ret, err);
}

static int read_in_part(const struct mfs_rows_part *part, uint64_t t, uint64_t count, uint8_t *to,
			struct mfs_error *err)
{
	const unsigned size = part->p->token_size;
	const uint8_t *bin;
	uint64_t byte, n;
	int rc = map_bin(part, &bin, err);

	for (; count && !rc; t += n, count -= n, to += n * size) {
		rc = locate(part, t, count, &byte, &n, err);
		if (rc)
			return rc;
		if (mfs_guard_copy(to, bin + byte, n * size))
			return mfs_fail(err, -EIO, "%s.bin: bytes %llu+%llu cannot be read",
					part->p->name, (unsigned long long)byte,
					(unsigned long long)(n * size));
		mfs_fileset_served(part->p->bin_set, n * size);
	}
	return rc;
}

static int indexed_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
			struct mfs_error *err)
{
	uint8_t *to = ret;
	int rc = 0;

	for (uint64_t n; count && !rc; first += n, count -= n, to += n * r->token_size) {
		const struct mfs_rows_part *part = part_of_token(indexed_of(r), first);
		const uint64_t from = first - part->first_token;

		n = mfs_min_u64(count, part->tokens - from);
		rc = read_in_part(part, from, n, to, err);
	}
	return rc;
}

static int indexed_extent(const struct mfs_rows *r, uint64_t t, uint64_t max,
			  struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct mfs_rows_part *part = part_of_token(indexed_of(r), t);
	const uint64_t from = t - part->first_token;
	uint64_t byte, count;
	int rc;

	if (!part->p->bin_set)
		return -ENODATA;
	rc = locate(part, from, mfs_min_u64(max, part->tokens - from), &byte, &count, err);
	if (rc)
		return rc == -EIO ? -ENODATA : rc;
	*ret = (struct mfs_bin_extent){part->p->bin_set, part->p->bin_file, byte,
				       count * r->token_size};
	return 0;
}

static int indexed_gather_starts(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
				 uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_rows_part *part, *checked = NULL;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		part = part_of_row(indexed_of(r), (uint64_t)rows[i]);
		rc = part == checked ? 0 : mfs_rows_part_check(part, err);
		checked = part;
		if (!rc)
			rc = mfs_rows_part_starts(part, (uint64_t)rows[i] - part->p->first_sequence,
						  1, &ret[i], err);
		if (!rc)
			ret[i] += part->first_token;
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
	const struct mfs_rows_of_parts *x = indexed_of(r);
	const struct mfs_rows_part *part;
	int rc = 0;

	(void)column; /* there is one */
	for (uint64_t i = first; i < first + count && !rc;) {
		part = part_of_row(x, i);
		i = part->p->first_sequence + part->p->sequences;
		rc = mfs_rows_part_check(part, err);
	}
	return rc ? rc : mfs_indexed_dataset_modes(x->d, first, count, ret, err);
}

static void indexed_drop(const struct mfs_rows *r)
{
	mfs_indexed_dataset_drop(indexed_of(r)->d);
}

static void indexed_free(struct mfs_rows *r)
{
	struct mfs_rows_of_parts *x = (struct mfs_rows_of_parts *)r;

	for (size_t i = 0; i < x->part_count; i++)
		free(x->parts[i].sums);
	free(x->parts);
	mfs_row_ranges_release(&x->bad);
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

	if (d->part_count == 1)
		return strdup(d->parts->name);
	return asprintf(&name, "%s and %zu more", d->parts->name, d->part_count - 1) < 0 ? NULL
											 : name;
}

static void describe(struct mfs_rows_of_parts *x)
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
	struct mfs_rows_of_parts *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return mfs_fail_nomem(err);
	x->d = d;
	x->name = name_of(d);
	describe(x);
	x->parts = calloc(d->part_count, sizeof(*x->parts));
	rc = x->name && x->parts ? mfs_rows_measure(x, err) : mfs_fail_nomem(err);
	if (rc) {
		indexed_free(&x->rows);
		return rc;
	}
	*ret = &x->rows;
	return 0;
}
