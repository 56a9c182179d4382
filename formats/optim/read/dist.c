/*
 * torch_dist: the optimizer's tensors that are named after the model's,
 * [chained_I.]optimizer.state.{fp32_param|param|exp_avg|exp_avg_sq}.KEY.
 *
 * In most saves they have the model tensor's shape and chunks. fully_sharded_model_space of core 0.8-0.15
 * flattens them: an original [X, Y] in x by y fragments is stored as [x, y, n], n elements of one fragment,
 * chunks [1, 1, k] of consecutive elements. Fused experts (GroupedMLP) are not transposed there, as their
 * weights are.
 *
 * Sources: megatron/core/dist_checkpointing/optimizer.py, optimizer/distrib_optimizer.py:
 * sharded_param_state_*; core_v0.14.0: dist_checkpointing/strategies/torch.py:
 * sharded_tensor_to_torch_sharded_tensor, transformer/moe/experts.py: GroupedMLP.sharded_state_dict.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/dist_i.h"
#include "formats/optim/buffers/flat_range.h"

/* What a key is of: the model's key behind the prefix, or NULL. */
struct state_key {
	const char *model;
	enum mfs_state state;
	bool is_param; /* "param", of fully_reshardable */
};

static bool parse_key(const char *key, struct state_key *ret)
{
	static const struct {
		const char *prefix;
		enum mfs_state state;
	} prefixes[] = {{"fp32_param.", MFS_STATE_MAIN},
			{"param.", MFS_STATE_MAIN},
			{"exp_avg.", MFS_STATE_EXP_AVG},
			{"exp_avg_sq.", MFS_STATE_EXP_AVG_SQ}};
	static const char start[] = "optimizer.state.";

	if (!strncmp(key, "chained_", 8) && strchr(key, '.'))
		key = strchr(key, '.') + 1;
	if (strncmp(key, start, sizeof(start) - 1))
		return false;
	key += sizeof(start) - 1;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		const size_t len = strlen(prefixes[i].prefix);

		if (strncmp(key, prefixes[i].prefix, len))
			continue;
		*ret = (struct state_key){
			.model = key + len, .state = prefixes[i].state, .is_param = i == 1};
		return true;
	}
	return false;
}

/* ---- flattened ---- */

/* One chunk of a flattened tensor: consecutive elements of one fragment. */
struct fragment {
	struct mfs_ckpt *ckpt;
	const struct mfs_dist_stacked *s;
	uint64_t lo[MFS_MAX_DIMS];     /* of the fragment in the original, elements */
	uint64_t shape[MFS_MAX_DIMS];  /* of the fragment */
	uint64_t stride[MFS_MAX_DIMS]; /* of the fragment */
	uint32_t storage;
	bool transposed; /* the last two axes */
	struct mfs_error *err;
};

/* A box of the fragment's elements, in one layer and expert. */
static int add_part(const struct fragment *f, const uint64_t *lo, const uint64_t *size, uint64_t at,
		    uint64_t layer, uint64_t expert)
{
	const struct mfs_dist_stacked *s = f->s;
	struct mfs_found_chunk p = s->piece;

	p.chunk.storage = f->storage;
	p.chunk.origin = at;
	if (s->layer_axis < MFS_MAX_DIMS) {
		p.layer = (int32_t)(f->lo[s->layer_axis] + lo[s->layer_axis] + layer);
		p.chunk.origin += layer * f->stride[s->layer_axis];
	}
	if (s->expert_axis < MFS_MAX_DIMS) {
		p.expert = (int32_t)(f->lo[s->expert_axis] + lo[s->expert_axis] + expert);
		p.chunk.origin += expert * f->stride[s->expert_axis];
	}
	for (unsigned d = 0; d < p.ndim; d++) {
		/* The piece's shape is the canonical one; the fragment's axes are the stored ones. */
		const unsigned from = s->skip + (f->transposed && p.ndim == 2 ? 1 - d : d);

		p.chunk.lo[d] = f->lo[from] + lo[from];
		p.chunk.size[d] = size[from];
		p.chunk.stride[d] = f->stride[from];
	}
	if (s->name.part == MFS_PART_UP)
		p.chunk.lo[0] += p.shape[0] / 2;
	return mfs_ckpt_add_found(f->ckpt, &p, f->err);
}

static int add_box(const uint64_t *lo, const uint64_t *size, uint64_t at, void *arg)
{
	const struct fragment *f = arg;
	const uint64_t layers = f->s->layer_axis < MFS_MAX_DIMS ? size[f->s->layer_axis] : 1;
	const uint64_t experts = f->s->expert_axis < MFS_MAX_DIMS ? size[f->s->expert_axis] : 1;
	int rc = 0;

	for (uint64_t l = 0; l < layers && !rc; l++)
		for (uint64_t e = 0; e < experts && !rc; e++)
			rc = add_part(f, lo, size, at, l, e);
	return rc;
}

/* Whether a tensor of fused experts is stored as [in, out]: by its shape, and where that is a square by
 * what the run used. */
