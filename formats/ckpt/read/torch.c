/*
 * Legacy `torch`: one mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt per model-parallel rank
 * (megatron/training/checkpointing.py:get_checkpoint_name).
 *
 * What the directory names leave open (is _001 a pipeline stage or an expert rank?) rank 0's arguments
 * decide. Layers are numbered from 0 in every file; their global numbers are a running count over
 * pipeline chunks in the order vp * P + pp. Dense weights stand in every expert rank's file: the lowest
 * present is taken. With ETP != TP only max(TP, EP * ETP) files exist per stage; expert weights are the
 * expert-tensor rank's, which is the tensor rank modulo ETP.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/ckpt/read/torch_i.h"

#define STATE_FILE "model_optim_rng.pt"
#define NO_RANK	   UINT32_MAX
#define MAX_RANKS  1000000 /* of one axis; keeps tp * pp * ep far from overflow */

/* ---- directories ---- */

static bool parse_rank_name(const char *name, struct mfs_torch_rank *ret)
{
	const char *at = name + 8;

	if (strncmp(name, "mp_rank_", 8))
		return false;
	for (int i = 0; i < 3; i++)
		ret->number[i] = NO_RANK;
	for (int i = 0; i < 3; i++) {
		size_t digits = strspn(at, "0123456789");

		if (!digits || digits > 6)
			return false;
		ret->number[i] = (uint32_t)atoi(at);
		at += digits;
		if (!*at)
			return true;
		if (*at++ != '_')
			return false;
	}
	return false;
}

/* With a distributed optimizer Megatron makes a directory for every rank, and leaves those empty whose
 * weights another rank has saved (training/checkpointing.py: ensure_directory_exists). */
static bool has_state(const struct mfs_torch_reader *r, const char *name)
{
	char path[4096];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s/" STATE_FILE, r->ckpt->dir, name) <
		       sizeof(path) &&
	       !stat(path, &st);
}

static int list_ranks(struct mfs_torch_reader *r)
{
	DIR *dir = opendir(r->ckpt->dir);
	struct dirent *e;
	int rc = 0;

	if (!dir)
		return mfs_fail(r->err, -errno, "%s: %s", r->ckpt->dir, strerror(errno));
	while (!rc && (e = readdir(dir))) {
		struct mfs_torch_rank rank = {0};

		if (!parse_rank_name(e->d_name, &rank) || !has_state(r, e->d_name))
			continue;
		rank.name = mfs_grow(&r->ranks, r->count) ? NULL : strdup(e->d_name);
		if (!rank.name)
			rc = mfs_fail_nomem(r->err);
		else
			r->ranks[r->count++] = rank;
	}
	closedir(dir);
	return rc;
}

static int open_state(struct mfs_torch_reader *r, struct mfs_torch_rank *rank)
{
	char path[512];
	struct mfs_source src;
	int rc;

	snprintf(path, sizeof(path), "%s/" STATE_FILE, rank->name);
	rc = mfs_fileset_add(r->ckpt->files, path, &rank->file, r->err);
	if (rc == -ENOENT)
		return mfs_fail(r->err, -ENODATA, "%s/%s is missing: the save is incomplete",
				r->ckpt->dir, path);
	if (rc)
		return rc;
	src = mfs_source_file(r->ckpt->files, rank->file);
	rc = mfs_torch_file_open(&src, &rank->state, r->err);
	if (rc)
		mfs_fail_in(r->err, "%s", r->ckpt->dir);
	return rc;
}

static int by_number(const void *a, const void *b)
{
	const struct mfs_torch_rank *x = a, *y = b;

	for (int i = 0; i < 3; i++)
		if (x->number[i] != y->number[i])
			return x->number[i] < y->number[i] ? -1 : 1;
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct mfs_torch_rank *x = a, *y = b;

	if (x->pp != y->pp)
		return x->pp < y->pp ? -1 : 1;
	if (x->tp != y->tp)
		return x->tp < y->tp ? -1 : 1;
	return (x->ep > y->ep) - (x->ep < y->ep);
}

