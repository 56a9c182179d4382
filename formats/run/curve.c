#include "formats/run/curve.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "formats/base/grow.h"

/* Every other point goes. */
static void thin_out(struct mfs_curve *c)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->count; i += 2)
		c->points[kept++] = c->points[i];
	c->count = kept;
	c->stride = (c->stride ? c->stride : 1) * 2;
}

int mfs_curve_add(struct mfs_curve *c, int64_t step, double value)
{
	if (c->stride && c->seen % c->stride) {
		c->seen++;
		return 0;
	}
	if (c->count == MFS_CURVE_POINTS)
		thin_out(c);
	if (mfs_grow(&c->points, c->count))
		return -ENOMEM;
	c->seen++;
	c->points[c->count++] = (struct mfs_curve_point){step, value};
	return 0;
}

struct numbered {
	struct mfs_curve_point point;
	uint32_t number;
};

static int order(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	if (x->point.step != y->point.step)
		return x->point.step < y->point.step ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static bool is_sorted(const struct mfs_curve *c)
{
	for (uint32_t i = 1; i < c->count; i++)
		if (c->points[i - 1].step >= c->points[i].step)
			return false;
	return true;
}

void mfs_curve_finish(struct mfs_curve *c)
{
	struct numbered *list = is_sorted(c) ? NULL : calloc(c->count, sizeof(*list));
	uint32_t kept = 0;

	if (!list)
		return; /* sorted; or without memory for it, and then mfs_curve_at() finds less */
	for (uint32_t i = 0; i < c->count; i++)
		list[i] = (struct numbered){c->points[i], i};
	qsort(list, c->count, sizeof(*list), order);
	for (uint32_t i = 0; i < c->count; i++) {
		if (i + 1 < c->count && list[i + 1].point.step == list[i].point.step)
			continue;
		c->points[kept++] = list[i].point;
	}
	c->count = kept;
	free(list);
}

const struct mfs_curve_point *mfs_curve_at(const struct mfs_curve *c, int64_t step)
{
	uint32_t low = 0, high = c->count;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (c->points[middle].step <= step)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || (c->points[low - 1].step != step && (!c->stride || low == c->count)))
		return NULL;
	return &c->points[low - 1];
}

void mfs_curve_release(struct mfs_curve *c)
{
	free(c->points);
	*c = (struct mfs_curve){0};
}
