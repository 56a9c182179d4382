/*
 * What is open of an iteration: its checkpoint, once the model alone and once with common state and
 * optimizer for Megatron views; and its views, each of which holds its checkpoint.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/demand.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/hf_ckpt.h"
#include "formats/model/hf_told.h"
#include "formats/model/language.h"
#include "formats/optim/read/optim_open.h"
#include "fs/source/adapter.h"
#include "fs/source/iteration.h"
#include "fs/source/root.h"

#define MODEL "model"
#define FULL  "full"

/* ---- checkpoints ---- */

/* Only files of the save that was looked at may be shown. */
static int check_same_save(struct mfs_iteration *it, struct mfs_ckpt *model, struct mfs_error *err)
{
	int64_t newest;

	if (mfs_iteration_content(mfs_ckpt_files(model), &newest) == it->content)
		return 0;
	return mfs_fail(err, -ESTALE, "%s: its files were replaced after it was looked at",
			it->path);
}

/* If -o verify= was given, bytes are proved before they are used. */
static int finish_ckpt(const struct mfs_iteration *it, struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	int rc = mfs_ckpt_demand(ckpt, it->options->verify, err);

	if (!rc)
		rc = mfs_adapter_attach(ckpt, it->options, err);
	if (rc)
		mfs_ckpt_free(ckpt);
	return rc;
}

static unsigned language_of(const struct mfs_iteration *it)
{
	return it->options->language ? MFS_CKPT_LANGUAGE : 0;
}

int mfs_iteration_read_model(const struct mfs_iteration *it, struct mfs_ckpt **ret,
			     struct mfs_error *err)
{
	const struct mfs_ckpt_told told = mfs_hf_told(it->options->ref, it->options->arch);
	const unsigned what = language_of(it);
	int rc = it->hf ? mfs_hf_ckpt_open(it->path, it->options->arch, what, ret, err)
			: mfs_ckpt_open_part(it->path, what, &mfs_language_parts, &told, ret, err);

	return rc ? rc : finish_ckpt(it, *ret, err);
}

static int open_model(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	int rc = mfs_iteration_read_model(it, ret, err);

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

/* The files other than the model's must be of the same save. */
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

/* The model's files are checked last; then model and optimizer are of the save that was looked
 * at. */
static int open_full(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	const struct mfs_ckpt_told told = mfs_hf_told(it->options->ref, it->options->arch);
	struct mfs_held *model;
	int rc = mfs_iteration_hold_ckpt(it, false, &model, err);

	if (rc)
		return rc;
	rc = it->options->no_optim ? mfs_ckpt_open_part(it->path, MFS_CKPT_COMMON | language_of(it),
							&mfs_language_parts, &told, ret, err)
				   : mfs_optim_open_told(it->path, &told, ret, err);
	if (!rc)
		rc = finish_ckpt(it, *ret, err);
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

static const struct mfs_open_ops ckpts = {ckpt_open, ckpt_close};

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

static int hold_origin(void *owner, enum mfs_view_source_kind of, struct mfs_view_origin *ret,
		       struct mfs_held **ret_held, struct mfs_error *err)
{
	struct mfs_iteration *it = owner;
	int rc = mfs_iteration_hold_ckpt(it, of == MFS_VIEW_OF_FULL, ret_held, err);

	if (!rc)
		*ret = (struct mfs_view_origin){.options = it->options,
						.ckpt = mfs_held_object(*ret_held),
						.number = it->number};
	return rc;
}

/* The file that makes a save whole is the first to go when the iteration is saved again or deleted.
 * If it is still there, all other files that the view has read were there too, such as the
 * tokenizer. It is looked up by its path, since a directory that was moved away still has it. */
static int check_whole(void *owner, const struct mfs_view_origin *s, struct mfs_error *err)
{
	const struct mfs_iteration *it = owner;
	struct mfs_fileset *files = mfs_ckpt_files(s->ckpt), *now;
	uint32_t again;
	int rc;

	if (it->hf)
		return 0; /* it is looked at once */
	rc = mfs_fileset_new(it->path, &now, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < mfs_fileset_count(files) && !rc; i++) {
		const char *name = mfs_fileset_name(files, i);

		if (!mfs_str_ends(name, ".metadata") && !mfs_str_ends(name, "metadata.json"))
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

static const struct mfs_views_owner_ops views = {hold_origin, check_whole};

/* ---- all of it ---- */

void mfs_iteration_init_open(struct mfs_iteration *it, struct mfs_keeper *keeper)
{
	mfs_open_set_init(&it->ckpts, keeper, &ckpts, it);
	mfs_views_init(&it->views, &views, it, &mfs_ckpt_views, MFS_VIEW_OF_CKPT, keeper);
}

/* Views are closed before the checkpoints that they hold. */
void mfs_iteration_release_open(struct mfs_iteration *it)
{
	mfs_views_release(&it->views);
	mfs_open_set_release(&it->ckpts);
	mfs_iteration_end_check(it, false);
}

void mfs_iteration_let_go(struct mfs_iteration *it)
{
	mfs_open_set_let_go(&it->views.open);
	mfs_open_set_let_go(&it->ckpts);
}

void mfs_iteration_close_idle(struct mfs_iteration *it)
{
	mfs_open_set_close_idle(&it->views.open);
	mfs_open_set_close_idle(&it->ckpts);
}
