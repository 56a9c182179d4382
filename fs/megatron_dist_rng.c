/* Random states of a torch_dist view: one byte item a rank of the source's layout, which the view's
 * arguments still name (training/checkpointing.py: get_rng_state, load_checkpoint). */
#include <stdlib.h>

#include "formats/ckpt/rng.h"
#include "fs/megatron_dist_archive.h"
#include "fs/megatron_dist_i.h"

/* A list of one object, which is the list that the rank saved. */
static int make_item(struct mfs_megatron_dist *d, struct mfs_dist_rng *r, struct mfs_error *err)
{
	struct mfs_dist_archive a;
	struct mfs_rng rng;
	int rc = mfs_rng_open(d->view.ckpt, r->tp, r->pp, &rng, err);

	if (rc)
		return rc;
	mfs_dist_archive_begin(&a);
	mfs_pickle_list_begin(&a.w);
	rc = mfs_dist_archive_copy(&a, &rng.archive, rng.value, err);
	mfs_pickle_list_end(&a.w);
	rc = mfs_dist_archive_end(&a, "archive", rc, &r->item, err);
	mfs_rng_release(&rng);
	return rc;
}

int mfs_dist_rng(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	const struct mfs_layout *l = mfs_ckpt_layout(d->view.ckpt);
	int rc = 0;

	if (!mfs_rng_there(d->view.ckpt))
		return 0;
	d->rng = calloc((size_t)l->tp * l->pp, sizeof(*d->rng));
	if (!d->rng)
		return mfs_fail_nomem(err);
	for (uint32_t pp = 0; pp < l->pp && !rc; pp++) {
		for (uint32_t tp = 0; tp < l->tp && !rc; tp++) {
			struct mfs_dist_rng *r = &d->rng[d->rng_count++];

			r->tp = tp;
			r->pp = pp;
			rc = make_item(d, r, err);
		}
	}
	return rc;
}
