/* Private to formats/plan/plan*.c: boxes as rectangles of the target matrix, while a plan is
 * made. */
#ifndef MFS_PLAN_PLAN_I_H
#define MFS_PLAN_PLAN_I_H

#include "formats/plan/plan.h"

#define MFS_PLAN_AXIS_NONE MFS_CKPT_DIMS

/* Two elements share a byte. */
static inline bool mfs_plan_is_fp4(const struct mfs_plan_scales *s)
{
	return s->of.dtype == MFS_U8;
}

/* The byte of its file where an element of a block lies. src: as if each element had a byte. */
static inline uint64_t mfs_plan_place(const struct mfs_plan *plan, const struct mfs_plan_block *b,
				      uint64_t src)
{
	const struct mfs_plan_scales *s;

	if (b->scales == MFS_SCALES_NONE)
		return src;
	s = &plan->scales[b->scales];
	return mfs_plan_is_fp4(s) ? s->matrix + (src - s->matrix) / 2 : src;
}

/* The axis of a target whose indices are the rows of a rectangle, or its columns. */
static inline unsigned mfs_plan_row_axis(unsigned ndim)
{
	return ndim >= 2 ? ndim - 2 : MFS_PLAN_AXIS_NONE;
}

static inline unsigned mfs_plan_col_axis(unsigned ndim)
{
	return ndim ? ndim - 1 : MFS_PLAN_AXIS_NONE;
}

/* Indices [*first, *last) of a target axis whose source coordinate lies in [lo, hi). False: there
 * are none. */
bool mfs_plan_clip(uint64_t src_lo, uint64_t step, uint64_t size, uint64_t lo, uint64_t hi,
		   uint64_t *first, uint64_t *last);

/* Axes in front of rows and columns make several rectangles of a box. Goes to the next one, the
 * last of these axes fastest. False: that was the last. */
bool mfs_plan_next(unsigned ndim, const uint64_t *size, uint64_t *index);

/* The first row of such a rectangle in the target matrix. */
uint64_t mfs_plan_row(const struct mfs_target *t, const uint64_t *lo, const uint64_t *index);

/* Chooses how the bands of a whole plan are read (plan_read.c). */
void mfs_plan_choose(struct mfs_plan *plan);

/* Adds the deltas of the box's source to a plan whose target is t. */
int mfs_plan_add_deltas(struct mfs_plan *plan, const struct mfs_target *t,
			const struct mfs_box_map *m, struct mfs_error *err);
void mfs_plan_release_deltas(struct mfs_plan *plan);

#endif
