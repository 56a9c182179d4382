#define _GNU_SOURCE
#include "formats/dataset/rows_indexed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/indexed_dataset_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

#define STRIDE	64   /* rows between two sums of lengths */
#define CHUNK	4096 /* rows that a pass takes at once; a multiple of STRIDE */
#define MAX_BAD 4096 /* runs of unreadable rows, each of which costs a view some pages */
#define LOOK	16   /* starts of as many rows are read by themselves */
/* So many rows are looked at one by one when the dataset is opened: milliseconds. */
#define LOOK_AT_ALL (1u << 20)

/* The rows of one prefix. */
struct part {
	const struct mfs_idx_part *p;
	uint64_t first_token, tokens;
	uint64_t *sums; /* of AS_WRITTEN pointers: tokens before every STRIDE-th row of the part */
};

struct indexed {
	struct mfs_rows rows;
	const struct mfs_indexed_dataset *d;
	struct part *parts;
	size_t part_count;
	struct mfs_row_range *bad;
	size_t bad_room;
	char *name;
};

static const struct mfs_rows_column mode_column = {"mode", MFS_I8};

static const struct indexed *indexed_of(const struct mfs_rows *r)
{
	return (const struct indexed *)r;
}

static bool as_written(const struct part *part)
{
	return part->p->pointers == MFS_POINTERS_AS_WRITTEN;
}

static const struct part *part_of_row(const struct indexed *x, uint64_t i)
{
	return &x->parts[mfs_idx_part_of(x->d, i) - x->d->parts];
}

/* The part that holds token t: the last one that begins at or before it, as ones without tokens come before. */
static const struct part *part_of_token(const struct indexed *x, uint64_t t)
{
	size_t lo = 0, hi = x->part_count;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (x->parts[mid].first_token <= t)
			lo = mid;
		else
			hi = mid;
	}
	return &x->parts[lo];
}

static int check_idx(const struct part *part, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;

	return p->idx_set ? mfs_fileset_check(p->idx_set, p->idx_file, err) : 0;
}

/* ---- starts ---- */

/* Pointers become tokens before rows [first, first+count) of a part, none of them its end, within the part. */
static int pointers_to_starts(const struct part *part, uint64_t first, uint64_t count,
			      uint64_t *starts, struct mfs_error *err)
{
	const unsigned size = part->p->token_size;
	uint64_t before = 0;

	for (uint64_t i = 0; i < count; i++) {
		const uint64_t start = starts[i] / size;

		if (starts[i] % size || start < before || start > part->tokens)
			return mfs_fail(
				err, -EIO,
				"%s.idx: sequence %llu is said to begin at byte %lld, neither behind the one "
				"before it nor before the last",
				part->p->name, (unsigned long long)(first + i),
				(long long)starts[i]);
		starts[i] = before = start;
	}
	return 0;
}

static int contiguous_starts(const struct part *part, uint64_t first, uint64_t count, uint64_t *ret,
			     struct mfs_error *err)
{
	int rc = mfs_idx_pointers(part->p, first, count, (int64_t *)ret, err);

	return rc ? rc : pointers_to_starts(part, first, count, ret, err);
}

/*
 * A few pointers somewhere, read by themselves: who searches a row, or the places where a file is to be cut, looks
 * at thousands of them, and each fault of a mapping reads around it as far as the device's read-ahead goes.
 */
static int look_at_starts(const struct part *part, uint64_t first, uint64_t count, uint64_t *ret,
			  struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	int rc = mfs_fileset_read(p->idx_set, p->idx_file, p->pointers_at + 8 * first, ret,
				  8 * count, err);

	return rc ? rc : pointers_to_starts(part, first, count, ret, err);
}

static int negative_length(const struct part *part, uint64_t i, int32_t length, int code,
			   struct mfs_error *err)
{
	return mfs_fail(err, code, "%s.idx: sequence %llu has length %d", part->p->name,
			(unsigned long long)i, length);
}

static int summed_starts(const struct part *part, uint64_t first, uint64_t count, uint64_t *ret,
			 struct mfs_error *err)
{
	uint64_t at = first / STRIDE * STRIDE, sum = part->sums[at / STRIDE], n;
	int32_t lengths[STRIDE];