/* The layout that rank 0's arguments claim. */
static int read_layout(struct mfs_torch_reader *r)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	int rc;

	if (!r->count)
		return mfs_fail(r->err, -ENODATA,
				"%s: no mp_rank_* directory holds a " STATE_FILE
				": the save is incomplete",
				r->ckpt->dir);
	qsort(r->ranks, r->count, sizeof(*r->ranks), by_number);
	rc = open_state(r, &r->ranks[0]);
	if (!rc)
		rc = mfs_ckpt_read_state(r->ckpt, r->ranks[0].state.doc,
					 mfs_pickle_root(r->ranks[0].state.doc), r->ranks[0].name,
					 r->err);
	if (rc)
		return rc;
	if (a->tensor_model_parallel_size > MAX_RANKS ||
	    a->pipeline_model_parallel_size > MAX_RANKS ||
	    a->expert_model_parallel_size > MAX_RANKS ||
	    a->expert_tensor_parallel_size > MAX_RANKS ||
	    a->virtual_pipeline_model_parallel_size * a->pipeline_model_parallel_size > MAX_RANKS)
		return mfs_fail(r->err, -EINVAL, "%s: the arguments claim an impossible layout",
				r->ckpt->dir);
	r->tp = (uint32_t)a->tensor_model_parallel_size;
	r->pp = (uint32_t)a->pipeline_model_parallel_size;
	r->ep = (uint32_t)a->expert_model_parallel_size;
	r->etp = a->num_experts == MFS_UNSET ? r->tp : (uint32_t)a->expert_tensor_parallel_size;
	r->vpp = (uint32_t)a->virtual_pipeline_model_parallel_size;
	return 0;
}

/* Numbers in a name are tp, then pp if P > 1, then ep if EP > 1. */
static int assign_ranks(struct mfs_torch_reader *r)
{
	const unsigned expected = 1 + (r->pp > 1) + (r->ep > 1);

	for (uint32_t i = 0; i < r->count; i++) {
		struct mfs_torch_rank *d = &r->ranks[i];
		unsigned found = 1 + (d->number[1] != NO_RANK) + (d->number[2] != NO_RANK);

		d->tp = d->number[0];
		d->pp = r->pp > 1 ? d->number[1] : 0;
		d->ep = r->ep > 1 ? d->number[expected - 1] : 0;
		if (found != expected || d->tp >= r->tp || d->pp >= r->pp || d->ep >= r->ep)
			return mfs_fail(
				r->err, -EINVAL,
				"%s/%s: no rank of the layout TP%u PP%u EP%u that the arguments say",
				r->ckpt->dir, d->name, r->tp, r->pp, r->ep);
	}
	qsort(r->ranks, r->count, sizeof(*r->ranks), by_rank);
	return 0;
}

static const struct mfs_torch_rank *find_rank(const struct mfs_torch_reader *r, uint32_t pp,
					      uint32_t tp)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->ranks[i].pp == pp && r->ranks[i].tp == tp)
			return &r->ranks[i];
	return NULL;
}

/* The file whose expert weights stand for (stage, expert rank, expert-tensor rank). */
static const struct mfs_torch_rank *find_expert_rank(const struct mfs_torch_reader *r, uint32_t pp,
						     uint32_t ep, uint32_t etp)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->ranks[i].pp == pp && r->ranks[i].ep == ep && r->ranks[i].tp % r->etp == etp)
			return &r->ranks[i];
	return NULL;
}

static int missing(struct mfs_torch_reader *r, uint32_t tp, uint32_t pp, uint32_t ep)
{
	char name[64];
	size_t used = (size_t)snprintf(name, sizeof(name), "mp_rank_%02u", tp);

	if (r->pp > 1)
		used += (size_t)snprintf(name + used, sizeof(name) - used, "_%03u", pp);
	if (r->ep > 1)
		snprintf(name + used, sizeof(name) - used, "_%03u", ep);
	return mfs_fail(r->err, -ENODATA,
			"%s/%s/" STATE_FILE " is missing: the save is incomplete (TP%u PP%u EP%u)",
			r->ckpt->dir, name, r->tp, r->pp, r->ep);
}

