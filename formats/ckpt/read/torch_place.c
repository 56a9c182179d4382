/*
 * Legacy `torch`: where a rank's tensor lies in the global tensor. All expert ranks' files have the
 * dense weights; those of the lowest expert rank are taken.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/torch_i.h"
#include "formats/ckpt/sections.h"

/* A replicated tensor is taken from one rank, and a dense one from one expert rank. */
bool mfs_torch_is_wanted(const struct mfs_torch_reader *r, const struct mfs_torch_rank *d,
			 const struct mfs_name *name)
{
	if (name->experts)
		return mfs_torch_find_expert_rank(r, d->pp, d->ep, d->tp % r->etp) == d;
	if (mfs_torch_find_rank(r, d->pp, d->tp) != d)
		return false;
	return name->tp != MFS_TP_NONE || d->tp == 0;
}

/* A tensor of one rank's file, on its way to found chunks. */
struct local {
	const struct mfs_torch_rank *rank;
	const struct mfs_torch_tensor *t;
	const char *key;
	struct mfs_name name;
	struct mfs_found_chunk found; /* chunk: the whole local tensor at global offset 0 */
	uint32_t part, parts;	      /* tensor-parallel rank among how many */
};

/* MLA's down projections: expected rows tell whether the ranks hold the whole or a part. */
static enum mfs_tp_split_kind resolve_auto(const struct mfs_torch_reader *r, const struct local *l)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	int64_t rows = strstr(l->name.canonical, "linear_kv_down_proj")
			       ? a->kv_lora_rank + a->qk_pos_emb_head_dim
			       : a->q_lora_rank;

	return rows >= 0 && l->t->ndim && l->t->shape[0] == (uint64_t)rows ? MFS_TP_NONE
									   : MFS_TP_ROWS;
}

/* Norms of queries and keys: of one head, which all ranks have, or over all of the rank's
 * heads. MLA's are of what all ranks have. */
static enum mfs_tp_split_kind resolve_heads(const struct mfs_torch_reader *r, const struct local *l)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	const bool is_head = l->t->ndim && l->t->shape[0] == (uint64_t)a->kv_channels;

	return a->multi_latent_attention || (is_head && !a->qk_norm_wide) ? MFS_TP_NONE
									  : MFS_TP_ROWS;
}

/* Splits along an axis: this rank's part of the global tensor. */
static int place_split(struct mfs_torch_reader *r, struct local *l, unsigned axis)
{
	struct mfs_found_chunk *p = &l->found;

	if (axis >= p->ndim || mfs_mul_overflows(p->shape[axis], l->parts, &p->shape[axis]))
		return mfs_fail(r->err, -EINVAL, "%s/%s: tensor '%s' cannot be one of %u parts",
				r->ckpt->dir, l->rank->name, l->key, l->parts);
	p->chunk.lo[axis] = p->chunk.size[axis] * l->part;
	if (mfs_torch_reorders(r, &l->name))
		return mfs_torch_place_qkv(r, l->rank, l->key, p, l->parts);
	return mfs_ckpt_add_found(r->ckpt, p, r->err);
}

/* [its gate rows; its up rows] become two found chunks of [all gate rows; all up rows]. */
static int place_gated(struct mfs_torch_reader *r, struct local *l)
{
	struct mfs_found_chunk gate = l->found, up;
	uint64_t half = gate.shape[0] / 2, total;
	int rc;

	if (!gate.ndim || gate.shape[0] % 2 || mfs_mul_overflows(gate.shape[0], l->parts, &total))
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s': a gated projection has an odd number of rows",
				r->ckpt->dir, l->rank->name, l->key);
	gate.shape[0] = total;
	gate.chunk.size[0] = half;
	up = gate;
	gate.chunk.lo[0] = half * l->part;
	up.chunk.lo[0] = half * l->parts + half * l->part;
	up.chunk.origin += half * up.chunk.stride[0];
	rc = mfs_ckpt_add_found(r->ckpt, &gate, r->err);
	return rc ? rc : mfs_ckpt_add_found(r->ckpt, &up, r->err);
}

