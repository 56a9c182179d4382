/* Decides what the pointers of an .idx are worth: they are believed, computed again, or taken one
 * by one. */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset_i.h"

#define PROBES 14
#define CHUNK  4096 /* sequences that a pass takes at once */

/* Where sequence i ends, or false: its length is negative or its end is no offset. */
static bool sequence_end(const struct mfs_idx_member *p, int64_t pointer, int32_t length,
			 uint64_t *ret)
{
	return pointer >= 0 && length >= 0 &&
	       !mfs_add_overflows((uint64_t)pointer, (uint64_t)length * p->token_size, ret) &&
	       *ret <= INT64_MAX;
}

static int pointer_as_written(const struct mfs_idx_member *p, uint64_t i, int64_t *ret_pointer,
			      int32_t *ret_length, struct mfs_error *err)
{
	uint8_t bytes[8];
	int rc = mfs_idx_copy(p, p->pointers_at + 8 * i, bytes, sizeof(bytes), err);

	*ret_pointer = (int64_t)mfs_le64(bytes);
	return rc ? rc : mfs_idx_lengths(p, i, 1, ret_length, err);
}

/* Looks at both ends and a few places between. *ret_end is where the last sequence ends; *ret_good
 * is false if a sequence that was looked at does not follow the one before it. */
static int probe(const struct mfs_idx_member *p, bool *ret_good, uint64_t *ret_end,
		 struct mfs_error *err)
{
	const uint64_t last = p->sequences - 1;
	uint64_t end = 0;
	int64_t pointer;
	int32_t length;
	int rc = pointer_as_written(p, last, &pointer, &length, err);

	if (rc)
		return rc;
	*ret_good = sequence_end(p, pointer, length, ret_end);
	for (unsigned k = 0; k < PROBES && *ret_good; k++) {
		const uint64_t i = (uint64_t)((unsigned __int128)last * k / PROBES);

		rc = pointer_as_written(p, i, &pointer, &length, err);
		if (rc)
			return rc;
		*ret_good = sequence_end(p, pointer, length, &end) && end <= *ret_end &&
			    (i || !pointer);
		if (!*ret_good || i == last)
			continue;
		rc = pointer_as_written(p, i + 1, &pointer, &length, err);
		if (rc)
			return rc;
		*ret_good = pointer >= 0 && (uint64_t)pointer == end;
	}
	return 0;
}

struct pass {
	bool contiguous, bad_length;
	bool negative, outside; /* a pointer below 0; a sequence that ends past the .bin */
	bool congruent;		/* all pointers are right in their low 32 bits */
	uint64_t tokens, end;	/* sum of the lengths; where the last sequence ends */
};

static int walk(const struct mfs_idx_member *p, struct pass *ret, struct mfs_error *err)
{
	struct pass s = {.contiguous = true, .congruent = true};
	int64_t pointers[CHUNK];
	int32_t lengths[CHUNK];
	int rc;

	for (uint64_t at = 0, n; at < p->sequences; at += n) {
		n = mfs_min_u64(CHUNK, p->sequences - at);
		rc = mfs_idx_lengths(p, at, n, lengths, err);
		if (!rc)
			rc = mfs_idx_copy(p, p->pointers_at + 8 * at, pointers, 8 * n, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++) {
			uint64_t end = 0;
			const bool good = sequence_end(p, pointers[i], lengths[i], &end);

			s.contiguous &= good && (uint64_t)pointers[i] == s.end;
			s.outside |= good && end > p->bin_size;
			s.bad_length |= lengths[i] < 0;
			s.negative |= pointers[i] < 0;
			s.congruent &=
				(uint32_t)pointers[i] == (uint32_t)(s.tokens * p->token_size);
			s.tokens += lengths[i] < 0 ? 0 : (uint64_t)lengths[i];
			s.end = end;
		}
	}
	*ret = s;
	return 0;
}

static int sum_lengths(struct mfs_idx_member *p, struct mfs_error *err)
{
	int32_t lengths[CHUNK];
	uint64_t sum = 0;
	int rc = 0;

	p->sums = calloc(p->sequences / MFS_IDX_SUM_STRIDE + 1, sizeof(*p->sums));
	if (!p->sums)
		return mfs_fail_nomem(err);
	for (uint64_t at = 0, n; at < p->sequences && !rc; at += n) {
		n = mfs_min_u64(CHUNK, p->sequences - at);
		rc = mfs_idx_lengths(p, at, n, lengths, err);
		for (uint64_t i = 0; i < n && !rc; i++) {
			if ((at + i) % MFS_IDX_SUM_STRIDE == 0)
				p->sums[(at + i) / MFS_IDX_SUM_STRIDE] = sum;
			sum += (uint64_t)lengths[i];
		}
	}
	return rc;
}

int mfs_idx_judge_pointers(struct mfs_idx_member *p, struct mfs_error *err)
{
	struct pass s;
	uint64_t end = 0, bytes;
	bool good = true;
	int rc = p->sequences ? probe(p, &good, &end, err) : 0;

	if (rc)
		return rc;
	/* A .bin that is too short needs no pass, as overflowed pointers never end past their
	 * .bin. */
	if (good && end >= p->bin_size) {
		p->pointers = MFS_POINTERS_CONTIGUOUS;
		p->bin_short = end > p->bin_size;
		return 0;
	}
	rc = walk(p, &s, err);
	if (rc)
		return rc;
	p->bin_short = s.outside;
	p->pointers = s.contiguous ? MFS_POINTERS_CONTIGUOUS : MFS_POINTERS_AS_WRITTEN;
	if (s.contiguous || s.bad_length || mfs_mul_overflows(s.tokens, p->token_size, &bytes) ||
	    bytes != p->bin_size)
		return 0;
	/* If all pointers lie inside the .bin, but not as writers lay them, somebody wanted them
	 * so: the sequences are in another order. */
	if (!s.congruent && !s.negative && !s.outside)
		return 0;
	p->pointers = MFS_POINTERS_REPAIRED;
	p->bin_short = false;
	return sum_lengths(p, err);
}
