/*
 * Legacy `torch`: which layers of the model each pipeline chunk holds. Layers are numbered from 0
 * in every file; their global numbers are a running count over pipeline chunks in the order vp * P
 * + pp.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/ckpt/read/torch_i.h"

/* The state dict of virtual chunk vp: 'model', or 'model0', 'model1', ...; none if the stage is
 * empty. */
mfs_value mfs_torch_model(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			  uint32_t vp)
{
	const struct mfs_pickle *doc = rank->state.doc;
	char key[32];

	snprintf(key, sizeof(key), "model%u", vp);
	return mfs_value_get(doc, mfs_pickle_root(doc), r->vpp > 1 ? key : "model");
}

/* Each model chunk must have a dict of its own. One dict for thousands of chunks would be read for
 * each of them. */
int mfs_torch_check_models(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	uint64_t pairs = 0;

	for (uint32_t vp = 0; vp < r->vpp; vp++)
		pairs += mfs_value_pairs(rank->state.doc, mfs_torch_model(r, rank, vp));
	if (pairs <= mfs_pickle_length(rank->state.doc))
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: several of its pipeline chunks are the same state dict",
			r->ckpt->dir, rank->name);
}

bool mfs_torch_key_text(const struct mfs_pickle *doc, mfs_value key, char *text, size_t size)
{
	const char *s;
	size_t len;

	if (!mfs_value_str(doc, key, &s, &len) || len >= size || memchr(s, 0, len))
		return false;
	memcpy(text, s, len);
	text[len] = '\0';
	return true;
}

static uint32_t count_layers(const struct mfs_pickle *doc, mfs_value model)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < mfs_value_pairs(doc, model); i++) {
		struct mfs_name name;
		char key[512];

		if (!mfs_torch_key_text(doc, mfs_value_key(doc, model, i), key, sizeof(key)))
			continue;
		mfs_name_parse(key, &name);
		if (name.layer >= 0 && !strncmp(name.canonical, "decoder.", 8) &&
		    (uint32_t)name.layer >= count)
			count = (uint32_t)name.layer + 1;
	}
	return count;
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

/* Counting the layers in the files needs no rule for uneven stages. The sum must be the model's. */
int mfs_torch_number_layers(struct mfs_torch_reader *r)
{
	const uint32_t chunks = r->vpp * r->pp;
	const int64_t expected = r->ckpt->args.num_layers;
	int64_t total = 0;
	int rc = open_stages(r);

	if (rc)
		return rc;
	r->first_layer = mfs_arena_array(&r->ckpt->arena, chunks, sizeof(*r->first_layer));
	r->layers = mfs_arena_array(&r->ckpt->arena, chunks, sizeof(*r->layers));
	if (!r->first_layer || !r->layers)
		return mfs_fail_nomem(r->err);
	for (uint32_t c = 0; c < chunks; c++) {
		const struct mfs_torch_rank *rank = mfs_torch_find_rank(r, c % r->pp, 0);

		r->first_layer[c] = (uint32_t)total;
		r->layers[c] = count_layers(rank->state.doc, mfs_torch_model(r, rank, c / r->pp));
		total += r->layers[c];
	}
	if (total != expected)
		return mfs_fail(r->err, -EINVAL,
				"%s: expected %lld layers, found %lld in %u pipeline chunks",
				r->ckpt->dir, (long long)expected, (long long)total, chunks);
	return 0;
}