/* Its rows of each section become a found chunk each of the whole tensor. */
static int place_sections(struct mfs_torch_reader *r, struct local *l)
{
	uint64_t rows[MFS_SECTIONS_MAX], all = 0, lo = 0, from = 0;
	const unsigned count = mfs_sections(&r->ckpt->args, l->name.canonical, rows);
	bool even = true;
	int rc = 0;

	for (unsigned i = 0; i < count; i++) {
		all += rows[i];
		even &= rows[i] % l->parts == 0;
	}
	if (!l->found.ndim || !even || l->found.shape[0] != all / l->parts)
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s' has %llu rows, expected one of %u parts of "
				"%llu by the run's arguments of such layers",
				r->ckpt->dir, l->rank->name, l->key,
				(unsigned long long)(l->found.ndim ? l->found.shape[0] : 0),
				l->parts, (unsigned long long)all);
	for (unsigned i = 0; i < count && !rc; i++) {
		struct mfs_found_chunk p = l->found;

		p.shape[0] = all;
		p.chunk.size[0] = rows[i] / l->parts;
		p.chunk.lo[0] = lo + p.chunk.size[0] * l->part;
		p.chunk.origin += from * p.chunk.stride[0];
		lo += rows[i];
		from += p.chunk.size[0];
		rc = mfs_ckpt_add_found(r->ckpt, &p, r->err);
	}
	return rc;
}

static int place(struct mfs_torch_reader *r, struct local *l)
{
	enum mfs_tp_split_kind split = l->name.tp;

	if (split == MFS_TP_HEADS)
		split = resolve_heads(r, l);
	if (split == MFS_TP_AUTO)
		split = resolve_auto(r, l);
	if (split == MFS_TP_GATED && !mfs_args_gated(&r->ckpt->args))
		split = MFS_TP_ROWS;
	switch (split) {
	case MFS_TP_ROWS:
		return place_split(r, l, 0);
	case MFS_TP_COLS:
		return place_split(r, l, 1);
	case MFS_TP_GATED:
		return place_gated(r, l);
	case MFS_TP_SECTIONS:
		return place_sections(r, l);
	default:
		return l->part ? 0 : mfs_ckpt_add_found(r->ckpt, &l->found, r->err);
	}
}

/*
 * GroupedMLP (removed 2026-03): all local experts in one tensor, transposed. weight1 [H, n * 2F] is
 * memory of shape (n, H, 2F), weight2 [n * F, H] of shape (n, F, H); an expert's [out, in] is the
 * transpose of its slab (megatron/core/transformer/moe/experts.py at core_v0.12).
 */
static int place_grouped(struct mfs_torch_reader *r, struct local *l, uint64_t experts,
			 uint64_t first)
{
	const uint64_t hidden = (uint64_t)r->ckpt->args.hidden_size;
	const uint64_t elements = l->t->ndim == 2 ? l->t->shape[0] * l->t->shape[1] : 0;
	const uint64_t width = elements / (experts * hidden); /* 2F (F not gated), or F */
	struct local e = *l;
	struct mfs_found_chunk *p = &e.found;
	int rc = 0;

	if (!width || width * experts * hidden != elements || l->t->stride[1] != 1 ||
	    l->t->stride[0] != l->t->shape[1])
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s' is not a grouped weight of %llu experts",
				r->ckpt->dir, l->rank->name, l->key, (unsigned long long)experts);
	for (uint64_t i = 0; i < experts && !rc; i++) {
		const bool fc1 = l->name.grouped == 1;

		*p = l->found;
		p->expert = (int32_t)(first + i);
		p->ndim = 2;
		p->shape[0] = p->chunk.size[0] = fc1 ? width : hidden;
		p->shape[1] = p->chunk.size[1] = fc1 ? hidden : width;
		p->chunk.stride[0] = 1;
		p->chunk.stride[1] = fc1 ? width : hidden;
		p->chunk.origin = l->found.chunk.origin + i * width * hidden;
		rc = place(r, &e);
	}
	return rc;
}