static int check_grid(struct mfs_torch_reader *r)
{
	/* As many loops as directories could exist: a claimed size beyond them ends at the first gap. */
	for (uint32_t pp = 0; pp < r->pp; pp++) {
		for (uint32_t tp = 0; tp < r->tp; tp++)
			if (!find_rank(r, pp, tp))
				return missing(r, tp, pp, 0);
		for (uint32_t ep = 0; ep < r->ep; ep++)
			for (uint32_t etp = 0; etp < r->etp; etp++)
				if (!find_expert_rank(r, pp, ep, etp))
					return missing(r, etp, pp, ep);
	}
	return 0;
}

/* ---- layers ---- */

/* The state dict of virtual chunk vp: 'model', or 'model0', 'model1', ...; none if the stage is empty. */
static mfs_value model_chunk(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
			     uint32_t vp)
{
	const struct mfs_pickle *doc = rank->state.doc;
	char key[32];

	snprintf(key, sizeof(key), "model%u", vp);
	return mfs_value_get(doc, mfs_pickle_root(doc), r->vpp > 1 ? key : "model");
}

/* Each chunk has a dict of its own: one that stands for thousands would be walked for each of them. */
static int check_chunks(const struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	uint64_t pairs = 0;

	for (uint32_t vp = 0; vp < r->vpp; vp++)
		pairs += mfs_value_pairs(rank->state.doc, model_chunk(r, rank, vp));
	if (pairs <= mfs_pickle_length(rank->state.doc))
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: its pipeline chunks are one state dict again and again",
			r->ckpt->dir, rank->name);
}

static bool key_text(const struct mfs_pickle *doc, mfs_value key, char *text, size_t size)
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

		if (!key_text(doc, mfs_value_key(doc, model, i), key, sizeof(key)))
			continue;
		mfs_name_parse(key, &name);
		if (name.layer >= 0 && !strncmp(name.canonical, "decoder.", 8) &&
		    (uint32_t)name.layer >= count)
			count = (uint32_t)name.layer + 1;
	}
	return count;
}

/* Counting what is there needs no rule for uneven stages; the sum must be the model's. */
static int number_layers(struct mfs_torch_reader *r)
{
	const uint32_t chunks = r->vpp * r->pp;
	const int64_t expected = r->ckpt->args.num_layers;
	int64_t total = 0;

	r->first_layer = mfs_arena_array(&r->ckpt->arena, chunks, sizeof(*r->first_layer));
	r->layers = mfs_arena_array(&r->ckpt->arena, chunks, sizeof(*r->layers));
	if (!r->first_layer || !r->layers)
		return mfs_fail_nomem(r->err);
	for (uint32_t c = 0; c < chunks; c++) {
		const struct mfs_torch_rank *rank = find_rank(r, c % r->pp, 0);
		int rc = c < r->pp ? check_chunks(r, rank) : 0;

		if (rc)
			return rc;
		r->first_layer[c] = (uint32_t)total;
		r->layers[c] = count_layers(rank->state.doc, model_chunk(r, rank, c / r->pp));
		total += r->layers[c];
	}
	if (total != expected)
		return mfs_fail(r->err, -EINVAL,
				"%s: expected %lld layers, found %lld in %u pipeline chunks",
				r->ckpt->dir, (long long)expected, (long long)total, chunks);
	return 0;
}

/* ---- tensors ---- */

/* Which ranks' copies count: a replicated tensor once, a dense one from one expert rank. */
static bool is_wanted(const struct mfs_torch_reader *r, const struct mfs_torch_local *l)
{
	const struct mfs_torch_rank *d = l->rank;

	if (l->name.experts)
		return find_expert_rank(r, d->pp, d->ep, d->tp % r->etp) == d;
	if (find_rank(r, d->pp, d->tp) != d)
		return false;
	return l->name.tp != MFS_TP_NONE || d->tp == 0;
}

