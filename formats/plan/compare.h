/*
 * Two tensors element by element, through their plans: windows of 1 MiB of either side, compared in
 * place where they are equal. Nothing is kept of a tensor but the numbers below.
 *
 * Of one dtype, elements differ if their bytes do: -0.0 is not 0.0, and a NaN equals the same NaN
 * alone. Of two, if their values do, as float64 (int64 beyond 2^53 is rounded); any NaN equals any
 * other.
 */
#ifndef MFS_PLAN_COMPARE_H
#define MFS_PLAN_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/plan/plan.h"

struct mfs_comparison {
	uint64_t elements;  /* compared */
	uint64_t differing; /* of these */
	/* of two dtypes: also if the wider one's is rounded to the narrower */
	uint64_t beyond_rounding;
	uint64_t nans;	/* differing ones of which one side is no number, or both are */
	double largest; /* absolute difference of the other differing ones */
	uint64_t first; /* element that differs first, counted row-major from 0 */
	double a, b;	/* its values */
};

/* One thread's buffers: a few MiB. */
struct mfs_comparer;
int mfs_comparer_new(struct mfs_comparer **ret, struct mfs_error *err);
void mfs_comparer_free(struct mfs_comparer *c);

/*
 * Compares elements [first, first+count), which both have, and adds to *sum (zero-filled at first).
 * Calls for parts of a tensor may come in any order. Columns agree; rows may be more on one side.
 * Errors are those of mfs_plan_gather().
 */
int mfs_compare(struct mfs_comparer *c, const struct mfs_plan *a, const struct mfs_plan *b,
		uint64_t first, uint64_t count, struct mfs_comparison *sum, struct mfs_error *err);

/* Adds what was found in another part of the same tensor. */
void mfs_comparison_add(struct mfs_comparison *to, const struct mfs_comparison *from);

/* False: elements of this type are no real numbers (complex); they are compared as bytes, and a, b
 * and largest stay 0. */
bool mfs_compare_has_values(enum mfs_dtype t);

/* True if each value of the narrow type is one of the wide type, so that rounding makes sense. */
bool mfs_compare_rounds(enum mfs_dtype wide, enum mfs_dtype narrow);

#endif