	for (; at < first + count; at += n) {
		int rc;

		n = mfs_min_u64(STRIDE, first + count - at);
		rc = mfs_idx_lengths(part->p, at, n, lengths, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++) {
			if (lengths[i] < 0)
				return negative_length(part, at + i, lengths[i], -EIO, err);
			if (at + i >= first)
				ret[at + i - first] = sum;
			sum += (uint64_t)lengths[i];
		}
	}
	return 0;
}

static int part_starts(const struct part *part, uint64_t first, uint64_t count, uint64_t *ret,
		       struct mfs_error *err)
{
	return as_written(part) ? summed_starts(part, first, count, ret, err)
				: contiguous_starts(part, first, count, ret, err);
}

/* The same of an .idx that is still the one that was opened. */
static int checked_starts(const struct part *part, uint64_t first, uint64_t count, uint64_t *ret,
			  struct mfs_error *err)
{
	int rc;

	if (count <= LOOK && part->p->idx_set && part->p->pointers == MFS_POINTERS_CONTIGUOUS)
		return look_at_starts(part, first, count, ret, err);
	rc = check_idx(part, err);
	return rc ? rc : part_starts(part, first, count, ret, err);
}

static int indexed_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
			  struct mfs_error *err)
{
	const struct indexed *x = indexed_of(r);
	int rc = 0;

	if (first + count > r->rows)
		ret[--count] = r->tokens;
	for (uint64_t n; count && !rc; first += n, count -= n, ret += n) {
		const struct part *part = part_of_row(x, first);
		const uint64_t from = first - part->p->first_sequence;

		n = mfs_min_u64(count, part->p->sequences - from);
		rc = checked_starts(part, from, n, ret, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] += part->first_token;
	}
	return rc;
}

/* The row of a part of AS_WRITTEN pointers that holds its token t, and how many of the row's come before it. */
static int summed_find(const struct part *part, uint64_t t, uint64_t *ret_row, uint64_t *ret_before,
		       struct mfs_error *err)
{
	uint64_t lo = 0, hi = (part->p->sequences + STRIDE - 1) / STRIDE, n;
	int32_t lengths[STRIDE];
	int rc;

	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (part->sums[mid] <= t)
			lo = mid;
		else
			hi = mid;
	}
	t -= part->sums[lo];
	n = mfs_min_u64(STRIDE, part->p->sequences - lo * STRIDE);
	rc = mfs_idx_lengths(part->p, lo * STRIDE, n, lengths, err);
	for (uint64_t i = 0; i < n && !rc; i++) {
		if (lengths[i] < 0)
			return negative_length(part, lo * STRIDE + i, lengths[i], -EIO, err);
		if (t < (uint64_t)lengths[i]) {
			*ret_row = lo * STRIDE + i;
			*ret_before = t;
			return 0;
		}
		t -= (uint64_t)lengths[i];
	}
	return rc ? rc
		  : mfs_fail(err, -EIO, "%s.idx: its lengths are no longer what they were",
			     part->p->name);
}

/* ---- tokens ---- */

/* Where tokens from t on lie, relative to the part: bytes of its .bin, as many tokens as lie there together
 * or max. -EIO: token t does not lie in it. */
static int locate(const struct part *part, uint64_t t, uint64_t max, uint64_t *ret_byte,
		  uint64_t *ret_count, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	uint64_t row, before, room;
	int64_t pointer = 0;
	int32_t length;
	int rc = 0;

	if (as_written(part)) {
		rc = summed_find(part, t, &row, &before, err);
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

static int map_bin(const struct part *part, const uint8_t **ret, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	int rc;

	if (!p->bin_set)
		return mfs_fail(err, -ENODATA, "%s: its .bin is not at hand", p->name);
	rc = check_idx(part, err);
	if (!rc)
		rc = mfs_fileset_check(p->bin_set, p->bin_file, err);
	return rc ? rc : mfs_fileset_map(p->bin_set, p->bin_file, ret, err);
}

static int read_in_part(const struct part *part, uint64_t t, uint64_t count, uint8_t *to,
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
		const struct part *part = part_of_token(indexed_of(r), first);
		const uint64_t from = first - part->first_token;

		n = mfs_min_u64(count, part->tokens - from);
		rc = read_in_part(part, from, n, to, err);
	}
	return rc;
}

static int indexed_extent(const struct mfs_rows *r, uint64_t t, uint64_t max,
			  struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct part *part = part_of_token(indexed_of(r), t);
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
	const struct part *part, *checked = NULL;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		part = part_of_row(indexed_of(r), (uint64_t)rows[i]);
		rc = part == checked ? 0 : check_idx(part, err);
		checked = part;
		if (!rc)
			rc = part_starts(part, (uint64_t)rows[i] - part->p->first_sequence, 1,
					 &ret[i], err);
		if (!rc)
			ret[i] += part->first_token;
	}
	return rc;
}

