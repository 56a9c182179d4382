/*
 * What an adapter adds to a target. Where a tensor has deltas (ckpt/delta.h), its elements are
 * gathered a window at a time in the sources' type, the products are added, and then they go on as
 * others do: to be cast, or to be quantised.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/cast.h"
#include "formats/base/grow.h"
#include "formats/numbers/low_rank.h"
#include "formats/ckpt/delta.h"
#include "formats/plan/plan_i.h"
#include "formats/plan/plan_read_i.h"

#define WINDOW	    (32u << 10) /* bytes of elements that are gathered before they are added to */
#define MOST_FACTOR (1u << 31)	/* elements of a thin matrix that are kept in memory */

/* ---- factors ---- */

/* The whole tensor as float32. */
static int read_factor(struct mfs_ckpt *adapter, const struct mfs_global_tensor *t, float *to,
		       struct mfs_error *err)
{
	struct mfs_whole_target whole;
	struct mfs_cast_target cast;
	struct mfs_vfile *file = NULL;
	size_t len;
	int rc;

	mfs_whole_target_init(&whole, adapter, t);
	rc = mfs_cast_target_init(&cast, &whole.base, MFS_F32, err);
	if (!rc)
		rc = mfs_vfile_new(&file, err);
	if (!rc)
		rc = mfs_vfile_add_tensor(file, &cast.base, err);
	if (!rc)
		rc = mfs_vfile_pread(file, 0, to, cast.base.bytes, &len, err);
	mfs_vfile_free(file);
	return rc;
}

static void transpose(float *to, const float *from, uint64_t rows, uint64_t cols)
{
	for (uint64_t i = 0; i < rows; i++)
		for (uint64_t k = 0; k < cols; k++)
			to[k * rows + i] = from[i * cols + k];
}

/* out is stored as [count, rank]. */
static int load_factor(struct mfs_ckpt *adapter, const struct mfs_global_tensor *t, bool out,
		       struct mfs_plan_factor *ret, struct mfs_error *err)
{
	const uint64_t elements = t->shape[0] * t->shape[1]; /* they lie in a file */
	float *values = elements < MOST_FACTOR ? calloc(elements + 1, sizeof(*values)) : NULL;
	float *turned = values && out ? calloc(elements + 1, sizeof(*turned)) : NULL;
	int rc = values && (turned || !out) ? read_factor(adapter, t, values, err)
					    : mfs_fail_nomem(err);

	if (!rc && out) {
		transpose(turned, values, t->shape[0], t->shape[1]);
		*ret = (struct mfs_plan_factor){t, turned, t->shape[0], t->shape[1]};
		turned = NULL;
	} else if (!rc) {
		*ret = (struct mfs_plan_factor){t, values, t->shape[1], t->shape[0]};
		values = NULL;
	}
	free(values);
	free(turned);
	return rc;
}

static int need_factor(struct mfs_plan *plan, struct mfs_ckpt *adapter,
		       const struct mfs_global_tensor *t, bool out, uint32_t *ret,
		       struct mfs_error *err)
{
	struct mfs_plan_factor f;
	int rc;

	for (uint32_t i = 0; i < plan->factor_count; i++)
		if (plan->factors[i].of == t) {
			*ret = i;
			return 0;
		}
	rc = load_factor(adapter, t, out, &f, err);
	if (!rc && mfs_grow(&plan->factors, plan->factor_count)) {
		free(f.values);
		rc = mfs_fail_nomem(err);
	}
	if (rc)
		return rc;
	plan->factors[plan->factor_count] = f;
	*ret = plan->factor_count++;
	return 0;
}

/* ---- rectangles ---- */

/* A box of the target that a delta covers, and how its axes go along the two factors. */
struct covered {
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS];
	uint64_t at[2], step[2][MFS_CKPT_DIMS];
};

static bool cover(const struct mfs_target *t, const struct mfs_box_map *m,
		  const struct mfs_ckpt_delta *d, struct covered *c)
{
	uint64_t at[MFS_CKPT_DIMS];

	memset(c, 0, sizeof(*c));
	memcpy(at, m->src_lo, sizeof(at));
	for (unsigned a = 0; a < t->ndim; a++) {
		const unsigned s = m->src_axis[a];
		uint64_t first = 0, last = m->size[a];

		if (s == MFS_AXIS_NONE) {
			c->lo[a] = m->lo[a];
			c->size[a] = m->size[a];
			continue;
		}
		if (s < 2 && !mfs_plan_clip(m->src_lo[s], m->step[a], m->size[a], d->lo[s],
					    d->lo[s] + d->size[s], &first, &last))
			return false;
		c->lo[a] = m->lo[a] + first;
		c->size[a] = last - first;
		at[s] = m->src_lo[s] + first * m->step[a];
		if (s < 2)
			c->step[s][a] = m->step[a];
	}
	for (unsigned s = 0; s < 2; s++) {
		if (at[s] < d->lo[s] || at[s] - d->lo[s] >= d->size[s])
			return false;
		c->at[s] = d->first[s] + at[s] - d->lo[s];
	}
	return true;
}