/* MLA's down projections: expected rows tell whether the ranks hold the whole or a part. */
static enum mfs_tp_split resolve_auto(const struct mfs_torch_reader *r,
				      const struct mfs_torch_local *l)
{
	const struct mfs_megatron_args *a = &r->ckpt->args;
	int64_t rows = strstr(l->name.canonical, "linear_kv_down_proj")
			       ? a->kv_lora_rank + a->qk_pos_emb_head_dim
			       : a->q_lora_rank;

	return rows >= 0 && l->t->ndim && l->t->shape[0] == (uint64_t)rows ? MFS_TP_NONE
									   : MFS_TP_ROWS;
}

/* Splits along an axis: this rank's part of the global tensor. */
static int place_split(struct mfs_torch_reader *r, struct mfs_torch_local *l, unsigned axis)
{
	struct mfs_found_chunk *p = &l->piece;

	if (axis >= p->ndim || mfs_mul_overflows(p->shape[axis], l->parts, &p->shape[axis]))
		return mfs_fail(r->err, -EINVAL, "%s/%s: tensor '%s' cannot be a part of %u",
				r->ckpt->dir, l->rank->name, l->key, l->parts);
	p->chunk.lo[axis] = p->chunk.size[axis] * l->part;
	return mfs_ckpt_add_found(r->ckpt, p, r->err);
}

/* [its gate rows; its up rows] become two pieces of [all gate rows; all up rows]. */
static int place_gated(struct mfs_torch_reader *r, struct mfs_torch_local *l)
{
	struct mfs_found_chunk gate = l->piece, up;
	uint64_t half = gate.shape[0] / 2, total;
	int rc;

	if (!gate.ndim || gate.shape[0] % 2 || mfs_mul_overflows(gate.shape[0], l->parts, &total))
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s': a gated projection of an odd number of rows",
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

static int place(struct mfs_torch_reader *r, struct mfs_torch_local *l)
{
	enum mfs_tp_split split = l->name.tp;

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
	default:
		return l->part ? 0 : mfs_ckpt_add_found(r->ckpt, &l->piece, r->err);
	}
}

/*
 * GroupedMLP (removed 2026-03): all local experts in one tensor, transposed. weight1 [H, n * 2F] is
 * memory of shape (n, H, 2F), weight2 [n * F, H] of shape (n, F, H); an expert's [out, in] is the
 * transpose of its slab (megatron/core/transformer/moe/experts.py at core_v0.12).
 */
static int place_grouped(struct mfs_torch_reader *r, struct mfs_torch_local *l, uint64_t experts,
			 uint64_t first)
{
	const uint64_t hidden = (uint64_t)r->ckpt->args.hidden_size;
	const uint64_t elements = l->t->ndim == 2 ? l->t->shape[0] * l->t->shape[1] : 0;
	const uint64_t width = elements / (experts * hidden); /* 2F (F not gated), or F */
	struct mfs_torch_local e = *l;
	struct mfs_found_chunk *p = &e.piece;
	int rc = 0;

	if (!width || width * experts * hidden != elements || l->t->stride[1] != 1 ||
	    l->t->stride[0] != l->t->shape[1])
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s' is no [%llu experts] grouped weight",
				r->ckpt->dir, l->rank->name, l->key, (unsigned long long)experts);
	for (uint64_t i = 0; i < experts && !rc; i++) {
		const bool fc1 = l->name.grouped == 1;

		*p = l->piece;
		p->expert = (int32_t)(first + i);
		p->ndim = 2;
		p->shape[0] = p->chunk.size[0] = fc1 ? width : hidden;
		p->shape[1] = p->chunk.size[1] = fc1 ? hidden : width;
		p->chunk.stride[0] = 1;
		p->chunk.stride[1] = fc1 ? width : hidden;
		p->chunk.origin = l->piece.chunk.origin + i * width * hidden;
		rc = place(r, &e);
	}
	return rc;
}

static int place_experts(struct mfs_torch_reader *r, struct mfs_torch_local *l)
{
	const int64_t total = r->ckpt->args.num_experts;
	const uint64_t experts = total > 0 ? (uint64_t)total / r->ep : 0;
	const uint64_t first = experts * l->rank->ep;

	if (!experts || (uint64_t)total % r->ep || l->name.expert >= (int64_t)experts ||
	    (!l->name.grouped && l->name.expert < 0))
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: tensor '%s' is none of %lld experts on %u ranks",
				r->ckpt->dir, l->rank->name, l->key, (long long)total, r->ep);
	l->part = l->rank->tp % r->etp;
	l->parts = r->etp;
	if (l->name.grouped)
		return place_grouped(r, l, experts, first);
	l->piece.expert = (int32_t)(first + (uint64_t)l->name.expert);
	return place(r, l);
}