static int indexed_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
				  int32_t *ret, struct mfs_error *err)
{
	return mfs_indexed_dataset_gather_lengths(indexed_of(r)->d, rows, count, ret, err);
}

static int indexed_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
			  void *ret, struct mfs_error *err)
{
	const struct indexed *x = indexed_of(r);
	const struct part *part;
	int rc = 0;

	(void)column; /* there is one */
	for (uint64_t i = first; i < first + count && !rc;) {
		part = part_of_row(x, i);
		i = part->p->first_sequence + part->p->sequences;
		rc = check_idx(part, err);
	}
	return rc ? rc : mfs_indexed_dataset_modes(x->d, first, count, ret, err);
}

static void indexed_drop(const struct mfs_rows *r)
{
	mfs_indexed_dataset_drop(indexed_of(r)->d);
}

static void indexed_free(struct mfs_rows *r)
{
	struct indexed *x = (struct indexed *)r;

	for (size_t i = 0; i < x->part_count; i++)
		free(x->parts[i].sums);
	free(x->parts);
	free(x->bad);
	free(x->name);
	free(x);
}

static const struct mfs_rows_ops indexed_ops = {
	.starts = indexed_starts,
	.read = indexed_read,
	.extent = indexed_extent,
	.gather_starts = indexed_gather_starts,
	.gather_lengths = indexed_gather_lengths,
	.column = indexed_column,
	.drop = indexed_drop,
	.free = indexed_free,
};

/* ---- opening ---- */

/* Rows [first, end) of the whole, behind the ones that are there. */
static int add_bad(struct indexed *x, uint64_t first, uint64_t end, struct mfs_error *err)
{
	struct mfs_rows *r = &x->rows;

	if (r->bad_count && x->bad[r->bad_count - 1].end == first) {
		x->bad[r->bad_count - 1].end = end;
		return 0;
	}
	if (r->bad_count == MAX_BAD)
		return mfs_fail(err, -ENOTSUP,
				"%s: more than %d runs of sequences lie outside of their .bin",
				r->name, MAX_BAD);
	if (r->bad_count == x->bad_room) {
		const size_t room = x->bad_room ? 2 * x->bad_room : 16;
		struct mfs_row_range *bad = reallocarray(x->bad, room, sizeof(*bad));

		if (!bad)
			return mfs_fail_nomem(err);
		x->bad = bad;
		x->bad_room = room;
		r->bad = bad;
	}
	x->bad[r->bad_count++] = (struct mfs_row_range){first, end};
	return 0;
}

/* Of contiguous pointers into a .bin that ends early: from the first row on that ends behind it. */
static int find_bad(struct indexed *x, const struct part *part, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	const uint64_t whole = p->bin_size / p->token_size;
	uint64_t lo = 0, hi = p->sequences; /* rows lo, hi begin before, behind the end of .bin */

	if (part->tokens <= whole)
		return 0;
	while (hi - lo > 1) {
		const uint64_t mid = lo + (hi - lo) / 2;
		uint64_t start;
		int rc = part_starts(part, mid, 1, &start, err);

		if (rc)
			return rc;
		if (start <= whole)
			lo = mid;
		else
			hi = mid;
	}
	return add_bad(x, p->first_sequence + lo, p->first_sequence + p->sequences, err);
}

/* What a pass over the rows of a part is at. */
struct pass {
	struct indexed *x;
	struct part *part;
	uint64_t tokens; /* before the row at hand */
};

static bool is_inside(const struct mfs_idx_part *p, int64_t pointer, int32_t length)
{
	return !length ||
	       (pointer >= 0 &&
		mfs_range_ok((uint64_t)pointer, (uint64_t)length * p->token_size, p->bin_size));
}

