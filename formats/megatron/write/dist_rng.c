/*
 * Random states of a torch_dist view: one byte item for each rank of the source's layout, which the
 * view's arguments still name (training/checkpointing.py: get_rng_state, load_checkpoint).
 *
 * In runs with EP > 1, core 0.16 alone loads an item for each data-parallel rank. Other releases
 * skip these. So a view of such a run has both kinds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/ckpt/rng.h"
#include "formats/megatron/write/dist_archive.h"
#include "formats/megatron/write/dist_view_i.h"

#define MAX_RANKS (1u << 17)		/* of a run */
#define MAX_BYTES (UINT64_C(256) << 20) /* of different items, 10 kB each, which stay in memory */

/* Data-parallel size, context parallelism included, of a source with EP > 1. 0: EP is 1, or the
 * arguments do not say. */
static uint32_t count_dp(const struct mfs_megatron_dist *d)
{
	const struct mfs_ckpt_layout *l = mfs_ckpt_layout(d->options.ckpt);
	const uint64_t ranks = (uint64_t)l->tp * l->pp;

	if (l->ep < 2 || !l->etp || !d->args->moe_layers || d->args->world_size <= 0 ||
	    d->args->world_size > MAX_RANKS || (uint64_t)d->args->world_size % ranks)
		return 0;
	return (uint32_t)((uint64_t)d->args->world_size / ranks);
}

/* Ranks are numbered by tp, then dp; for experts by etp, then ep (megatron/core/parallel_state.py:
 * RankGenerator, order tp-cp-ep-dp-pp). */
static uint32_t expert_rank(const struct mfs_ckpt_layout *l, uint32_t tp, uint32_t dp)
{
	return (uint32_t)(((uint64_t)dp * l->tp + tp) / l->etp % l->ep);
}

/* An item is a list of one object: the list that the rank saved. */
static int make_item(struct mfs_megatron_dist *d, uint32_t tp, uint32_t pp, uint32_t ep,
		     struct mfs_buf *item, struct mfs_error *err)
{
	struct mfs_dist_archive a;
	struct mfs_rng rng;
	int rc = mfs_rng_open(d->options.ckpt, tp, pp, ep, &rng, err);

	if (rc)
		return rc;
	mfs_dist_archive_begin(&a);
	mfs_pickle_list_begin(&a.w);
	rc = mfs_dist_archive_copy(&a, &rng.archive, rng.value, err);
	mfs_pickle_list_end(&a.w);
	rc = mfs_dist_archive_end(&a, "archive", rc, item, err);
	mfs_rng_release(&rng);
	return rc;
}

/* The caller has set has_dp and dp. */
static int add(struct mfs_megatron_dist *d, struct mfs_dist_rng r, struct mfs_error *err)
{
	const uint32_t ep =
		r.has_dp ? expert_rank(mfs_ckpt_layout(d->options.ckpt), r.tp, r.dp) : 0;
	const uint32_t number = mfs_rng_find(d->options.ckpt, r.tp, r.pp, ep);
	int rc = 0;

	/* mfs_rng_there() was true, so there is one. */
	if (!d->rng_items[number].len) {
		rc = make_item(d, r.tp, r.pp, ep, &d->rng_items[number], err);
		d->rng_bytes += d->rng_items[number].len;
	}
	if (!rc && d->rng_bytes > MAX_BYTES)
		rc = mfs_fail(err, -ENOTSUP, "%s: the random states have more than %llu bytes",
			      mfs_ckpt_dir(d->options.ckpt), (unsigned long long)MAX_BYTES);
	r.item = &d->rng_items[number];
	d->rng[d->rng_count++] = r;
	return rc;
}

static int add_rank(struct mfs_megatron_dist *d, uint32_t tp, uint32_t pp, struct mfs_error *err)
{
	int rc = add(d, (struct mfs_dist_rng){.tp = tp, .pp = pp}, err);

	for (uint32_t dp = 0; dp < d->rng_dp && !rc; dp++)
		rc = add(d, (struct mfs_dist_rng){.tp = tp, .pp = pp, .dp = dp, .has_dp = true},
			 err);
	return rc;
}

int mfs_dist_rng(struct mfs_megatron_dist *d, struct mfs_error *err)
{
	const struct mfs_ckpt_layout *l = mfs_ckpt_layout(d->options.ckpt);
	int rc = 0;

	if (!mfs_rng_there(d->options.ckpt))
		return 0;
	d->rng_dp = count_dp(d);
	d->rng = calloc((size_t)l->tp * l->pp * (1u + d->rng_dp), sizeof(*d->rng));
	d->rng_item_count = mfs_rng_count(d->options.ckpt);
	d->rng_items = calloc(d->rng_item_count, sizeof(*d->rng_items));
	if (!d->rng || !d->rng_items)
		return mfs_fail_nomem(err);
	for (uint32_t pp = 0; pp < l->pp; pp++)
		for (uint32_t tp = 0; tp < l->tp && !rc; tp++)
			rc = add_rank(d, tp, pp, err);
	return rc;
}

void mfs_dist_rng_key(char *key, size_t size, const struct mfs_megatron_dist *d,
		      const struct mfs_dist_rng *r)
{
	const struct mfs_ckpt_layout *l = mfs_ckpt_layout(d->options.ckpt);

	if (r->has_dp)
		snprintf(key, size, "rng_state/shard_%u.%u.%u_%u.%u.%u", r->pp, r->tp, r->dp, l->pp,
			 l->tp, d->rng_dp);
	else
		snprintf(key, size, "rng_state/shard_%u.%u_%u.%u", r->pp, r->tp, l->pp, l->tp);
}
