/* The optimizer of a checkpoint (ckpt_dir.h), or a model of verl's with its config. */
#include "tests/fuzz/ckpt_dir.h"

#include "formats/model/hf_told.h"
#include "formats/optim/buffers/rank_optim.h"
#include "formats/optim/read/optim_open.h"

/* Chunks lie inside of their tensors; what else must be so the reader has checked. */
static void check_tensors(const struct mfs_ckpt *ckpt)
{
	for (uint32_t i = mfs_ckpt_count(ckpt); i < mfs_ckpt_count_all(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);
		const struct mfs_chunk *c = mfs_ckpt_chunks(ckpt, t);

		fuzz_require(t->state != MFS_STATE_MODEL && t->state < MFS_STATE_COUNT);
		for (uint32_t k = 0; k < t->chunk_count; k++)
			for (unsigned d = 0; d < t->ndim; d++)
				fuzz_require(mfs_range_ok(c[k].lo[d], c[k].size[d], t->shape[d]));
	}
}

/* Parameters lie inside of their buffers, whatever the arguments say. */
static void check_side(struct mfs_ckpt *ckpt)
{
	struct mfs_rank_list *list;
	struct mfs_layout layout;
	struct mfs_error err = {0};
	struct mfs_optim *o;

	if (!mfs_layout_of(ckpt, &layout) || mfs_layout_check(&layout, mfs_ckpt_args(ckpt), &err) ||
	    mfs_rank_list_new(ckpt, &layout, &(struct mfs_rank){0}, mfs_layer_spec_of(ckpt), 0,
			      &list, &err))
		return;
	if (!mfs_optim_new(list, NULL, 1, 1, &o, &err)) {
		for (uint32_t i = 0; i < o->count; i++) {
			const struct mfs_optim_param *p = &o->params[i];

			fuzz_require(p->buffer < o->buffer_count);
			fuzz_require(mfs_range_ok(p->in_coalesced, p->elements,
						  o->buffers[p->buffer].elements));
			fuzz_require(p->group < o->group_count[p->optimizer]);
		}
		mfs_optim_free(o);
	}
	mfs_rank_list_free(list);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const struct mfs_ckpt_told told = mfs_hf_told(NULL, NULL);
	struct mfs_ckpt *ckpt;
	int rc;

	fuzz_make_dir();
	fuzz_write_files(bytes, len);
	rc = mfs_optim_open_told(fuzz_dir, &told, &ckpt, err);
	if (!rc) {
		check_tensors(ckpt);
		check_side(ckpt);
		mfs_ckpt_free(ckpt);
	}
	fuzz_remove_dir();
	return rc;
}

FUZZ_TARGET
