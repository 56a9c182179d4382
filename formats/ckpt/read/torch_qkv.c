/*
 * Legacy `torch`: the order of the rows of query_key_value, which changed twice in 2020. A rank has
 * n heads of d channels, and for each of them a row of q, k and v:
 *
 *   checkpoint_version    order of the rows
 *   absent, 0             [3, n, d]    all q, all k, all v
 *   1.0                   [n, d, 3]
 *   2.0, 3.0              [n, 3, d]    the order of global tensors
 *
 * Source: fix_query_key_value_ordering (megatron/checkpointing.py at v2.5), _transpose_last_dim
 * (megatron/model/transformer.py at v2.0).
 */
#include <errno.h>
#include <string.h>

#include "formats/ckpt/read/torch_i.h"

/* A head is three chunks of a tensor. A small file can claim any number of heads at no cost; 2^20
 * chunks are the weights and biases of 1365 layers of 128 heads. */
#define MAX_PIECES (1u << 20)

/* Arguments before core differ in two ways, see megatron_args.h. */
static bool is_before_core(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	const struct mfs_pickle *doc = rank->state.doc;

	for (uint32_t vp = 0; vp < r->vpp; vp++)
		if (mfs_value_has(doc, mfs_torch_model(r, rank, vp), "language_model"))
			return true;
	return false;
}

int mfs_torch_read_age(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	const struct mfs_pickle *doc = rank->state.doc;
	const mfs_value root = mfs_pickle_root(doc);
	const bool before_core = is_before_core(r, rank);
	double version = before_core ? 0 : 3;

	r->pieces = MAX_PIECES;
	mfs_value_float(doc, mfs_value_get(doc, root, "checkpoint_version"), &version);
	if (!(version >= 2) && (!before_core || (version != 0 && version != 1)))
		return mfs_fail(r->err, -ENOTSUP, "%s/%s: checkpoint_version %g: expected %s",
				r->ckpt->dir, rank->name, version,
				before_core ? "0, 1.0, 2.0 or 3.0" : "2.0 or 3.0");
	if (version < 2)
		r->qkv_order = version == 0 ? MFS_QKV_SPLITS_FIRST : MFS_QKV_SPLITS_LAST;
	if (before_core)
		mfs_megatron_args_before_core(doc, mfs_value_get(doc, root, "args"),
					      &r->ckpt->args);
	return 0;
}

bool mfs_torch_reorders(const struct mfs_torch_reader *r, const struct mfs_name *name)
{
	return r->qkv_order != MFS_QKV_HEADS_FIRST &&
	       strstr(name->canonical, "self_attention.linear_qkv.");
}

/* Adds the rows of q, k or v (split 0, 1, 2) of one head. */
static int add_rows(struct mfs_torch_reader *r, const struct mfs_found_chunk *local, uint64_t heads,
		    uint64_t head, uint64_t split)
{
	struct mfs_found_chunk p = *local;
	const uint64_t channels = local->chunk.size[0] / heads / 3, row = local->chunk.stride[0];
	const bool last = r->qkv_order == MFS_QKV_SPLITS_LAST;

	p.chunk.lo[0] += (head * 3 + split) * channels;
	p.chunk.size[0] = channels;
	p.chunk.stride[0] = last ? 3 * row : row;
	p.chunk.origin +=
		row * (last ? head * channels * 3 + split : (split * heads + head) * channels);
	return mfs_ckpt_add_found(r->ckpt, &p, r->err);
}

int mfs_torch_place_qkv(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			const char *key, const struct mfs_found_chunk *local, uint32_t parts)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	const uint64_t heads = (uint64_t)a->num_attention_heads / parts;
	const uint64_t rows = 3 * heads * (uint64_t)a->kv_channels;
	int rc = 0;

	if (!heads || (uint64_t)a->num_attention_heads % parts || local->chunk.size[0] != rows)
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s': expected %llu rows of q, k and v, found %llu",
				r->ckpt->dir, rank->name, key, (unsigned long long)rows,
				(unsigned long long)local->chunk.size[0]);
	if (3 * heads > r->pieces)
		return mfs_fail(r->err, -ENOTSUP,
				"%s/%s: tensor '%s': more than %u pieces of q, k and v",
				r->ckpt->dir, rank->name, key, MAX_PIECES);
	r->pieces -= 3 * heads;
	for (uint64_t h = 0; h < heads && !rc; h++)
		for (uint64_t split = 0; split < 3 && !rc; split++)
			rc = add_rows(r, local, heads, h, split);
	return rc;
}
