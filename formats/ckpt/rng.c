#include "formats/ckpt/rng.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/search.h"
#include "formats/ckpt/ckpt_build.h"

/* By pp, tp, ep. */
static int compare(const struct mfs_ckpt_rng *a, const struct mfs_ckpt_rng *b)
{
	if (a->pp != b->pp)
		return a->pp < b->pp ? -1 : 1;
	if (a->tp != b->tp)
		return a->tp < b->tp ? -1 : 1;
	return (a->ep > b->ep) - (a->ep < b->ep);
}

/* Two entries of one rank (two spellings of a key) keep their order, and the first counts. */
static int by_rank(const void *a, const void *b)
{
	const struct mfs_ckpt_rng *x = a, *y = b;
	const int order = compare(x, y);

	if (order)
		return order;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

void mfs_ckpt_sort_rng(struct mfs_ckpt *ckpt)
{
	uint32_t kept = 0;

	if (ckpt->rng_count)
		qsort(ckpt->rng, ckpt->rng_count, sizeof(*ckpt->rng), by_rank);
	for (uint32_t i = 0; i < ckpt->rng_count; i++)
		if (!kept || compare(&ckpt->rng[kept - 1], &ckpt->rng[i]))
			ckpt->rng[kept++] = ckpt->rng[i];
	ckpt->rng_count = kept;
}

static bool is_of(const struct mfs_ckpt_rng *r, uint32_t tp, uint32_t pp)
{
	return r->tp == tp && r->pp == pp;
}

/* The first entry that is not less than wanted. */
static uint32_t find_first(const struct mfs_ckpt *ckpt, const struct mfs_ckpt_rng *wanted)
{
	return (uint32_t)mfs_count_while(i, ckpt->rng_count, compare(&ckpt->rng[i], wanted) < 0);
}

uint32_t mfs_rng_count(const struct mfs_ckpt *ckpt)
{
	return ckpt->rng_count;
}

uint32_t mfs_rng_find(const struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, uint32_t ep)
{
	struct mfs_ckpt_rng wanted = {.tp = tp, .pp = pp, .ep = ep};
	uint32_t i = find_first(ckpt, &wanted);

	if (i < ckpt->rng_count && !compare(&ckpt->rng[i], &wanted))
		return i;
	wanted.ep = 0;
	i = find_first(ckpt, &wanted);
	return i < ckpt->rng_count && is_of(&ckpt->rng[i], tp, pp) ? i : MFS_RNG_NONE;
}

bool mfs_rng_there(const struct mfs_ckpt *ckpt)
{
	const struct mfs_ckpt_layout *l = &ckpt->layout;
	uint64_t count = 0;

	for (uint32_t i = 0; i < ckpt->rng_count; i++) {
		const struct mfs_ckpt_rng *r = &ckpt->rng[i];

		if (r->tp < l->tp && r->pp < l->pp && (!i || !is_of(r - 1, r->tp, r->pp)))
			count++;
	}
	return count && count == (uint64_t)l->tp * l->pp;
}

int mfs_rng_open(struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, uint32_t ep, struct mfs_rng *ret,
		 struct mfs_error *err)
{
	const uint32_t number = mfs_rng_find(ckpt, tp, pp, ep);
	struct mfs_rng rng = {0};
	const struct mfs_ckpt_rng *r;
	struct mfs_source src;
	int rc;

	if (number == MFS_RNG_NONE)
		return mfs_fail(err, -ENODATA, "%s: no random state of rank TP%u PP%u", ckpt->dir,
				tp, pp);
	r = &ckpt->rng[number];
	rng.file = r->file;
	rng.base = r->at;
	src = mfs_source_file(ckpt->files, r->file);
	if (r->length)
		src = mfs_source_range(&src, r->at, r->length);
	rc = mfs_torch_file_open(&src, &rng.archive, err);
	if (rc)
		return rc;
	rng.value = ckpt->format->rng_list(rng.archive.doc);
	if (mfs_value_type(rng.archive.doc, rng.value) != MFS_V_LIST) {
		mfs_torch_file_release(&rng.archive);
		return mfs_fail(err, -ENODATA, "%s/%s: 'rng_state' is missing", ckpt->dir,
				mfs_fileset_name(ckpt->files, r->file));
	}
	*ret = rng;
	return 0;
}

void mfs_rng_release(struct mfs_rng *r)
{
	mfs_torch_file_release(&r->archive);
}