/* Fills l->piece with the local tensor as it lies in its record. */
static int describe(struct mfs_torch_reader *r, struct mfs_torch_local *l, uint32_t chunk,
		    uint32_t storage)
{
	struct mfs_found_chunk *p = &l->piece;

	if (l->t->ndim > MFS_CKPT_DIMS)
		return mfs_fail(r->err, -ENOTSUP, "%s/%s: tensor '%s' has %u axes", r->ckpt->dir,
				l->rank->name, l->key, l->t->ndim);
	*p = (struct mfs_found_chunk){.layer = l->name.layer, .expert = -1, .dtype = l->t->dtype};
	p->name = mfs_ckpt_intern(r->ckpt, l->name.canonical);
	if (!p->name)
		return mfs_fail_nomem(r->err);
	if (l->name.layer >= 0 && !strncmp(l->name.canonical, "decoder.", 8))
		p->layer += (int32_t)r->first_layer[chunk];
	p->ndim = l->t->ndim;
	p->chunk.storage = storage;
	p->chunk.origin = l->t->offset;
	memcpy(p->shape, l->t->shape, p->ndim * sizeof(*p->shape));
	memcpy(p->chunk.size, l->t->shape, p->ndim * sizeof(*p->shape));
	memcpy(p->chunk.stride, l->t->stride, p->ndim * sizeof(*p->shape));
	l->part = l->rank->tp;
	l->parts = r->tp;
	return 0;
}

/* With a distributed optimizer all tensors share one record. */
int mfs_torch_storage(struct mfs_torch_reader *r, const struct mfs_torch_source *a,
		      const struct mfs_torch_tensor *t, uint32_t *ret)
{
	const struct mfs_zip_entry *e = t->record;
	size_t index = (size_t)(e - a->state->zip.entries);
	struct mfs_storage s = {.container = MFS_IN_RECORD,
				.file = a->file,
				.dtype = t->dtype,
				.at = e->header,
				.length = e->size,
				.limit = e->limit,
				.crc = e->crc};
	int rc = 0;

	if (!a->storages[index]) {
		s.record = mfs_ckpt_intern(r->ckpt, e->name);
		rc = s.record ? mfs_ckpt_add_storage(r->ckpt, &s, &a->storages[index], r->err)
			      : mfs_fail_nomem(r->err);
		a->storages[index]++; /* 0 means none yet */
	}
	if (!rc)
		*ret = a->storages[index] - 1;
	return rc;
}

int mfs_torch_place(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		    const struct mfs_torch_param *p, enum mfs_state state,
		    const struct mfs_torch_tensor *t, uint32_t storage)
{
	struct mfs_torch_local l = {.rank = rank, .key = p->key, .name = p->name, .t = t};
	int rc = describe(r, &l, p->chunk, storage);

	l.piece.state = (uint8_t)state;
	if (rc)
		return rc;
	return l.name.experts ? place_experts(r, &l) : place(r, &l);
}

/* Not a buffer, which the optimizer does not know. */
static bool is_parameter(const struct mfs_torch_param *p)
{
	static const char *const buffers[] = {"router.expert_bias", "router.qb_beta"};
	const size_t len = strlen(p->name.canonical);

	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
		const size_t tail = strlen(buffers[i]);

		if (len > tail && !strcmp(p->name.canonical + len - tail, buffers[i]))
			return false;
	}
	return p->t.dtype == MFS_BF16 || p->t.dtype == MFS_F16 || p->t.dtype == MFS_F32;
}

