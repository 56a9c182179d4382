/* Where elements of a process's part of a tensor lie in the whole one. */
#include "formats/base/bytes.h"
#include "trainer/params/params.h"

struct runs {
	const struct mft_param *param;
	uint64_t first, end; /* elements that are wanted */
	int (*emit)(void *arg, const struct mft_param_run *run);
	void *arg;
};

/* Axes [ret, ndim) are whole in part, box and tensor: their elements are neighbours in both. */
static unsigned first_whole(const struct mfs_box_map *m, const struct mfs_target *t)
{
	unsigned a = t->ndim;

	while (a && m->src_axis[a - 1] == a - 1 && m->size[a - 1] == t->shape[a - 1] &&
	       m->size[a - 1] == m->src->shape[a - 1])
		a--;
	return a;
}

static int emit_run(const struct runs *r, uint64_t first, uint64_t whole_first, uint64_t count)
{
	const uint64_t from = first > r->first ? first : r->first;
	const uint64_t end = mfs_min_u64(first + count, r->end);

	if (from >= end)
		return 0;
	return r->emit(r->arg,
		       &(struct mft_param_run){from, whole_first + (from - first), end - from});
}

/* Walks over the axes before the last one that is cut. That axis makes a run, together with those
 * after it. */
static int walk(const struct runs *r, const struct mfs_box_map *m, unsigned axis, unsigned last,
		uint64_t first, uint64_t whole_first)
{
	const struct mfs_target *t = &r->param->part.base;
	uint64_t step = 1, whole_step = 1;
	int rc = 0;

	for (unsigned a = axis + 1; a < t->ndim; a++) {
		step *= t->shape[a];
		whole_step *= m->src->shape[a];
	}
	first += m->lo[axis] * step;
	whole_first += m->src_lo[axis] * whole_step;
	if (axis == last)
		return emit_run(r, first, whole_first, m->size[axis] * step);
	for (uint64_t i = 0; i < m->size[axis] && !rc; i++)
		rc = walk(r, m, axis + 1, last, first + i * step, whole_first + i * whole_step);
	return rc;
}

/* Parts of ranks are straight: no axis is exchanged, no element is left out. */
static int take_box(const struct mfs_box_map *m, void *arg)
{
	const struct runs *r = arg;
	const unsigned cut = m->src ? first_whole(m, &r->param->part.base) : 0;

	if (!m->src)
		return 0;
	return walk(r, m, 0, cut ? cut - 1 : 0, 0, 0);
}

int mft_param_runs(const struct mft_param *p, uint64_t first, uint64_t count,
		   int (*emit)(void *arg, const struct mft_param_run *run), void *arg)
{
	struct runs r = {p, first, first + count, emit, arg};

	return mfs_target_boxes(&p->part.base, take_box, &r);
}
