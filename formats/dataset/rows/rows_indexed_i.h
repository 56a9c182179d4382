/* Inside of the rows of an indexed dataset: one member for each prefix. */
#ifndef MFS_DATASET_ROWS_ROWS_INDEXED_I_H
#define MFS_DATASET_ROWS_ROWS_INDEXED_I_H

#include <stdbool.h>

#include "formats/dataset/rows/rows_indexed.h"
#include "formats/indexed/indexed_members.h"

#define MFS_ROWS_STRIDE 64 /* rows between two sums of lengths */

struct mfs_rows_member {
	const struct mfs_idx_member *p;
	uint64_t first_token, tokens;
	/* Of MFS_POINTERS_AS_WRITTEN: tokens before every MFS_ROWS_STRIDE-th row of the member. */
	uint64_t *sums;
};

struct mfs_rows_of_members {
	struct mfs_rows rows;
	const struct mfs_indexed_dataset *d;
	struct mfs_rows_member *members;
	size_t member_count;
	char *name;
};

static inline bool mfs_rows_member_summed(const struct mfs_rows_member *member)
{
	return member->p->pointers == MFS_POINTERS_AS_WRITTEN;
}

/* Rows and tokens below are counted from the member's first. */

/* Tokens before rows [first, first+count), all of them below the member's end. -EIO: an array
 * contradicts itself there. */
int mfs_rows_member_starts(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			   uint64_t *ret, struct mfs_error *err);
/* Like mfs_rows_member_starts(), of an .idx that is still the one that was opened (-ESTALE). */
int mfs_rows_member_look(const struct mfs_rows_member *member, uint64_t first, uint64_t count,
			 uint64_t *ret, struct mfs_error *err);
/* Of summed ones: the row that holds token t, and how many of its tokens come before t. */
int mfs_rows_member_find(const struct mfs_rows_member *member, uint64_t t, uint64_t *ret_row,
			 uint64_t *ret_before, struct mfs_error *err);
int mfs_rows_member_check(const struct mfs_rows_member *member, struct mfs_error *err);
/* The sentence about a negative length; returns code. */
int mfs_rows_member_bad_length(const struct mfs_rows_member *member, uint64_t i, int32_t length,
			       int code, struct mfs_error *err);

/* Fills members, and of rows: tokens and bad. */
int mfs_rows_measure(struct mfs_rows_of_members *x, struct mfs_error *err);

#endif
