/*
 * torch_dist: flattened optimizer tensors of fully_sharded_model_space (core 0.8-0.15). An original
 * [X, Y] in x by y fragments is stored as [x, y, n], where n is the number of elements of a
 * fragment. Chunks are [1, 1, k]: k consecutive elements. Fused experts (GroupedMLP) are not
 * transposed there; their weights are.
 *
 * Sources: core_v0.14.0: dist_checkpointing/strategies/torch.py:
 * sharded_tensor_to_torch_sharded_tensor, transformer/moe/experts.py:
 * GroupedMLP.sharded_state_dict.
 */
#include <errno.h>
#include <string.h>

#include "formats/optim/read/optim_i.h"
#include "formats/optim/read/range_boxes.h"

/* One chunk of a flattened tensor: consecutive elements of one fragment. */
struct fragment {
	struct mfs_dist_reader *r;
	const struct mfs_dist_stacked *s;
	uint64_t lo[MFS_MAX_DIMS];     /* of the fragment in the original, elements */
	uint64_t shape[MFS_MAX_DIMS];  /* of the fragment */
	uint64_t stride[MFS_MAX_DIMS]; /* of the fragment */
	uint32_t storage;
	bool transposed; /* the last two axes */
};

/* Adds a box of the fragment's elements, in one layer and expert. */
static int add_part(const struct fragment *f, const uint64_t *lo, const uint64_t *size, uint64_t at,
		    uint64_t layer, uint64_t expert)
{
	const struct mfs_dist_stacked *s = f->s;
	struct mfs_found_chunk p = s->found;

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
		/* The found chunk's shape is the canonical one; the fragment's axes are the stored
		 * ones. */
		const unsigned from = s->skip + (f->transposed && p.ndim == 2 ? 1 - d : d);

		p.chunk.lo[d] = f->lo[from] + lo[from];
		p.chunk.size[d] = size[from];
		p.chunk.stride[d] = f->stride[from];
	}
	if (s->name.part == MFS_PART_UP)
		p.chunk.lo[0] += p.shape[0] / 2;
	if (s->name.section)
		p.chunk.lo[0] += mfs_dist_place_section(f->r, &s->name, &p);
	return mfs_ckpt_add_found(f->r->ckpt, &p, f->r->err);
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

/* True if a tensor of fused experts is stored as [in, out]. Its shape shows this; for a square the
 * run's arguments do. */
static bool is_transposed(const struct mfs_ckpt *ckpt, const struct mfs_dist_stacked *s)
{
	const struct mfs_megatron_args *a = &ckpt->args;
	const uint64_t hidden = (uint64_t)a->hidden_size;
	const bool fc1 = strstr(s->name.canonical, "linear_fc1.weight") != NULL;
	const struct mfs_found_chunk *p = &s->found;

	if (!s->name.experts || p->ndim != 2 || !a->moe_grouped_gemm)
		return false;
	if (p->shape[0] != p->shape[1])
		return p->shape[fc1 ? 0 : 1] == hidden;
	return a->local_spec;
}

static int bad_fragments(const struct mfs_dist_reader *r, const char *key)
{
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: '%s': its fragments are not parts of the original shape",
			r->ckpt->dir, r->index, key);
}

/* Fragments are equal parts: sets the fragment's shape. */
static int measure(const struct mfs_dcp_tensor *t, struct fragment *f)
{
	const unsigned ndim = t->ndim - 1u;
	uint64_t elements;

	for (unsigned d = 0; d < ndim; d++) {
		if (!t->shape[d] || t->original[d] % t->shape[d])
			return bad_fragments(f->r, t->key);
		f->shape[d] = t->original[d] / t->shape[d];
	}
	if (!mfs_shape_count(f->shape, ndim, &elements) || elements != t->shape[ndim])
		return bad_fragments(f->r, t->key);
	mfs_ckpt_contiguous(f->shape, ndim, f->stride);
	return 0;
}

static int add_fragment(const struct mfs_dcp_tensor *t, const struct mfs_dcp_chunk *c,
			struct fragment *f)
{
	const unsigned ndim = t->ndim - 1u;
	int rc;

	for (unsigned d = 0; d < ndim; d++) {
		if (c->size[d] != 1)
			return bad_fragments(f->r, t->key);
		f->lo[d] = c->lo[d] * f->shape[d];
	}
	rc = mfs_dist_storage(f->r, t, c, &f->storage);
	if (rc)
		return rc;
	return mfs_range_boxes(f->shape, ndim, c->lo[ndim], c->size[ndim], add_box, f);
}

int mfs_optim_add_flattened(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t,
			    const char *key, enum mfs_state state)
{
	struct mfs_dcp_tensor whole = *t;
	struct mfs_dist_stacked s;
	struct fragment f = {.r = r, .s = &s};
	int rc = mfs_dcp_check(t, r->index, r->err);

	if (rc) {
		mfs_fail_in(r->err, "%s", r->ckpt->dir);
		return rc;
	}
	whole.ndim--;
	whole.shape = t->original;
	rc = mfs_dist_unstack(r, &whole, key, &s);
	if (!rc)
		rc = measure(t, &f);
	if (rc)
		return rc;
	s.found.state = (uint8_t)state;
	f.transposed = is_transposed(r->ckpt, &s);
	if (f.transposed) {
		const uint64_t rows = s.found.shape[0];

		s.found.shape[0] = s.found.shape[1];
		s.found.shape[1] = rows;
	}
	if (s.name.part != MFS_PART_WHOLE)
		s.found.shape[0] *= 2;
	for (uint32_t i = 0; i < t->chunk_count && !rc; i++)
		if (t->chunks[i].size[t->ndim - 1])
			rc = add_fragment(t, &t->chunks[i], &f);
	return rc;
}
