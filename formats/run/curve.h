/*
 * One number of a run over its iterations: the training loss. Of a long run points are left out
 * evenly, so that what it takes has a bound.
 */
#ifndef MFS_RUN_CURVE_H
#define MFS_RUN_CURVE_H

#include <stdint.h>

#define MFS_CURVE_POINTS 32768

struct mfs_curve_point {
	int64_t step;
	double value; /* may be no number, or infinite */
};

/* Zeros: empty. */
struct mfs_curve {
	struct mfs_curve_point *points;
	uint32_t count;
	uint64_t seen, stride; /* every stride-th of those that were added is kept; 0: each */
};

/* Adds a point, in any order of steps: mfs_curve_finish() sorts. Of a long curve it may be left out
 * (stride). -ENOMEM. */
int mfs_curve_add(struct mfs_curve *c, int64_t step, double value);
/* Sorts by steps. Of several with one step the one that was added last stays: a run that was
 * resumed has done these again. Call it before mfs_curve_at(). */
void mfs_curve_finish(struct mfs_curve *c);
/* The value at a step, or at the nearest one before it if points between were left out. NULL: none
 * is known. */
const struct mfs_curve_point *mfs_curve_at(const struct mfs_curve *c, int64_t step);
void mfs_curve_release(struct mfs_curve *c);

#endif
