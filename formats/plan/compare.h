/*
 * Compares two tensors element by element through their plans, in windows of 1 MiB. Windows that
 * are equal are not copied. Only the numbers below are kept.
 *
 * Elements of one dtype differ if their bytes differ: -0.0 differs from 0.0, and a NaN equals only
 * a NaN of the same bits. Elements of two dtypes differ if their values differ as float64 (int64
 * beyond 2^53 is rounded). Any NaN then equals any other.
 */
#ifndef MFS_PLAN_COMPARE_H
#define MFS_PLAN_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/plan/plan.h"

struct mfs_comparison {
	uint64_t elements;	  /* that were compared */
	uint64_t differing;	  /* of these */
	uint64_t beyond_rounding; /* of two dtypes: still different when rounded to the narrower */
	uint64_t nans;		  /* differing elements with a NaN on either side */
	double largest;		  /* largest absolute difference of the other differing ones */
	uint64_t first;		  /* number of the first differing element, row-major from 0 */
	double a, b;		  /* its values */
};

/* The buffers of one thread: a few MiB. */
struct mfs_comparer;
int mfs_comparer_new(struct mfs_comparer **ret, struct mfs_error *err);
void mfs_comparer_free(struct mfs_comparer *c);

/*
 * Compares elements [first, first+count), which both tensors have, and adds the result to *sum
 * (zero-filled before the first call). Calls for parts of a tensor may come in any order. Both
 * tensors have the same number of columns; one may have more rows. Errors: those of
 * mfs_plan_gather().
 */
int mfs_compare(struct mfs_comparer *c, const struct mfs_plan *a, const struct mfs_plan *b,
		uint64_t first, uint64_t count, struct mfs_comparison *sum, struct mfs_error *err);

/* Adds the result for another part of the same tensor. */
void mfs_comparison_add(struct mfs_comparison *to, const struct mfs_comparison *from);

/* Whether elements of a type are compared as numbers. False for complex types, and for bytes
 * without a type (MFS_DTYPE_NONE): these are compared as bytes, and a, b and largest stay 0. */
bool mfs_compare_has_values(enum mfs_dtype t);

/* True if the wide type has every value of the narrow one, so that rounding makes sense. */
bool mfs_compare_rounds(enum mfs_dtype wide, enum mfs_dtype narrow);

#endif
