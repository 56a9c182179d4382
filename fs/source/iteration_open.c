/*
 * What is opened of an iteration: its checkpoint twice (the model alone; with state and optimizer, for
 * Megatron views) and the views that somebody has asked for, which hold the checkpoint that they are made of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/open.h"
#include "formats/model/hf_ckpt.h"
#include "formats/optim/read/open.h"
#include "fs/source/iteration.h"
#include "fs/source/root.h"

#define MEGATRON "megatron/"
#define MODEL	 "model"
#define FULL	 "full"

/* ---- checkpoints ---- */

/* What is shown of an iteration is one save: the one that was looked at. */
static int check_same_save(struct mfs_iteration *it, struct mfs_ckpt *model, struct mfs_error *err)
{
	int64_t newest;

	if (mfs_iteration_content(mfs_ckpt_files(model), &newest) == it->content)
		return 0;
	return mfs_fail(err, -ESTALE, "%s: its files were replaced after it was looked at",
			it->path);
}

static int open_model(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	int rc = it->hf ? mfs_hf_ckpt_open(it->path, it->options->arch, 0, ret, err)
			: mfs_ckpt_open(it->path, 0, ret, err);

	if (rc)
		return rc;
	rc = check_same_save(it, *ret, err);
	if (rc)
		mfs_ckpt_free(*ret);
	return rc;
}

static int check_files(struct mfs_fileset *files, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < mfs_fileset_count(files) && !rc; i++)
		rc = mfs_fileset_check(files, i, err);
	return rc;
}

/* What stands beside the model's files must be of their save, too. */
static int check_rest(const struct mfs_iteration *it, const struct mfs_ckpt *full,
		      struct mfs_error *err)
{
	struct mfs_save now;
	uint32_t same, other;

	if (mfs_save_note(mfs_ckpt_files((struct mfs_ckpt *)full), &now))
		return mfs_fail_nomem(err);
	mfs_save_compare(&it->save, &now, &same, &other);
	mfs_save_release(&now);
	if (!other)
		return 0;
	return mfs_fail(err, -ESTALE, "%s: %u of its files have changed since it was looked at",
			it->path, other);
}

/* The model's files are looked at last: both are of the save that the iteration stands for. */
static int open_full(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct mfs_held *model;
	int rc = mfs_iteration_hold_ckpt(it, false, &model, err);

	if (rc)
		return rc;
	rc = it->options->no_optim ? mfs_ckpt_open(it->path, MFS_CKPT_COMMON, ret, err)
				   : mfs_optim_open(it->path, ret, err);
	if (!rc) {
		rc = check_rest(it, *ret, err);
		if (!rc)
			rc = check_files(mfs_ckpt_files(mfs_held_object(model)), err);
		if (rc)
			mfs_ckpt_free(*ret);
	}
	mfs_keeper_drop(model);
	return rc;
}

static int ckpt_open(void *owner, const char *name, void **ret, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = strcmp(name, FULL) ? open_model(owner, &ckpt, err) : open_full(owner, &ckpt, err);

	if (!rc)
		*ret = ckpt;
	return rc;
}

static void ckpt_close(void *object)
{
	mfs_ckpt_free(object);
}

static const struct mfs_open_kind ckpts = {ckpt_open, ckpt_close};

/* An HF directory has nothing more than its model. */
int mfs_iteration_hold_ckpt(struct mfs_iteration *it, bool full, struct mfs_held **ret,
			    struct mfs_error *err)
{
	if (it->reason)
		return mfs_fail(err, -ENODATA, "%s %s: %s", it->name,
				it->hf ? "cannot be shown" : "is incomplete", it->reason);
	return mfs_keeper_hold(&it->ckpts, full && !it->hf ? FULL : MODEL, ret, err);
}

static int ckpt_for_good(struct mfs_iteration *it, bool full, struct mfs_ckpt **ret,
			 struct mfs_error *err)
{
	struct mfs_held *held;
	int rc = mfs_iteration_hold_ckpt(it, full, &held, err);

	if (!rc)
		*ret = mfs_held_object(held);
	return rc;
}

int mfs_iteration_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	return ckpt_for_good(it, false, ret, err);
}

int mfs_iteration_full_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	return ckpt_for_good(it, true, ret, err);
}

void mfs_iteration_end_check(struct mfs_iteration *it, bool keep)
{
	struct mfs_ckpt *ckpt = it->checked;

	it->checked = NULL;
	if (ckpt && !(keep && mfs_keeper_offer(&it->ckpts, MODEL, ckpt)))
		mfs_ckpt_free(ckpt);
}

/* ---- views ---- */

struct open_view {
	struct mfs_view *view;
	struct mfs_held *ckpt; /* that it is made of; NULL: of none */
};

/* A name that can be none is found out before any optimizer is. */
static int hold_ckpt_for(struct mfs_iteration *it, const char *name, struct mfs_held **ret,
			 struct mfs_error *err)
{
	const bool full = strcmp(name, "hf") != 0;
	int rc = full ? mfs_iteration_check_view(it, name, err) : 0;

	return rc ? rc : mfs_iteration_hold_ckpt(it, full, ret, err);
}

static int build_view(struct mfs_iteration *it, const char *name, struct mfs_ckpt *ckpt,
		      struct mfs_view **ret, struct mfs_error *err)
{
	if (!strcmp(name, "hf"))
		return mfs_view_hf(ckpt, it->options, ret, err);
	return mfs_view_megatron(ckpt, name + strlen(MEGATRON), it->number, it->options, ret, err);
}

