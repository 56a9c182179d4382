#include "formats/ckpt/rng.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/ckpt/ckpt_i.h"

static const struct mfs_ckpt_rng *find(const struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp)
{
	for (uint32_t i = 0; i < ckpt->rng_count; i++)
		if (ckpt->rng[i].tp == tp && ckpt->rng[i].pp == pp)
			return &ckpt->rng[i];
	return NULL;
}

bool mfs_rng_there(const struct mfs_ckpt *ckpt)
{
	/* One a rank: readers note no rank twice. */
	return ckpt->rng_count && ckpt->rng_count == (uint64_t)ckpt->layout.tp * ckpt->layout.pp;
}

/* A legacy file holds the list in its state dict; an item is a list of one object, the list. */
static mfs_value find_list(const struct mfs_ckpt *ckpt, const struct mfs_pickle *doc)
{
	mfs_value root = mfs_pickle_root(doc);

	return ckpt->format == MFS_CKPT_TORCH ? mfs_value_get(doc, root, "rng_state")
					      : mfs_value_at(doc, root, 0);
}

int mfs_rng_open(struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, struct mfs_rng *ret,
		 struct mfs_error *err)
{
	const struct mfs_ckpt_rng *r = find(ckpt, tp, pp);
	struct mfs_rng rng = {.file = r ? r->file : 0, .base = r ? r->at : 0};
	struct mfs_source src;
	int rc;

	if (!r)
		return mfs_fail(err, -ENODATA, "%s: no random state of rank TP%u PP%u", ckpt->dir,
				tp, pp);
	src = mfs_source_file(ckpt->files, r->file);
	if (r->length)
		src = mfs_source_part(&src, r->at, r->length);
	rc = mfs_torch_file_open(&src, &rng.archive, err);
	if (rc)
		return rc;
	rng.value = find_list(ckpt, rng.archive.doc);
	if (mfs_value_type(rng.archive.doc, rng.value) != MFS_V_LIST) {
		mfs_torch_file_release(&rng.archive);
		return mfs_fail(err, -ENODATA, "%s/%s: no 'rng_state' in it", ckpt->dir,
				mfs_fileset_name(ckpt->files, r->file));
	}
	*ret = rng;
	return 0;
}

void mfs_rng_release(struct mfs_rng *r)
{
	mfs_torch_file_release(&r->archive);
}