/* Kept until the rank's optimizer has been read. */
static int note_param(struct mfs_torch_reader *r, const struct mfs_torch_param *p)
{
	struct mfs_torch_params *all = &r->params;

	if (mfs_grow(&all->list, all->count))
		return mfs_fail_nomem(r->err);
	all->list[all->count] = *p;
	all->list[all->count].key = mfs_arena_strndup(&all->arena, p->key, strlen(p->key));
	return all->list[all->count++].key ? 0 : mfs_fail_nomem(r->err);
}

static int read_tensor(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank,
		       uint32_t chunk, const char *key, mfs_value v,
		       const struct mfs_torch_source *a)
{
	struct mfs_torch_param p = {.key = key, .chunk = chunk};
	struct mfs_torch_local l = {.rank = rank, .key = key};
	const bool optimizer = r->ckpt->what & MFS_CKPT_OPTIMIZER;
	bool counts;
	uint32_t storage;
	int rc;

	mfs_name_parse(key, &p.name);
	if (!strncmp(p.name.canonical, "mtp.layers.transformer_layer.", 29))
		r->ckpt->args.mtp_model_layer = p.name.mtp_model_layer;
	l.name = p.name;
	if (p.name.ignored)
		return 0;
	p.copy = mfs_torch_is_copy(r, &p.name, chunk);
	counts = is_wanted(r, &l);
	p.wanted = counts && !p.copy;
	if (!counts && !optimizer)
		return 0;
	rc = mfs_torch_tensor(&rank->state, v, &p.t, r->err);
	if (rc) {
		mfs_fail_in(r->err, "%s/%s: tensor '%s'", r->ckpt->dir, rank->name, key);
		return rc;
	}
	if (optimizer && is_parameter(&p))
		rc = note_param(r, &p);
	if (rc || !counts)
		return rc;
	rc = mfs_torch_storage(r, a, &p.t, &storage);
	if (!rc)
		rc = mfs_torch_check_copy(r, rank, &p, storage,
					  model_chunk(r, rank, chunk / r->pp));
	return rc || !p.wanted ? rc : mfs_torch_place(r, rank, &p, MFS_STATE_MODEL, &p.t, storage);
}

static int read_chunk(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, uint32_t chunk,
		      const struct mfs_torch_source *a)
{
	const struct mfs_pickle *doc = rank->state.doc;
	mfs_value model = model_chunk(r, rank, chunk / r->pp);
	int rc = 0;

	if (!mfs_value_is_none(doc, mfs_value_get(doc, model, "language_model")))
		return mfs_fail(
			r->err, -ENOTSUP,
			"%s/%s: names of Megatron before core (language_model) are not supported",
			r->ckpt->dir, rank->name);
	for (uint32_t i = 0; i < mfs_value_pairs(doc, model) && !rc; i++) {
		char key[512];

		if (!key_text(doc, mfs_value_key(doc, model, i), key, sizeof(key)))
			return mfs_fail(r->err, -EINVAL, "%s/%s: a tensor's name is no text",
					r->ckpt->dir, rank->name);
		rc = read_tensor(r, rank, chunk, key, mfs_value_item(doc, model, i), a);
	}
	return rc;
}

static int read_rank(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	struct mfs_torch_source a = {.state = &rank->state, .file = rank->file};
	int rc = check_chunks(r, rank);

	if (rc)
		return rc;
	a.storages = calloc(rank->state.zip.count, sizeof(*a.storages));
	if (!a.storages)
		return mfs_fail_nomem(r->err);
	for (uint32_t vp = 0; vp < r->vpp && !rc; vp++)
		rc = read_chunk(r, rank, vp * r->pp + rank->pp, &a);
	if (!rc && r->ckpt->what & MFS_CKPT_OPTIMIZER)
		rc = mfs_torch_read_optim(r, rank, &a);
	free(r->params.list);
	mfs_arena_release(&r->params.arena);
	r->params = (struct mfs_torch_params){0};
	free(a.storages);
	return rc;
}