static int pass_row(struct pass *s, uint64_t i, int64_t pointer, int32_t length,
		    struct mfs_error *err)
{
	const struct mfs_idx_part *p = s->part->p;

	if (length < 0)
		return negative_length(s->part, i, length, -EINVAL, err);
	if (!as_written(s->part) && (uint64_t)pointer != s->tokens * p->token_size)
		return mfs_fail(
			err, -EINVAL,
			"%s.idx: sequence %llu is said to begin at byte %lld, the one before "
			"it ends at byte %llu",
			p->name, (unsigned long long)i, (long long)pointer,
			(unsigned long long)(s->tokens * p->token_size));
	if (s->part->sums && i % STRIDE == 0)
		s->part->sums[i / STRIDE] = s->tokens;
	if (mfs_add_overflows(s->tokens, (uint64_t)length, &s->tokens))
		return mfs_fail(err, -EINVAL, "%s.idx: more than 2^64 tokens", p->name);
	if (!as_written(s->part) || is_inside(p, pointer, length))
		return 0;
	return add_bad(s->x, p->first_sequence + i, p->first_sequence + i + 1, err);
}

static int pass_over(struct pass *s, struct mfs_error *err)
{
	const struct mfs_idx_part *p = s->part->p;
	int64_t pointers[CHUNK];
	int32_t lengths[CHUNK];
	int rc = 0;

	for (uint64_t at = 0, n; at < p->sequences && !rc; at += n) {
		n = mfs_min_u64(CHUNK, p->sequences - at);
		rc = mfs_idx_lengths(p, at, n, lengths, err);
		if (!rc)
			rc = mfs_idx_pointers(p, at, n, pointers, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			rc = pass_row(s, at + i, pointers[i], lengths[i], err);
	}
	return rc;
}

static int sum_part(struct indexed *x, struct part *part, struct mfs_error *err)
{
	struct pass s = {x, part, 0};
	int rc;

	part->sums = calloc(part->p->sequences / STRIDE + 1, sizeof(*part->sums));
	if (!part->sums)
		return mfs_fail_nomem(err);
	rc = pass_over(&s, err);
	if (!rc)
		part->tokens = s.tokens;
	return rc;
}

static int measure_part(struct indexed *x, struct part *part, struct mfs_error *err)
{
	const struct mfs_idx_part *p = part->p;
	int rc = mfs_indexed_dataset_token_count(
		x->d, p->first_sequence, p->first_sequence + p->sequences, &part->tokens, err);

	if (!rc && x->d->info.sequences <= LOOK_AT_ALL)
		rc = pass_over(&(struct pass){x, part, 0}, err);
	return rc ? rc : find_bad(x, part, err);
}

static int add_parts(struct indexed *x, struct mfs_error *err)
{
	const struct mfs_indexed_dataset *d = x->d;
	uint64_t bytes;
	int rc = 0;

	for (size_t i = 0; i < d->part_count && !rc; i++) {
		struct part *part = &x->parts[x->part_count++];

		part->p = &d->parts[i];
		part->first_token = x->rows.tokens;
		rc = as_written(part) ? sum_part(x, part, err) : measure_part(x, part, err);
		if (!rc && (mfs_add_overflows(x->rows.tokens, part->tokens, &x->rows.tokens) ||
			    mfs_mul_overflows(x->rows.tokens, x->rows.token_size, &bytes) ||
			    bytes > INT64_MAX))
			rc = mfs_fail(err, -EINVAL, "%s: more tokens than can be addressed",
				      x->rows.name);
	}
	return rc;
}

static char *name_of(const struct mfs_indexed_dataset *d)
{
	char *name = NULL;

	if (d->part_count == 1)
		return strdup(d->parts->name);
	return asprintf(&name, "%s and %zu more", d->parts->name, d->part_count - 1) < 0 ? NULL
											 : name;
}

static void describe(struct indexed *x)
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
	struct indexed *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return mfs_fail_nomem(err);
	x->d = d;
	x->name = name_of(d);
	describe(x);
	x->parts = calloc(d->part_count, sizeof(*x->parts));
	rc = x->name && x->parts ? add_parts(x, err) : mfs_fail_nomem(err);
	if (rc) {
		indexed_free(&x->rows);
		return rc;
	}
	*ret = &x->rows;
	return 0;
}