static int not_an_expert(const struct mfs_torch_reader *r, const struct local *l)
{
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: tensor '%s' is not one of %lld experts on %u ranks", r->ckpt->dir,
			l->rank->name, l->key, (long long)r->ckpt->args.num_experts, r->ep);
}

/* Takes an axis away: the expert's number, in front of what each of them has. */
static void drop_axis(struct mfs_found_chunk *p)
{
	p->ndim--;
	for (unsigned d = 0; d < p->ndim; d++) {
		p->shape[d] = p->shape[d + 1];
		p->chunk.size[d] = p->chunk.size[d + 1];
		p->chunk.stride[d] = p->chunk.stride[d + 1];
	}
	p->shape[p->ndim] = p->chunk.size[p->ndim] = p->chunk.stride[p->ndim] = 0;
}

/* All local experts in one tensor, [n, out, in] or [n * out, in] (moe_single_grouped_weight,
 * moe_single_grouped_bias: extensions/transformer_engine.py: _split_grouped_checkpoint_tensor). */
static int place_stacked(struct mfs_torch_reader *r, struct local *l, uint64_t experts,
			 uint64_t first)
{
	const bool bias = mfs_str_ends(l->name.canonical, ".bias");
	const bool axis = l->found.ndim == (bias ? 2 : 3);
	const uint64_t rows = l->found.ndim ? l->found.shape[0] : 0;
	struct local e = *l;
	int rc = 0;

	if (axis ? rows != experts : l->found.ndim != (bias ? 1 : 2) || rows % experts)
		return not_an_expert(r, l);
	for (uint64_t i = 0; i < experts && !rc; i++) {
		struct mfs_found_chunk *p = &e.found;

		*p = l->found;
		p->expert = (int32_t)(first + i);
		p->chunk.origin += i * (rows / experts) * p->chunk.stride[0];
		if (axis)
			drop_axis(p);
		else
			p->shape[0] = p->chunk.size[0] = rows / experts;
		rc = place(r, &e);
	}
	return rc;
}

static int place_experts(struct mfs_torch_reader *r, struct local *l)
{
	const int64_t total = r->ckpt->args.num_experts;
	const uint64_t experts = total > 0 ? (uint64_t)total / r->ep : 0;
	const uint64_t first = experts * l->rank->ep;

	if (!experts || (uint64_t)total % r->ep || l->name.expert >= (int64_t)experts)
		return not_an_expert(r, l);
	l->part = l->rank->tp % r->etp;
	l->parts = r->etp;
	if (l->name.grouped)
		return place_grouped(r, l, experts, first);
	if (l->name.expert < 0)
		return place_stacked(r, l, experts, first);
	l->found.expert = (int32_t)(first + (uint64_t)l->name.expert);
	return place(r, l);
}

int32_t mfs_torch_layer(const struct mfs_torch_reader *r, const struct mfs_name *name,
			uint32_t chunk)
{
	if (name->layer >= 0 && !strncmp(name->canonical, "decoder.", 8))
		return name->layer + (int32_t)r->first_layer[chunk];
	return name->layer;
}

/* Fills l->found with the local tensor as it lies in its record. */
static int describe(struct mfs_torch_reader *r, struct local *l, uint32_t chunk, uint32_t storage)
{
	struct mfs_found_chunk *p = &l->found;

	if (l->t->ndim > MFS_CKPT_DIMS)
		return mfs_fail(r->err, -ENOTSUP, "%s/%s: tensor '%s' has %u axes", r->ckpt->dir,
				l->rank->name, l->key, l->t->ndim);
	*p = (struct mfs_found_chunk){
		.layer = mfs_torch_layer(r, &l->name, chunk), .expert = -1, .dtype = l->t->dtype};
	p->name = mfs_ckpt_intern(r->ckpt, l->name.canonical);
	if (!p->name)
		return mfs_fail_nomem(r->err);
	p->ndim = l->t->ndim;
	p->chunk.storage = storage;
	p->chunk.origin = l->t->offset;
	memcpy(p->shape, l->t->shape, p->ndim * sizeof(*p->shape));
	memcpy(p->chunk.size, l->t->shape, p->ndim * sizeof(*p->shape));
	memcpy(p->chunk.stride, l->t->stride, p->ndim * sizeof(*p->shape));
	l->part = l->rank->tp;
	l->parts = r->tp;
	return mfs_ckpt_block(r->ckpt, &l->name, l->rank->name, l->key, &p->layer, r->err);
}