static bool is_transposed(const struct mfs_ckpt *ckpt, const struct mfs_dist_stacked *s)
{
	const struct mfs_megatron_args *a = &ckpt->args;
	const uint64_t hidden = (uint64_t)a->hidden_size;
	const bool fc1 = strstr(s->name.canonical, "linear_fc1.weight") != NULL;
	const struct mfs_found_chunk *p = &s->piece;

	if (!s->name.experts || p->ndim != 2 || !a->moe_grouped_gemm)
		return false;
	if (p->shape[0] != p->shape[1])
		return p->shape[fc1 ? 0 : 1] == hidden;
	return a->local_spec;
}

static int bad_fragments(const struct mfs_ckpt *ckpt, const char *key, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL,
			"%s/" METADATA ": '%s': its fragments are no parts of the original shape",
			ckpt->dir, key);
}

/* Fragments are equal parts: sets the fragment's shape. */
static int measure(const struct mfs_dcp_tensor *t, struct fragment *f)
{
	const unsigned ndim = t->ndim - 1u;
	uint64_t elements;

	for (unsigned d = 0; d < ndim; d++) {
		if (!t->shape[d] || t->original[d] % t->shape[d])
			return bad_fragments(f->ckpt, t->key, f->err);
		f->shape[d] = t->original[d] / t->shape[d];
	}
	if (!mfs_shape_count(f->shape, ndim, &elements) || elements != t->shape[ndim])
		return bad_fragments(f->ckpt, t->key, f->err);
	mfs_ckpt_contiguous(f->shape, ndim, f->stride);
	return 0;
}

static int add_fragment(const struct mfs_dcp_tensor *t, const struct mfs_dcp_chunk *c,
			const uint32_t *files, struct fragment *f)
{
	const unsigned ndim = t->ndim - 1u;
	int rc;

	for (unsigned d = 0; d < ndim; d++) {
		if (c->size[d] != 1)
			return bad_fragments(f->ckpt, t->key, f->err);
		f->lo[d] = c->lo[d] * f->shape[d];
	}
	rc = mfs_dist_storage(f->ckpt, t, c, files, &f->storage, f->err);
	if (rc)
		return rc;
	return mfs_flat_range(f->shape, ndim, c->lo[ndim], c->size[ndim], add_box, f);
}

static int add_flattened(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t,
			 const struct state_key *key, const uint32_t *files, struct mfs_error *err)
{
	struct mfs_dcp_tensor whole = *t;
	struct mfs_dist_stacked s;
	struct fragment f = {.ckpt = ckpt, .s = &s, .err = err};
	int rc;

	whole.ndim--;
	whole.shape = t->original;
	rc = mfs_dist_unstack(ckpt, &whole, key->model, &s, err);
	if (!rc)
		rc = measure(t, &f);
	if (rc)
		return rc;
	s.piece.state = (uint8_t)key->state;
	f.transposed = is_transposed(ckpt, &s);
	if (f.transposed) {
		const uint64_t rows = s.piece.shape[0];

		s.piece.shape[0] = s.piece.shape[1];
		s.piece.shape[1] = rows;
	}
	if (s.name.part != MFS_PART_WHOLE)
		s.piece.shape[0] *= 2;
	for (uint32_t i = 0; i < t->chunk_count && !rc; i++)
		if (t->chunks[i].size[t->ndim - 1])
			rc = add_fragment(t, &t->chunks[i], files, &f);
	return rc;
}

/* ---- all ---- */

static int add_tensor(struct mfs_ckpt *ckpt, const struct mfs_dcp_tensor *t,
		      const struct state_key *key, const uint32_t *files, struct mfs_error *err)
{
	struct mfs_dist_stacked s;
	int rc = mfs_dcp_check(t, METADATA, err);

	if (rc) {
		mfs_fail_in(err, "%s", ckpt->dir);
		return rc;
	}
	if (t->original)
		return add_flattened(ckpt, t, key, files, err);
	rc = mfs_dist_unstack(ckpt, t, key->model, &s, err);
	s.piece.state = (uint8_t)key->state;
	for (uint32_t i = 0; i < t->chunk_count && !rc; i++)
		rc = mfs_dist_add_chunk(ckpt, &s, &t->chunks[i], files, err);
	return rc;
}

int mfs_dist_add_optim(struct mfs_ckpt *ckpt, const struct mfs_dcp *dcp, const uint32_t *files,
		       struct mfs_error *err)
{
	enum mfs_optim_form form = MFS_OPTIM_FORM_NONE;
	int rc = 0;

	for (uint32_t i = 0; i < dcp->tensor_count && !rc; i++) {
		const struct mfs_dcp_tensor *t = &dcp->tensors[i];
		struct state_key key;

		if (!parse_key(t->key, &key))
			continue;
		rc = add_tensor(ckpt, t, &key, files, err);
		if (t->original)
			form = MFS_OPTIM_FORM_FLATTENED;
		else if (key.is_param && form != MFS_OPTIM_FORM_FLATTENED)
			form = MFS_OPTIM_FORM_PARAM;
		else if (form == MFS_OPTIM_FORM_NONE)
			form = MFS_OPTIM_FORM_SHARDED;
	}
	ckpt->optim = form;
	return rc;
}
