/* Boxes as rows: which stretches of a tensor they are made of, and where these go. */
#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/base/tensor.h"
#include "formats/load/box_load_i.h"

/* An axis of a box; what is common to both sides of a copy. */
struct axis {
	uint64_t count;
	uint64_t step;	 /* bytes of the tensor from one to the next */
	int64_t to_step; /* and of the destination */
};

static uint64_t axis_begin(const struct mfs_load_box *box, unsigned a)
{
	return box->begin ? box->begin[a] : 0;
}

static uint64_t axis_count(const struct mfs_load_box *box, unsigned a)
{
	return (box->end ? box->end[a] : box->shape[a]) - axis_begin(box, a);
}

uint64_t mfs_load_box_bytes(const struct mfs_load_box *box)
{
	uint64_t bytes = box->item;

	for (unsigned a = 0; a < box->ndim; a++)
		bytes *= axis_count(box, a);
	return bytes;
}

static int check_axis(const struct mfs_load_box *box, unsigned a, struct mfs_error *err)
{
	const uint64_t begin = axis_begin(box, a), end = box->end ? box->end[a] : box->shape[a];

	if (begin <= end && end <= box->shape[a])
		return 0;
	return mfs_fail(err, -EINVAL,
			"tensor '%s': axis %u of the box is [%llu, %llu), and of the tensor %llu",
			box->name, a, (unsigned long long)begin, (unsigned long long)end,
			(unsigned long long)box->shape[a]);
}

/* The bytes from `to` to the end of the last element. */
static int check_room(const struct mfs_load_box *box, struct mfs_error *err)
{
	uint64_t need = box->item, run = box->item, far;

	for (unsigned a = box->ndim; a--;) {
		const uint64_t count = axis_count(box, a);
		const uint64_t stride = box->strides ? (uint64_t)box->strides[a] : run;

		if (box->strides && box->strides[a] < 0)
			return mfs_fail(err, -EINVAL,
					"tensor '%s': the stride of axis %u is %lld, which is "
					"negative",
					box->name, a, (long long)box->strides[a]);
		if (mfs_mul_overflows(stride, count - 1, &far) ||
		    mfs_add_overflows(need, far, &need))
			need = UINT64_MAX;
		run *= count;
	}
	if (need <= box->room)
		return 0;
	return mfs_fail(err, -EINVAL,
			"tensor '%s': the box needs %llu bytes, and its destination has %llu",
			box->name, (unsigned long long)need, (unsigned long long)box->room);
}

int mfs_load_box_check(const struct mfs_load_box *box, struct mfs_error *err)
{
	int rc = 0;

	for (unsigned a = 0; a < box->ndim && !rc; a++)
		rc = check_axis(box, a, err);
	if (rc || !mfs_load_box_bytes(box))
		return rc;
	if (!box->to)
		return mfs_fail(err, -EINVAL, "tensor '%s': its destination is NULL", box->name);
	return check_room(box, err);
}

/* Axes of one element each go; an axis that follows the one before without a gap on both sides
 * joins it. Returns how many remain; the last one is of elements that are neighbours in the
 * tensor. */
static unsigned fold(const struct mfs_load_box *box, struct axis *axes)
{
	struct axis all[MFS_MAX_DIMS];
	uint64_t step = box->item, run = box->item;
	unsigned count = 0;

	for (unsigned a = box->ndim; a--;) {
		all[a] = (struct axis){.count = axis_count(box, a),
				       .step = step,
				       .to_step = box->strides ? box->strides[a] : (int64_t)run};
		step *= box->shape[a];
		run *= all[a].count;
	}
	for (unsigned a = 0; a < box->ndim; a++) {
		struct axis *last = count ? &axes[count - 1] : NULL;

		if (all[a].count == 1)
			continue;
		if (last && last->step == all[a].count * all[a].step &&
		    last->to_step == (int64_t)all[a].count * all[a].to_step)
			*last = (struct axis){last->count * all[a].count, all[a].step,
					      all[a].to_step};
		else
			axes[count++] = all[a];
	}
	return count;
}

/* The next index of the first count axes, the last of them fastest. False: that was the last. */
static bool next_index(const struct axis *axes, unsigned count, uint64_t *index)
{
	while (count--) {
		if (++index[count] < axes[count].count)
			return true;
		index[count] = 0;
	}
	return false;
}

static uint64_t first_byte(const struct mfs_load_box *box)
{
	uint64_t step = box->item, at = box->at;

	for (unsigned a = box->ndim; a--;) {
		at += axis_begin(box, a) * step;
		step *= box->shape[a];
	}
	return at;
}

int mfs_load_box_rows(const struct mfs_load_box *box, mfs_load_visit *visit, void *arg)
{
	struct axis axes[MFS_MAX_DIMS + 2];
	uint64_t index[MFS_MAX_DIMS + 2] = {0};
	unsigned count;
	int rc = 0;

	if (!mfs_load_box_bytes(box))
		return 0;
	count = fold(box, axes);
	/* Elements of a row that are no neighbours in the tensor are rows of one element each. */
	if (!count || axes[count - 1].step != box->item)
		axes[count++] = (struct axis){1, box->item, box->item};
	do {
		struct mfs_load_rows r = {
			.at = first_byte(box),
			.rows = 1,
			.width = axes[count - 1].count * box->item,
			.to = box->to,
			.to_item = axes[count - 1].to_step,
		};

		for (unsigned a = 0; a + 2 < count; a++) {
			r.at += index[a] * axes[a].step;
			r.to += (int64_t)index[a] * axes[a].to_step;
		}
		r.step = r.width;
		r.to_row = (int64_t)r.width;
		if (count > 1) {
			r.rows = axes[count - 2].count;
			r.step = axes[count - 2].step;
			r.to_row = axes[count - 2].to_step;
		}
		rc = visit(arg, &r);
	} while (!rc && count > 2 && next_index(axes, count - 2, index));
	return rc;
}