/* With a distributed optimizer all tensors share one record. */
int mfs_torch_storage(struct mfs_torch_reader *r, const struct mfs_torch_source *a,
		      const struct mfs_torch_tensor *t, uint32_t *ret)
{
	const struct mfs_zip_entry *e = t->record;
	size_t index = (size_t)(e - a->state->zip.entries);
	int rc = 0;

	if (!a->storages[index]) {
		rc = mfs_ckpt_add_record(r->ckpt, a->file, 0, e, t->dtype, &a->storages[index],
					 r->err);
		a->storages[index]++; /* 0 means none yet */
	}
	if (!rc)
		*ret = a->storages[index] - 1;
	return rc;
}

/* A part of the rows of a parameter, under the name that it has without the others. */
static int place_rows(struct mfs_torch_reader *r, const struct local *whole,
		      const struct mfs_torch_param *p, const char *name, uint64_t first,
		      uint64_t rows)
{
	const size_t inner = strlen(p->name.canonical) - strlen(MFS_FUSED_DOWN_PROJ);
	struct mfs_torch_tensor t = *whole->t;
	struct local l = *whole;
	int rc;

	t.shape[0] = rows;
	t.offset += first * t.stride[0];
	l.t = &t;
	snprintf(l.name.canonical + inner, sizeof(l.name.canonical) - inner, "%s", name);
	rc = describe(r, &l, p->chunk, whole->found.chunk.storage);
	l.found.state = whole->found.state;
	l.found.dtype = whole->found.dtype;
	l.found.chunk.scales = whole->found.chunk.scales;
	return rc ? rc : place(r, &l);
}

/* Of a rank that has its part of both, or all of both (multi_latent_attention.py:
 * FusedMLASelfAttention). */
static int place_fused_down(struct mfs_torch_reader *r, const struct local *l,
			    const struct mfs_torch_param *p)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	const uint64_t q = a->q_lora_rank > 0 ? (uint64_t)a->q_lora_rank : 0;
	const uint64_t kv = (uint64_t)(a->kv_lora_rank + a->qk_pos_emb_head_dim);
	const uint64_t found = l->t->ndim ? l->t->shape[0] : 0;
	const uint64_t parts = found == q + kv ? 1 : r->tp;
	int rc;

	if (!q || q % parts || kv % parts || found != (q + kv) / parts)
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s' has %llu rows, expected %llu of q_lora_rank "
				"and %llu of kv_lora_rank and qk_pos_emb_head_dim, or one of %u "
				"parts of both",
				r->ckpt->dir, l->rank->name, l->key, (unsigned long long)found,
				(unsigned long long)q, (unsigned long long)kv, r->tp);
	rc = place_rows(r, l, p, "self_attention.linear_q_down_proj.weight", 0, q / parts);
	return rc ? rc
		  : place_rows(r, l, p, "self_attention.linear_kv_down_proj.weight", q / parts,
			       kv / parts);
}

int mfs_torch_place(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		    const struct mfs_torch_param *p, enum mfs_state state,
		    const struct mfs_torch_tensor *t, uint32_t storage)
{
	struct local l = {.rank = rank, .key = p->key, .name = p->name, .t = t};
	int rc = describe(r, &l, p->chunk, storage);

	l.found.state = (uint8_t)state;
	if (rc)
		return rc;
	if (state == MFS_STATE_MODEL) {
		l.found.dtype = p->dtype;
		l.found.chunk.scales = p->scales;
	}
	if (mfs_str_ends(l.name.canonical, MFS_FUSED_DOWN_PROJ))
		return place_fused_down(r, &l, p);
	return l.name.experts ? place_experts(r, &l) : place(r, &l);
}