static int read_ranks(struct mfs_torch_reader *r)
{
	int rc = 0;

	r->embeddings = mfs_arena_array(&r->ckpt->arena, r->tp, sizeof(*r->embeddings));
	if (!r->embeddings)
		return mfs_fail_nomem(r->err);

	for (uint32_t i = 0; i < r->count && !rc; i++) {
		/* Of most ranks nothing was needed so far; one at a time keeps memory small. */
		if (!r->ranks[i].state.doc)
			rc = open_state(r, &r->ranks[i]);
		if (!rc)
			rc = read_rank(r, &r->ranks[i]);
		mfs_torch_file_release(&r->ranks[i].state);
	}
	return rc;
}

/* Layers are counted in one rank of each stage. */
static int open_stages(struct mfs_torch_reader *r)
{
	int rc = 0;

	for (uint32_t pp = 0; pp < r->pp && !rc; pp++) {
		struct mfs_torch_rank *rank = r->ranks + (find_rank(r, pp, 0) - r->ranks);

		if (!rank->state.doc)
			rc = open_state(r, rank);
	}
	return rc;
}

/* Each rank's file has its random states. */
static int note_rng(struct mfs_torch_reader *r)
{
	struct mfs_ckpt *ckpt = r->ckpt;
	mfs_value root = ckpt->state.root;

	if (mfs_value_type(ckpt->state.archive.doc,
			   mfs_value_get(ckpt->state.archive.doc, root, "rng_state")) != MFS_V_LIST)
		return 0;
	ckpt->rng = mfs_arena_array(&ckpt->arena, r->count, sizeof(*ckpt->rng));
	if (!ckpt->rng)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < r->count; i++)
		ckpt->rng[ckpt->rng_count++] = (struct mfs_ckpt_rng){.tp = r->ranks[i].tp,
								     .pp = r->ranks[i].pp,
								     .ep = r->ranks[i].ep,
								     .file = r->ranks[i].file};
	mfs_ckpt_sort_rng(ckpt);
	return 0;
}

/* The first rank's, read again: it has been let go with the others. */
static int keep_state(struct mfs_torch_reader *r)
{
	struct mfs_ckpt *ckpt = r->ckpt;
	struct mfs_source src;
	int rc;

	src = mfs_source_file(ckpt->files, r->ranks[0].file);
	rc = mfs_torch_file_open(&src, &ckpt->state.archive, r->err);
	if (rc)
		return rc;
	ckpt->state.root = mfs_pickle_root(ckpt->state.archive.doc);
	ckpt->state.file = r->ranks[0].file;
	ckpt->has_state = true;
	return 0;
}

static int prepare_optimizer(struct mfs_torch_reader *r)
{
	const size_t stages = r->pp;

	mfs_optim_rules_of(r->ckpt, &r->rules);
	r->dense_done = mfs_arena_array(&r->ckpt->arena, stages * r->tp, sizeof(bool));
	r->expert_done = mfs_arena_array(&r->ckpt->arena, stages * r->ep * r->etp, sizeof(bool));
	return r->dense_done && r->expert_done ? 0 : mfs_fail_nomem(r->err);
}

static void release(struct mfs_torch_reader *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		mfs_torch_file_release(&r->ranks[i].state);
		free(r->ranks[i].name);
	}
	free(r->ranks);
}

int mfs_ckpt_read_torch(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_torch_reader r = {.ckpt = ckpt, .err = err};
	int rc = list_ranks(&r);

	if (!rc)
		rc = read_layout(&r);
	if (!rc)
		rc = assign_ranks(&r);
	if (!rc)
		rc = check_grid(&r);
	if (!rc)
		rc = open_stages(&r);
	if (!rc)
		rc = number_layers(&r);
	if (!rc && ckpt->what & MFS_CKPT_COMMON)
		rc = keep_state(&r);
	if (!rc && ckpt->what & MFS_CKPT_OPTIMIZER)
		rc = prepare_optimizer(&r);
	if (!rc)
		rc = read_ranks(&r);
	if (!rc && ckpt->what & MFS_CKPT_COMMON)
		rc = note_rng(&r);
	if (!rc)
		ckpt->layout = (struct mfs_ckpt_layout){.tp = r.tp,
							.pp = r.pp,
							.ep = r.ep,
							.etp = r.etp,
							.vpp = r.vpp,
							.stage_layers = r.layers};
	release(&r);
	return rc;
}