/* What makes a save whole is the first to go when it is saved again or deleted. If it is still there, so was all else
 * that the view has read: also what is no part of the checkpoint, its tokenizer. By path: a directory that was moved away
 * has it, too. */
static int check_whole(const struct mfs_iteration *it, struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_fileset *files = mfs_ckpt_files(ckpt), *now;
	uint32_t again;
	int rc;

	if (it->hf)
		return 0; /* it is looked at once */
	rc = mfs_fileset_new(it->path, &now, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < mfs_fileset_count(files) && !rc; i++) {
		const char *name = mfs_fileset_name(files, i);

		if (strcmp(name, ".metadata") && strcmp(name, "metadata.json"))
			continue;
		rc = mfs_fileset_add(now, name, &again, err);
		if (!rc && (mfs_fileset_size(now, again) != mfs_fileset_size(files, i) ||
			    mfs_fileset_mtime(now, again) != mfs_fileset_mtime(files, i)))
			rc = mfs_fail(err, -ESTALE, "%s/%s: replaced while a view was made",
				      it->path, name);
	}
	mfs_fileset_free(now);
	return rc;
}

static int view_open(void *owner, const char *name, void **ret, struct mfs_error *err)
{
	struct mfs_iteration *it = owner;
	struct open_view *v = calloc(1, sizeof(*v));
	int rc;

	if (!v)
		return mfs_fail_nomem(err);
	if (!strcmp(name, MFS_WHY_NOT_VIEW)) {
		rc = mfs_why_not_view(&it->why_not, it->mtime_ns, &v->view, err);
	} else {
		rc = hold_ckpt_for(it, name, &v->ckpt, err);
		if (!rc)
			rc = build_view(it, name, mfs_held_object(v->ckpt), &v->view, err);
		if (!rc) {
			rc = check_whole(it, mfs_held_object(v->ckpt), err);
			if (rc)
				mfs_view_free(v->view);
		}
	}
	if (rc) {
		mfs_keeper_drop(v->ckpt);
		free(v);
		return rc;
	}
	*ret = v;
	return 0;
}

static void view_close(void *object)
{
	struct open_view *v = object;

	mfs_view_free(v->view);
	mfs_keeper_drop(v->ckpt);
	free(v);
}

static const struct mfs_open_kind views = {view_open, view_close};

int mfs_iteration_hold_view(struct mfs_iteration *it, const char *name, struct mfs_held **ret,
			    struct mfs_view **ret_view, struct mfs_error *err)
{
	const struct open_view *v;
	int rc;

	if (it->reason)
		return mfs_iteration_hold_ckpt(it, false, ret, err);
	rc = mfs_keeper_hold(&it->views, name, ret, err);
	if (rc)
		return rc;
	v = mfs_held_object(*ret);
	*ret_view = v->view;
	return 0;
}

int mfs_iteration_view(struct mfs_iteration *it, const char *name, struct mfs_view **ret,
		       struct mfs_error *err)
{
	struct mfs_held *held;

	return mfs_iteration_hold_view(it, name, &held, ret, err);
}

/* ---- all of it ---- */

void mfs_iteration_init_open(struct mfs_iteration *it, struct mfs_keeper *keeper)
{
	mfs_open_set_init(&it->ckpts, keeper, &ckpts, it);
	mfs_open_set_init(&it->views, keeper, &views, it);
	pthread_mutex_init(&it->listing, NULL);
}

/* Views before what they are made of. */
void mfs_iteration_release_open(struct mfs_iteration *it)
{
	mfs_open_set_release(&it->views);
	mfs_open_set_release(&it->ckpts);
	mfs_iteration_end_check(it, false);
	mfs_arena_release(&it->arena);
	pthread_mutex_destroy(&it->listing);
}

void mfs_iteration_let_go(struct mfs_iteration *it)
{
	mfs_open_set_let_go(&it->views);
	mfs_open_set_let_go(&it->ckpts);
}

void mfs_iteration_close_idle(struct mfs_iteration *it)
{
	mfs_open_set_close_idle(&it->views);
	mfs_open_set_close_idle(&it->ckpts);
}

/* ---- names ---- */

int mfs_iteration_check_view(struct mfs_iteration *it, const char *name, struct mfs_error *err)
{
	struct mfs_held *held;
	int rc;

	if (!strcmp(name, "hf"))
		return 0;
	if (strncmp(name, MEGATRON, strlen(MEGATRON)))
		return mfs_fail(err, -ENOENT, "there is no view '%s'", name);
	rc = mfs_iteration_hold_ckpt(it, false, &held, err);
	if (rc)
		return rc == -ENOENT ? -EIO : rc; /* a file's, not the view's */
	rc = mfs_view_megatron_check(mfs_held_object(held), name + strlen(MEGATRON), err);
	mfs_keeper_drop(held);
	return rc;
}

/* Under the lock of the listing. */
static int list_layouts(struct mfs_iteration *it, struct mfs_error *err)
{
	struct mfs_held *held;
	int rc = mfs_iteration_hold_ckpt(it, false, &held, err);

	if (rc)
		return rc;
	rc = mfs_view_megatron_layouts(mfs_held_object(held), &it->arena, &it->layouts,
				       &it->layout_count, err);
	mfs_keeper_drop(held);
	return rc;
}

int mfs_iteration_layouts(struct mfs_iteration *it, const char *const **ret, uint32_t *ret_count,
			  struct mfs_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&it->listing);
	if (!it->layouts)
		rc = list_layouts(it, err);
	if (!rc) {
		*ret = it->layouts;
		*ret_count = it->layout_count;
	}
	pthread_mutex_unlock(&it->listing);
	return rc;
}
