/* mfs_repos_learn(): facts of a repository, from what is open of it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/ckpt/ckpt.h"
#include "formats/dataset/rows/rows.h"
#include "formats/model/model.h"
#include "fs/data/data.h"
#include "fs/gateway/repos/facts_i.h"
#include "fs/source/root.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

static void copy_text(char ret[MFS_FACT_TEXT], const char *text)
{
	snprintf(ret, MFS_FACT_TEXT, "%s", text ? text : "");
}

/* ---- files ---- */

static void count_files(const struct mfs_fileset *files, struct mfs_facts *f)
{
	f->source_files += mfs_fileset_count(files);
	for (uint32_t i = 0; i < mfs_fileset_count(files); i++)
		f->source_bytes += mfs_fileset_size(files, i);
}

static uint64_t count_view(const struct mfs_view *view)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < view->count; i++)
		bytes += mfs_vfile_size(view->files[i].data);
	return bytes;
}

static bool has_tokenizer(const struct mfs_view *view)
{
	static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
					    "tekken.json"};

	for (uint32_t i = 0; i < view->count; i++)
		for (size_t k = 0; k < MFS_ARRAY_SIZE(names); k++)
			if (!strcmp(view->files[i].name, names[k]))
				return true;
	return false;
}

/* ---- views ---- */

/* Those that are possible; what few have is named where it is. */
static void list_views(const struct mfs_views *v, struct mfs_facts *f)
{
	for (unsigned i = 0; i < v->table->count; i++) {
		const struct mfs_view_kind *kind = v->table->kinds[i];

		if (kind->of & v->of && !v->why_not[i])
			f->views[f->view_count++].kind = kind;
	}
}

/* Views of a model alone: others take as long as their tokens or optimizer do. */
static bool is_measured_by_opening(const struct mfs_view_kind *kind)
{
	return kind->of == MFS_VIEW_OF_MODEL && !kind->spec;
}

static void measure(struct mfs_views *v, struct mfs_view_fact *f)
{
	struct mfs_held *held;
	struct mfs_view *view;
	struct mfs_error err;

	if (mfs_views_hold(v, f->kind->name, &held, &view, &err))
		return; /* its size stays unknown; who asks for it learns why */
	f->bytes = count_view(view);
	f->files = view->count;
	f->is_measured = true;
	mfs_keeper_drop(held);
}

static void measure_views(const struct mfs_revision *r, int64_t until_ns, struct mfs_facts *f)
{
	for (unsigned i = 0; i < f->view_count; i++) {
		struct mfs_view_fact *view = &f->views[i];

		if (!strcmp(view->kind->name, r->view_name)) {
			view->bytes = f->bytes;
			view->files = r->view->count;
			view->is_measured = true;
		} else if (!view->is_measured && is_measured_by_opening(view->kind) &&
			   mfs_now_ns() < until_ns) {
			measure(r->views, view);
		}
	}
}

/* The optimizer's reader says whether there is one. */
static void look_for_optimizer(const struct mfs_revision *r, int64_t until_ns, struct mfs_facts *f)
{
	struct mfs_held *held;
	struct mfs_error err;
	bool has = false;

	if (!f->tp)
		f->optimizer = MFS_FACT_NO; /* an HF directory */
	if (f->optimizer != MFS_FACT_UNKNOWN || r->shared->options->no_optim ||
	    mfs_now_ns() >= until_ns || mfs_iteration_hold_ckpt(r->of, true, &held, &err))
		return;
	for (int state = MFS_STATE_MAIN; state < MFS_STATE_COUNT; state++)
		has |= mfs_ckpt_has_state(mfs_held_object(held), (enum mfs_state)state);
	f->optimizer = has ? MFS_FACT_YES : MFS_FACT_NO;
	mfs_keeper_drop(held);
}

/* ---- what it is ---- */

static void describe_args(const struct mfs_megatron_args *a, struct mfs_facts *f)
{
	f->layers = a->num_layers;
	f->hidden = a->hidden_size;
	f->heads = a->num_attention_heads;
	f->experts = a->num_experts;
	f->experts_used = a->moe_router_topk;
	f->context = a->max_position_embeddings;
}

