/*
 * Legacy `torch`: one mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt per model-parallel rank
 * (megatron/training/checkpointing.py:get_checkpoint_name).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/ckpt/extra_states.h"
#include "formats/ckpt/read/reader.h"
#include "formats/ckpt/read/torch_i.h"

#define QUANTISED                                                                                  \
	"weights are float8_e4m3fn with scales (--fp8-param-gather): they are shown as the type "  \
	"that they have in computations"

/* Keeps the parameter until r->more has read the rank. */
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
	const char *refused = mfs_name_refused(key);
	bool counts;
	uint32_t storage;
	int rc;

	if (refused)
		return mfs_fail(r->err, -ENOTSUP,
				"%s/%s: '%s' is of %s, and its model is not shown without it",
				r->ckpt->dir, rank->name, key, refused);
	mfs_name_parse(key, &p.name);
	if (!strncmp(p.name.canonical, "mtp.layers.transformer_layer.", 29))
		r->ckpt->args.mtp_model_layer = p.name.mtp_model_layer;
	if (p.name.ignored)
		return mfs_torch_note_extra(r, rank, chunk, key, v);
	p.copy = mfs_torch_is_copy(r, &p.name, chunk);
	counts = mfs_torch_is_wanted(r, rank, &p.name);
	p.wanted = counts && !p.copy;
	if (!counts && !r->more)
		return 0;
	rc = mfs_torch_read_value(r, a, v, &p);
	if (rc) {
		mfs_fail_in(r->err, "%s/%s: tensor '%s'", r->ckpt->dir, rank->name, key);
		return rc;
	}
	r->quantised |= p.scales != 0;
	if (r->more && mfs_name_is_parameter(p.name.canonical, p.dtype))
		rc = note_param(r, &p);
	if (rc || !counts)
		return rc;
	rc = mfs_torch_storage(r, a, &p.t, &storage);
	if (!rc)
		rc = mfs_torch_check_copy(r, rank, &p, storage,
					  mfs_torch_model(r, rank, chunk / r->pp));
	return rc || !p.wanted ? rc : mfs_torch_place(r, rank, &p, MFS_STATE_MODEL, &p.t, storage);
}

/* What a walk through a model chunk's dict carries. */
struct chunk_walk {
	struct mfs_torch_reader *r;
	const struct mfs_torch_rank *rank;
	uint32_t chunk;
	const struct mfs_torch_source *a;
};

static int visit_tensor(void *arg, const char *key, mfs_value v)
{
	const struct chunk_walk *w = arg;

	return read_tensor(w->r, w->rank, w->chunk, key, v, w->a);
}

static int read_chunk(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank, uint32_t chunk,
		      const struct mfs_torch_source *a)
{
	struct chunk_walk w = {.r = r, .rank = rank, .chunk = chunk, .a = a};

	return mfs_torch_each(r, rank, chunk / r->pp, visit_tensor, &w);
}

static int read_rank(struct mfs_torch_reader *r, const struct mfs_torch_rank *rank)
{
	struct mfs_torch_source a = {.state = &rank->state, .file = rank->file};
	int rc = mfs_torch_check_models(r, rank);

	if (rc)
		return rc;
	a.storages = calloc(rank->state.zip.count, sizeof(*a.storages));
	if (!a.storages)
		return mfs_fail_nomem(r->err);
	r->state_bytes = 0;
	for (uint32_t vp = 0; vp < r->vpp && !rc; vp++)
		rc = read_chunk(r, rank, vp * r->pp + rank->pp, &a);
	if (!rc && r->more)
		rc = r->more(r, rank, &a, r->arg);
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
		/* Most ranks are not open yet. One open rank at a time keeps memory small. */
		if (!r->ranks[i].state.doc)
			rc = mfs_torch_open_rank(r, &r->ranks[i]);
		if (!rc)
			rc = read_rank(r, &r->ranks[i]);
		mfs_torch_file_release(&r->ranks[i].state);
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

/* Reads the first rank's state again, since it was closed with the others. */
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

int mfs_torch_read(struct mfs_ckpt *ckpt, mfs_torch_more more, void *arg, struct mfs_error *err)
{
	struct mfs_torch_reader r = {.ckpt = ckpt, .more = more, .arg = arg, .err = err};
	int rc = mfs_torch_find_ranks(&r);

	if (!rc)
		rc = mfs_torch_number_layers(&r);
	if (!rc && ckpt->what & MFS_CKPT_COMMON)
		rc = keep_state(&r);
	if (!rc)
		rc = read_ranks(&r);
	if (!rc && r.quantised && mfs_ckpt_warn(ckpt, QUANTISED))
		rc = mfs_fail_nomem(err);
	if (!rc && ckpt->what & MFS_CKPT_COMMON)
		rc = note_rng(&r);
	if (!rc)
		mfs_ckpt_sort_extras(ckpt);
	if (!rc)
		ckpt->layout = (struct mfs_ckpt_layout){.tp = r.tp,
							.pp = r.pp,
							.ep = r.ep,
							.etp = r.etp,
							.vpp = r.vpp,
							.stage_layers = r.layers};
	mfs_torch_release_ranks(&r);
	return rc;
}

static int read_model(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	return mfs_torch_read(ckpt, NULL, NULL, err);
}

/* Each file has the list in its state dict. */
static mfs_value rng_list(const struct mfs_pickle *doc)
{
	return mfs_value_get(doc, mfs_pickle_root(doc), "rng_state");
}

static const struct mfs_ckpt_format format = {
	.name = "torch", .title = "torch", .rng_list = rng_list};

const struct mfs_ckpt_reader mfs_ckpt_reader_torch = {
	.format = &format,
	.looks_like = mfs_torch_looks_like,
	.read = read_model,
	.add_marks = mfs_torch_add_marks,
	.last = mfs_torch_last,
};
