/*
 * Legacy `torch`: the state dicts of a rank's model chunks. Since core they are flat. Before core
 * they are nested: model['language_model']['encoder']['layers.0.mlp.dense_4h_to_h.weight'].
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/ckpt/read/torch_i.h"

#define MAX_DEPTH 6   /* dicts in dicts; Megatron-LM has four */
#define MAX_KEY	  512 /* bytes of a joined key */

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

/* A walk through dicts in dicts. */
struct walk {
	struct mfs_torch_reader *r;
	const struct mfs_torch_rank *rank;
	const struct mfs_pickle *doc;
	mfs_torch_visit visit; /* NULL: pairs are only counted */
	void *arg;
	uint64_t left; /* how many more pairs there may be */
	char key[MAX_KEY];
};

static bool is_dict(const struct mfs_pickle *doc, mfs_value v)
{
	return mfs_value_pairs(doc, v) || mfs_value_type(doc, v) == MFS_V_DICT ||
	       mfs_value_is_object_of(doc, v, "OrderedDict");
}

/* Appends a key after the first `used` bytes of w->key. */
static bool join(struct walk *w, size_t used, mfs_value key, size_t *ret)
{
	const char *s;
	size_t len, dot = used ? 1 : 0;

	if (!mfs_value_str(w->doc, key, &s, &len) || memchr(s, 0, len) ||
	    len >= sizeof(w->key) - used - dot)
		return false;
	if (used)
		w->key[used] = '.';
	memcpy(w->key + used + dot, s, len);
	*ret = used + dot + len;
	w->key[*ret] = '\0';
	return true;
}

static int visit(struct walk *w, mfs_value v)
{
	char text[MAX_KEY];
	const char *key = mfs_ckpt_part_name(w->r->ckpt, w->key, text, sizeof(text));

	return key ? w->visit(w->arg, key, v) : 0;
}

static int walk(struct walk *w, mfs_value dict, size_t used, unsigned depth)
{
	int rc = 0;

	for (uint32_t i = 0; i < mfs_value_pairs(w->doc, dict) && !rc; i++) {
		mfs_value v = mfs_value_item(w->doc, dict, i);
		size_t len;

		if (!w->left--)
			return mfs_fail(w->r->err, -EINVAL,
					"%s/%s: several of its pipeline chunks are the same state "
					"dict",
					w->r->ckpt->dir, w->rank->name);
		if (!join(w, used, mfs_value_key(w->doc, dict, i), &len))
			return mfs_fail(w->r->err, -EINVAL, "%s/%s: a tensor's name is not text",
					w->r->ckpt->dir, w->rank->name);
		if (is_dict(w->doc, v) && depth < MAX_DEPTH)
			rc = walk(w, v, len, depth + 1);
		else if (w->visit)
			rc = visit(w, v);
	}
	return rc;
}

static struct walk begin(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	return (struct walk){.r = r,
			     .rank = rank,
			     .doc = rank->state.doc,
			     .left = mfs_pickle_length(rank->state.doc)};
}

/* Each model chunk must have dicts of its own. One dict for thousands of chunks, or in itself,
 * would be read for each of them. */
int mfs_torch_check_models(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	struct walk w = begin(r, rank);
	int rc = 0;

	for (uint32_t vp = 0; vp < r->vpp && !rc; vp++)
		rc = walk(&w, mfs_torch_model(r, rank, vp), 0, 1);
	return rc;
}

int mfs_torch_each(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, uint32_t vp,
		   mfs_torch_visit visit, void *arg)
{
	struct walk w = begin(r, rank);

	w.visit = visit;
	w.arg = arg;
	return walk(&w, mfs_torch_model(r, rank, vp), 0, 1);
}