static void describe_model(const struct mfs_revision *r, struct mfs_facts *f)
{
	const struct mfs_model *m = r->view->model;
	const struct mfs_ckpt *ckpt = r->view->ckpt;

	copy_text(f->format, mfs_iteration_format(r->of));
	f->saved_ns = mfs_iteration_mtime(r->of);
	if (ckpt) {
		const struct mfs_ckpt_layout *l = mfs_ckpt_layout(ckpt);

		describe_args(mfs_ckpt_args(ckpt), f);
		count_files(mfs_ckpt_files(ckpt), f);
		if (!mfs_ckpt_format(ckpt)->is_hf) {
			f->tp = l->tp;
			f->pp = l->pp;
			f->vpp = l->vpp;
			f->ep = l->ep;
			f->etp = l->etp;
		}
	}
	if (!m)
		return;
	copy_text(f->family, mfs_model_family(m));
	copy_text(f->architecture, mfs_model_architecture(m));
	f->parameters = m->parameters;
	f->dtype = mfs_dtype_torch(m->dtype);
	f->vocabulary = m->vocab.rows;
	f->has_tokenizer = has_tokenizer(r->view);
}

static void describe_dataset(const struct mfs_revision *r, const struct mfs_dataset *d,
			     struct mfs_facts *f)
{
	const struct mfs_rows *rows = mfs_dataset_rows(d);
	uint32_t count;
	struct mfs_fileset *const *sets = mfs_dataset_sets(d, &count);

	copy_text(f->format, mfs_dataset_indexed(d) ? "indexed" : rows ? "arrow" : "blend");
	f->saved_ns = r->view->mtime_ns;
	f->is_blend = !rows;
	for (uint32_t i = 0; i < count; i++)
		count_files(sets[i], f);
	if (!rows)
		return;
	f->rows = rows->rows;
	f->tokens = rows->tokens;
	f->dtype = mfs_dtype_torch(rows->dtype);
}

/* What was noted of the same commit stays: its views need not be opened again. */
static void learn(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		  const struct mfs_revision *r, int64_t until_ns, struct mfs_facts *f)
{
	const struct mfs_dataset *d = mfs_revision_dataset(r);

	if (!mfs_repos_facts(repos, kind, name, f) || strcmp(f->commit, r->commit) != 0) {
		*f = (struct mfs_facts){.bytes = count_view(r->view)};
		memcpy(f->commit, r->commit, sizeof(f->commit));
		copy_text(f->iteration, r->iteration);
		list_views(r->views, f);
		if (r->of)
			describe_model(r, f);
		else if (d)
			describe_dataset(r, d, f);
	}
	measure_views(r, until_ns, f);
	if (r->of)
		look_for_optimizer(r, until_ns, f);
	mfs_facts_note(repos, kind, name, f);
}

/* The default view cannot be shown, but the newest iteration may have others. */
static void learn_others(struct mfs_repos *repos, const char *name, struct mfs_facts *f)
{
	const struct mfs_root_snapshot *s;
	struct mfs_shared_root *shared;

	if (mfs_facts_hold_open(repos, name, &shared))
		return;
	s = mfs_root_snapshot(shared->root);
	if (s->latest && !mfs_iteration_reason(s->latest)) {
		list_views(mfs_iteration_views(s->latest), f);
		copy_text(f->format, mfs_iteration_format(s->latest));
		copy_text(f->iteration, mfs_iteration_name(s->latest));
		f->saved_ns = mfs_iteration_mtime(s->latest);
	}
	mfs_roots_drop(repos->roots, shared);
}

int mfs_repos_learn(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		    int64_t until_ns, struct mfs_facts *ret, enum mfs_absent_kind *ret_absent,
		    struct mfs_error *err)
{
	struct mfs_revision r;
	bool lasts = false;
	int rc;

	*err->msg = '\0';
	rc = mfs_repos_hold(repos, kind, name, "main", &r, ret_absent, err);
	if (!rc) {
		learn(repos, kind, name, &r, until_ns, ret);
		mfs_revision_drop(&r);
		return 0;
	}
	*ret = (struct mfs_facts){0};
	snprintf(ret->why, sizeof(ret->why), "%s", err->msg);
	if ((rc == -ENOENT && *ret_absent != MFS_ABSENT_NONE) || mfs_keeper_lasts(rc))
		lasts = mfs_repos_is_open(repos, kind, name);
	if (lasts)
		learn_others(repos, name, ret);
	if (lasts)
		mfs_facts_note(repos, kind, name, ret);
	return rc;
}