static int add_covered(struct mfs_plan *plan, const struct mfs_target *t, const struct covered *c,
		       const struct mfs_plan_delta *like, struct mfs_error *err)
{
	const unsigned row_axis = mfs_plan_row_axis(t->ndim), col_axis = mfs_plan_col_axis(t->ndim);
	uint64_t index[MFS_CKPT_DIMS] = {0};

	do {
		struct mfs_plan_delta d = *like;

		d.row = mfs_plan_row(t, c->lo, index);
		d.rows = row_axis < t->ndim ? c->size[row_axis] : 1;
		d.col = col_axis < t->ndim ? c->lo[col_axis] : 0;
		d.cols = col_axis < t->ndim ? c->size[col_axis] : 1;
		for (unsigned s = 0; s < 2; s++) {
			d.at[s] = c->at[s];
			for (unsigned a = 0; a + 2 < t->ndim; a++)
				d.at[s] += index[a] * c->step[s][a];
			d.row_step[s] = row_axis < t->ndim ? c->step[s][row_axis] : 0;
			d.col_step[s] = col_axis < t->ndim ? c->step[s][col_axis] : 0;
		}
		if (mfs_grow(&plan->deltas, plan->delta_count))
			return mfs_fail_nomem(err);
		plan->deltas[plan->delta_count++] = d;
	} while (mfs_plan_next(t->ndim, c->size, index));
	return 0;
}

int mfs_plan_add_deltas(struct mfs_plan *plan, const struct mfs_target *t,
			const struct mfs_box_map *m, struct mfs_error *err)
{
	struct mfs_ckpt *adapter = mfs_ckpt_adapter(t->ckpt);
	const struct mfs_ckpt_delta *deltas;
	uint32_t count = 0;
	int rc = 0;

	if (!adapter)
		return 0;
	deltas = mfs_ckpt_deltas(t->ckpt, m->src, &count);
	if (count && m->lanes > 1)
		return mfs_fail(err, -ENOTSUP,
				"'%s' and '%s' are of an adapter of a matrix that alternates with "
				"another one, which is not merged",
				deltas->in->name, deltas->out->name);
	for (uint32_t i = 0; i < count && !rc; i++) {
		struct mfs_plan_delta d = {.scale = deltas[i].scale};
		struct covered c;

		if (!cover(t, m, &deltas[i], &c))
			continue;
		rc = need_factor(plan, adapter, deltas[i].out, true, &d.factor[0], err);
		if (!rc)
			rc = need_factor(plan, adapter, deltas[i].in, false, &d.factor[1], err);
		if (!rc)
			rc = add_covered(plan, t, &c, &d, err);
	}
	return rc;
}

void mfs_plan_release_deltas(struct mfs_plan *plan)
{
	for (uint32_t i = 0; i < plan->factor_count; i++)
		free(plan->factors[i].values);
	free(plan->factors);
	free(plan->deltas);
}

/* ---- reading ---- */

/* Adds to columns [col, col + count) of one row of a delta, both counted from its first. */
static void add_row(const struct mfs_plan *plan, const struct mfs_plan_delta *d, uint64_t row,
		    uint64_t col, uint64_t count, uint8_t *w)
{
	/* One factor stays where it is along a row of the target; the other one goes along. */
	const unsigned still = d->col_step[0] ? 1 : 0, goes = !still;
	const struct mfs_plan_factor *a = &plan->factors[d->factor[still]],
				     *b = &plan->factors[d->factor[goes]];
	const uint64_t step = d->col_step[goes], together = step == 1 ? count : 1;
	struct mfs_low_rank l = {
		.a_stride = a->count, .b_stride = b->count, .rank = a->rank, .scale = d->scale};

	l.a = a->values + d->at[still] + row * d->row_step[still];
	l.b = b->values + d->at[goes] + row * d->row_step[goes] + col * step;
	for (; count; count -= together) {
		mfs_low_rank_add(plan->dtype, w, &l, together);
		l.b += step;
		w += together * plan->element;
	}
}

/* Adds to columns [col, col + count) of one row of the target, which lie at w. */
static void add_to_row(const struct mfs_plan *plan, uint64_t row, uint64_t col, uint64_t count,
		       uint8_t *w)
{
	for (uint32_t i = 0; i < plan->delta_count; i++) {
		const struct mfs_plan_delta *d = &plan->deltas[i];
		const uint64_t from = mfs_max_u64(col, d->col);
		const uint64_t to = mfs_min_u64(col + count, d->col + d->cols);

		if (row >= d->row && row - d->row < d->rows && from < to)
			add_row(plan, d, row - d->row, from - d->col, to - from,
				w + (from - col) * plan->element);
	}
}

/* first: number of the element at w. */
static void add_to(const struct mfs_plan *plan, uint64_t first, uint64_t count, uint8_t *w)
{
	while (count) {
		const uint64_t row = first / plan->cols, col = first % plan->cols;
		const uint64_t n = mfs_min_u64(count, plan->cols - col);

		add_to_row(plan, row, col, n, w);
		first += n;
		count -= n;
		w += n * plan->element;
	}
}

int mfs_plan_merge(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t off,
		   uint64_t len)
{
	const unsigned element = r->plan->element;
	const uint64_t start = band->row * r->plan->cols;
	uint8_t window[WINDOW];
	int rc = 0;

	for (uint64_t n; len && !rc; len -= n) {
		n = mfs_min_u64(len, WINDOW);
		rc = mfs_plan_copy(r, band, off / element, n / element, window);
		if (rc)
			break;
		add_to(r->plan, start + off / element, n / element, window);
		r->taker->put(r, window, n);
		off += n;
	}
	return rc;
}
