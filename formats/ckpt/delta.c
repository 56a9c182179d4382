#include "formats/ckpt/delta.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/numbers/low_rank.h"
#include "formats/base/search.h"
#include "formats/ckpt/ckpt_build.h"

static bool fits(const struct mfs_ckpt_delta *d)
{
	const struct mfs_global_tensor *of = d->of;

	return of->ndim == 2 && d->out->ndim == 2 && d->in->ndim == 2 &&
	       d->out->shape[1] == d->in->shape[0] && d->in->shape[0] &&
	       mfs_range_ok(d->lo[0], d->size[0], of->shape[0]) &&
	       mfs_range_ok(d->lo[1], d->size[1], of->shape[1]) &&
	       mfs_range_ok(d->first[0], d->size[0], d->out->shape[0]) &&
	       mfs_range_ok(d->first[1], d->size[1], d->in->shape[1]);
}

int mfs_ckpt_add_delta(struct mfs_ckpt *ckpt, const struct mfs_ckpt_delta *d, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE], of[96], out[96], in[96];

	if (!fits(d))
		return mfs_fail(
			err, -EINVAL,
			"tensor '%s' %s: the adapter's matrices are %s and %s, which do not fit",
			mfs_global_tensor_name(d->of, name, sizeof(name)),
			mfs_shape_text(d->of->shape, d->of->ndim, of, sizeof(of)),
			mfs_shape_text(d->out->shape, d->out->ndim, out, sizeof(out)),
			mfs_shape_text(d->in->shape, d->in->ndim, in, sizeof(in)));
	if (d->of->quantised || !mfs_low_rank_is_possible(d->of->dtype))
		return mfs_fail(err, -ENOTSUP,
				"tensor '%s' is of %s%s: an adapter is added to float32, bfloat16 "
				"and float16 alone",
				mfs_global_tensor_name(d->of, name, sizeof(name)),
				mfs_dtype_torch(mfs_global_tensor_stored(d->of)),
				d->of->quantised ? " with scales" : "");
	if (mfs_grow(&ckpt->deltas, ckpt->delta_count))
		return mfs_fail_nomem(err);
	ckpt->deltas[ckpt->delta_count++] = *d;
	return 0;
}

static int by_tensor(const void *a, const void *b)
{
	const struct mfs_ckpt_delta *x = a, *y = b;

	if (x->of != y->of)
		return x->of < y->of ? -1 : 1;
	return (x->lo[0] > y->lo[0]) - (x->lo[0] < y->lo[0]);
}

void mfs_ckpt_attach(struct mfs_ckpt *ckpt, struct mfs_ckpt *adapter)
{
	if (ckpt->delta_count)
		qsort(ckpt->deltas, ckpt->delta_count, sizeof(*ckpt->deltas), by_tensor);
	ckpt->adapter = adapter;
}

struct mfs_ckpt *mfs_ckpt_adapter(const struct mfs_ckpt *ckpt)
{
	return ckpt->adapter;
}

const struct mfs_ckpt_delta *mfs_ckpt_deltas(const struct mfs_ckpt *ckpt,
					     const struct mfs_global_tensor *t, uint32_t *ret_count)
{
	const struct mfs_ckpt_delta *all = ckpt->deltas;
	uint32_t first, end;

	*ret_count = 0;
	if (!ckpt->delta_count)
		return NULL;
	first = (uint32_t)mfs_count_while(i, ckpt->delta_count, all[i].of < t);
	end = (uint32_t)mfs_count_while(i, ckpt->delta_count, all[i].of <= t);
	*ret_count = end - first;
	return all + first;
}
