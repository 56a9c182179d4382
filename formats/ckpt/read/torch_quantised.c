/* Legacy `torch`: weights that a run with --fp8-param-gather keeps in 8 bits. Their scales are
 * tensors of the same file. */
#include <errno.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/torch_i.h"
#include "formats/torch/te_tensor.h"

/* The tensor's axes are those of the weight, also where its transpose is stored. */
static struct mfs_torch_tensor as_weight(const struct mfs_te_tensor *te)
{
	struct mfs_torch_tensor t = te->data;

	for (unsigned a = 0; a < 2 && te->transposed; a++) {
		t.shape[a] = te->data.shape[1 - a];
		t.stride[a] = te->data.stride[1 - a];
	}
	return t;
}

static int add_scales(struct mfs_torch_reader *r, const struct mfs_torch_source *a,
		      const struct mfs_te_tensor *te, uint32_t *ret)
{
	struct mfs_ckpt_scales s = {.dtype = te->scale.dtype,
				    .rows = te->data.shape[0],
				    .cols = te->data.shape[1],
				    .block_rows = te->block_rows,
				    .block_cols = te->block_cols,
				    .matrix = te->data.offset,
				    .first = te->scale.offset,
				    .stride = te->scale.shape[1]};
	int rc = mfs_torch_storage(r, a, &te->scale, &s.storage);

	return rc ? rc : mfs_ckpt_add_scales(r->ckpt, &s, ret, r->err);
}

int mfs_torch_read_value(struct mfs_torch_reader *r, const struct mfs_torch_source *a, mfs_value v,
			 struct mfs_torch_param *p)
{
	struct mfs_te_tensor te;
	int rc;

	if (!mfs_te_is_tensor(a->state, v)) {
		rc = mfs_torch_tensor(a->state, v, &p->t, r->err);
		p->dtype = rc ? MFS_DTYPE_NONE : p->t.dtype;
		return rc;
	}
	rc = mfs_te_tensor(a->state, v, &te, r->err);
	if (rc)
		return rc;
	p->t = as_weight(&te);
	p->dtype = te.dtype;
	return add_scales(r, a, &te, &p->scales);
}
