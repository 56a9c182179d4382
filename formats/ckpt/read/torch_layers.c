/*
 * Legacy `torch`: which layers of the model each pipeline chunk holds. Layers are numbered from 0
 * in every file; their global numbers are a running count over pipeline chunks in the order vp * P
 * + pp.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/ckpt/read/torch_i.h"

/* arg: the number of layers so far. */
static int note_layer(void *arg, const char *key, mfs_value v)
{
	uint32_t *count = arg;
	struct mfs_name name;

	(void)v;
	mfs_name_parse(key, &name);
	if (name.layer >= 0 && !strncmp(name.canonical, "decoder.", 8) &&
	    (uint32_t)name.layer >= *count)
		*count = (uint32_t)name.layer + 1;
	return 0;
}

/* Layers are counted in one rank of each stage. */
static int open_stages(struct mfs_torch_reader *r)
{
	int rc = 0;

	for (uint32_t pp = 0; pp < r->pp && !rc; pp++) {
		struct mfs_torch_rank *rank = r->ranks + (mfs_torch_find_rank(r, pp, 0) - r->ranks);

		if (!rank->state.doc)
			rc = mfs_torch_open_rank(r, rank);
		if (!rc)
			rc = mfs_torch_check_models(r, rank);
	}
	return rc;
}

/* ---- of a vision-language model ---- */

struct names {
	struct mfs_torch_reader *r;
	const char **list;
	uint32_t count;
};

static int note_name(void *arg, const char *key, mfs_value v)
{
	struct names *n = arg;

	(void)v;
	if (strstr(key, "._extra_state"))
		return 0;
	if (mfs_grow(&n->list, n->count))
		return mfs_fail_nomem(n->r->err);
	n->list[n->count] = mfs_arena_strndup(&n->r->ckpt->arena, key, strlen(key));
	return n->list[n->count++] ? 0 : mfs_fail_nomem(n->r->err);
}

/* The names of all stages: the vision model is before the first of them. */
static int choose_part(struct mfs_torch_reader *r)
{
	struct names n = {.r = r};
	int rc = 0;

	for (uint32_t c = 0; c < r->vpp * r->pp && !rc; c++)
		rc = mfs_torch_each(r, mfs_torch_find_rank(r, c % r->pp, 0), c / r->pp, note_name,
				    &n);
	if (!rc)
		rc = mfs_ckpt_choose_part(r->ckpt, n.list, n.count, r->err);
	free(n.list);
	return rc;
}

/* Blocks that begin in each chunk. */
static void count_blocks(struct mfs_torch_reader *r, uint32_t chunks)
{
	for (uint32_t c = 0; c < chunks && r->ckpt->args.hybrid_form; c++) {
		const uint32_t first = r->first_layer[c], end = first + r->layers[c];

		r->layers[c] = (end + 1) / 2 - (first + 1) / 2;
	}
}

/* Counting the layers in the files needs no rule for uneven stages. The sum must be the model's. */
int mfs_torch_number_layers(struct mfs_torch_reader *r)
{
	const uint32_t chunks = r->vpp * r->pp;
	const struct mfs_megatron_args *a = &r->ckpt->args;
	const int64_t expected = a->hybrid_form ? 2 * a->num_layers : a->num_layers;
	int64_t total = 0;
	int rc = open_stages(r);

	if (!rc)
		rc = choose_part(r);
	if (rc)
		return rc;
	r->first_layer = mfs_arena_array(&r->ckpt->arena, chunks, sizeof(*r->first_layer));
	r->layers = mfs_arena_array(&r->ckpt->arena, chunks, sizeof(*r->layers));
	if (!r->first_layer || !r->layers)
		return mfs_fail_nomem(r->err);
	for (uint32_t c = 0; c < chunks; c++) {
		const struct mfs_torch_rank *rank = mfs_torch_find_rank(r, c % r->pp, 0);

		r->first_layer[c] = (uint32_t)total;
		rc = mfs_torch_each(r, rank, c / r->pp, note_layer, &r->layers[c]);
		if (rc)
			return rc;
		total += r->layers[c];
	}
	if (total != expected)
		return mfs_fail(r->err, -EINVAL,
				"%s: expected %lld layers, found %lld in %u pipeline chunks",
				r->ckpt->dir, (long long)expected, (long long)total, chunks);
	count_blocks(r, chunks);
	return 0;
}
