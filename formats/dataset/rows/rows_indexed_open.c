/* What is found out when an indexed dataset's rows are made: how many tokens there are, and
 * which rows cannot be read. */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/rows/rows_indexed_i.h"

#define CHUNK 4096 /* rows that a pass takes at once; a multiple of MFS_ROWS_STRIDE */
/* So many rows are checked one by one when a dataset is opened, which takes milliseconds. */
#define LOOK_AT_ALL (1u << 20)

/* Rows [first, end) of the whole. */
static int add_bad(struct mfs_rows_of_members *x, uint64_t first, uint64_t end,
		   struct mfs_error *err)
{
	int rc = mfs_row_ranges_add(&x->rows.bad, first, end);

	if (rc == -ENOMEM)
		return mfs_fail_nomem(err);
	return rc ? mfs_fail(err, -ENOTSUP,
			     "%s: more than %d ranges of sequences lie outside of their .bin",
			     x->rows.name, MFS_ROW_RANGES_MAX)
		  : 0;
}

/* If contiguous pointers lead out of a .bin that ends early, all rows are bad from the first one
 * that ends past it. */
static int find_bad(struct mfs_rows_of_members *x, const struct mfs_rows_member *member,
		    struct mfs_error *err)
{
	const struct mfs_idx_member *p = member->p;
	const uint64_t whole = p->bin_size / p->token_size;
	uint64_t start, last;
	int rc = 0;

	if (member->tokens <= whole)
		return 0;
	/* The last row that begins before the end of .bin ends past it. */
	last = mfs_last_while(i, p->sequences,
			      !rc && !(rc = mfs_rows_member_starts(member, i, 1, &start, err)) &&
				      start <= whole);
	return rc ? rc
		  : add_bad(x, p->first_sequence + last, p->first_sequence + p->sequences, err);
}

/* What a pass over the rows of a member is at. */
struct pass {
	struct mfs_rows_of_members *x;
	struct mfs_rows_member *member;
	uint64_t tokens; /* before the row at hand */
};

static bool is_inside(const struct mfs_idx_member *p, int64_t pointer, int32_t length)
{
	return !length ||
	       (pointer >= 0 &&
		mfs_range_ok((uint64_t)pointer, (uint64_t)length * p->token_size, p->bin_size));
}

static int pass_row(struct pass *s, uint64_t i, int64_t pointer, int32_t length,
		    struct mfs_error *err)
{
	const struct mfs_idx_member *p = s->member->p;

	if (length < 0)
		return mfs_rows_member_bad_length(s->member, i, length, -EINVAL, err);
	if (!mfs_rows_member_summed(s->member) && (uint64_t)pointer != s->tokens * p->token_size)
		return mfs_fail(
			err, -EINVAL,
			"%s.idx: sequence %llu begins at byte %lld, but the one before it ends at "
			"byte %llu",
			p->name, (unsigned long long)i, (long long)pointer,
			(unsigned long long)(s->tokens * p->token_size));
	if (s->member->sums && i % MFS_ROWS_STRIDE == 0)
		s->member->sums[i / MFS_ROWS_STRIDE] = s->tokens;
	if (mfs_add_overflows(s->tokens, (uint64_t)length, &s->tokens))
		return mfs_fail(err, -EINVAL, "%s.idx: more than 2^64 tokens", p->name);
	if (!mfs_rows_member_summed(s->member) || is_inside(p, pointer, length))
		return 0;
	return add_bad(s->x, p->first_sequence + i, p->first_sequence + i + 1, err);
}

static int pass_over(struct pass *s, struct mfs_error *err)
{
	const struct mfs_idx_member *p = s->member->p;
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

static int sum_member(struct mfs_rows_of_members *x, struct mfs_rows_member *member,
		      struct mfs_error *err)
{
	struct pass s = {x, member, 0};
	int rc;

	member->sums = calloc(member->p->sequences / MFS_ROWS_STRIDE + 1, sizeof(*member->sums));
	if (!member->sums)
		return mfs_fail_nomem(err);
	rc = pass_over(&s, err);
	if (!rc)
		member->tokens = s.tokens;
	return rc;
}

static int measure_member(struct mfs_rows_of_members *x, struct mfs_rows_member *member,
			  struct mfs_error *err)
{
	const struct mfs_idx_member *p = member->p;
	int rc = mfs_indexed_dataset_token_count(
		x->d, p->first_sequence, p->first_sequence + p->sequences, &member->tokens, err);

	if (!rc && x->d->info.sequences <= LOOK_AT_ALL)
		rc = pass_over(&(struct pass){x, member, 0}, err);
	return rc ? rc : find_bad(x, member, err);
}

int mfs_rows_measure(struct mfs_rows_of_members *x, struct mfs_error *err)
{
	const struct mfs_indexed_dataset *d = x->d;
	uint64_t bytes;
	int rc = 0;

	for (size_t i = 0; i < d->member_count && !rc; i++) {
		struct mfs_rows_member *member = &x->members[x->member_count++];

		member->p = &d->members[i];
		member->first_token = x->rows.tokens;
		rc = mfs_rows_member_summed(member) ? sum_member(x, member, err)
						    : measure_member(x, member, err);
		if (!rc && (mfs_add_overflows(x->rows.tokens, member->tokens, &x->rows.tokens) ||
			    mfs_mul_overflows(x->rows.tokens, x->rows.token_size, &bytes) ||
			    bytes > INT64_MAX))
			rc = mfs_fail(err, -EINVAL, "%s: more tokens than can be addressed",
				      x->rows.name);
	}
	return rc;
}
