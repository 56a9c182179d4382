/*
 * What is opened of an iteration: its checkpoint twice (the model alone; with state and optimizer, for
 * Megatron views) and the views that somebody has asked for. Each is opened on first use, once, under a
 * lock of its own: opening one holds up nobody who uses another.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt.h"
#include "formats/megatron/optim.h"
#include "formats/model/hf_ckpt.h"
#include "fs/iteration.h"
#include "fs/root.h"

#define MEGATRON "megatron/"

struct mfs_open_view {
	char *name;
	pthread_mutex_t opening; /* what follows */
	struct mfs_view *view;
	struct mfs_error error; /* code 0: none */
	struct mfs_open_view *next;
};

static void init_ckpt(struct mfs_open_ckpt *c)
{
	pthread_mutex_init(&c->opening, NULL);
}

static void release_ckpt(struct mfs_open_ckpt *c)
{
	mfs_ckpt_free(c->ckpt);
	pthread_mutex_destroy(&c->opening);
}

void mfs_iteration_init_open(struct mfs_iteration *it)
{
	pthread_mutex_init(&it->lock, NULL);
	pthread_mutex_init(&it->listing, NULL);
	init_ckpt(&it->model);
	init_ckpt(&it->full);
}

static void free_view(struct mfs_open_view *v)
{
	mfs_view_free(v->view);
	pthread_mutex_destroy(&v->opening);
	free(v->name);
	free(v);
}

/* Views before what they are made of. */
void mfs_iteration_release_open(struct mfs_iteration *it)
{
	while (it->views) {
		struct mfs_open_view *v = it->views;

		it->views = v->next;
		free_view(v);
	}
	release_ckpt(&it->full);
	release_ckpt(&it->model);
	mfs_arena_release(&it->arena);
	pthread_mutex_destroy(&it->listing);
	pthread_mutex_destroy(&it->lock);
}

void mfs_iteration_drop_check(struct mfs_iteration *it)
{
	pthread_mutex_lock(&it->lock);
	if (!it->claimed) {
		mfs_ckpt_free(it->model.ckpt);
		it->model.ckpt = NULL;
	}
	pthread_mutex_unlock(&it->lock);
}

void mfs_iteration_let_go(struct mfs_iteration *it)
{
	pthread_mutex_lock(&it->lock);
	if (it->model.ckpt)
		mfs_fileset_let_go(mfs_ckpt_files(it->model.ckpt));
	if (it->full.ckpt)
		mfs_fileset_let_go(mfs_ckpt_files(it->full.ckpt));
	pthread_mutex_unlock(&it->lock);
}

/* ---- errors that stay ---- */

static int keep_error(const struct mfs_error *kept, struct mfs_error *err)
{
	if (err)
		*err = *kept;
	return kept->code;
}

/* What the files are like stays so; memory may be there and a device answer the next time. An error
 * record may hold what a callee met and got over: only a call that failed is asked about. */
static int settle(const struct mfs_error *why, struct mfs_error *kept, struct mfs_error *err)
{
	if (why->code == -EINVAL || why->code == -ENOTSUP || why->code == -ENODATA)
		*kept = *why;
	return keep_error(why, err);
}

/* ---- checkpoints ---- */

static void publish_ckpt(struct mfs_iteration *it, struct mfs_open_ckpt *c, struct mfs_ckpt *ckpt)
{
	pthread_mutex_lock(&it->lock);
	c->ckpt = ckpt;
	pthread_mutex_unlock(&it->lock);
}

/* Under the lock of model.opening. */
static int open_model(struct mfs_iteration *it, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt = NULL;
	struct mfs_error why = {0};
	int rc;

	if (it->model.error.code)
		return keep_error(&it->model.error, err);
	rc = it->hf ? mfs_hf_ckpt_open(it->path, it->options->arch, 0, &ckpt, &why)
		    : mfs_ckpt_open(it->path, 0, &ckpt, &why);
	if (rc)
		return settle(&why, &it->model.error, err);
	publish_ckpt(it, &it->model, ckpt);
	return 0;
}

int mfs_iteration_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	int rc = 0;

	if (it->reason)
		return mfs_fail(err, -ENODATA, "%s %s: %s", it->name,
				it->hf ? "cannot be shown" : "is incomplete", it->reason);
	pthread_mutex_lock(&it->lock);
	it->claimed = true; /* from now on nobody but the end frees it */
	pthread_mutex_unlock(&it->lock);
	pthread_mutex_lock(&it->model.opening);
	if (!it->model.ckpt)
		rc = open_model(it, err);
	if (!rc)
		*ret = it->model.ckpt;
	pthread_mutex_unlock(&it->model.opening);
	return rc;
}

/* What is opened now must be of the save that was opened before: the two are shown as one. */
static int check_same_save(struct mfs_ckpt *model, struct mfs_error *err)
{
	struct mfs_fileset *files = mfs_ckpt_files(model);
	int rc = 0;

	for (uint32_t i = 0; i < mfs_fileset_count(files) && !rc; i++)
		rc = mfs_fileset_check(files, i, err);
	return rc;
}

/* Under the lock of full.opening. */
static int open_full(struct mfs_iteration *it, struct mfs_ckpt *model, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt = NULL;
	struct mfs_error why = {0};
	int rc;

	if (it->full.error.code)
		return keep_error(&it->full.error, err);
	rc = it->options->no_optim ? mfs_ckpt_open(it->path, MFS_CKPT_STATE, &ckpt, &why)
				   : mfs_optim_open(it->path, &ckpt, &why);
	if (rc)
		return settle(&why, &it->full.error, err);
	rc = check_same_save(model, err);
	if (rc) {
		mfs_ckpt_free(ckpt);
		return rc;
	}
	publish_ckpt(it, &it->full, ckpt);
	return 0;
}

int mfs_iteration_full_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct mfs_ckpt *model;
	int rc = mfs_iteration_ckpt(it, &model, err);

	if (rc)
		return rc;
	if (it->hf) {
		*ret = model; /* there is nothing more to it */
		return 0;
	}
	pthread_mutex_lock(&it->full.opening);
	if (!it->full.ckpt)
		rc = open_full(it, model, err);
	if (!rc)
		*ret = it->full.ckpt;
	pthread_mutex_unlock(&it->full.opening);
	return rc;
}

/* ---- views ---- */

static struct mfs_open_view *new_view(const char *name)
{
	struct mfs_open_view *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->name = strdup(name);
	if (!v->name) {
		free(v);
		return NULL;
	}
	pthread_mutex_init(&v->opening, NULL);
	return v;
}

/* The place of a view, made on first use; NULL: no memory. */
static struct mfs_open_view *place_of(struct mfs_iteration *it, const char *name)
{
	struct mfs_open_view *v;

	pthread_mutex_lock(&it->lock);
	for (v = it->views; v && strcmp(v->name, name);)
		v = v->next;
	if (!v && (v = new_view(name))) {
		v->next = it->views;
		it->views = v;
	}
	pthread_mutex_unlock(&it->lock);
	return v;
}

/* Under the lock of the view. */
static int open_view(struct mfs_iteration *it, struct mfs_open_view *v, struct mfs_ckpt *ckpt,
		     struct mfs_error *err)
{
	struct mfs_error why = {0};
	int rc;

	if (v->error.code)
		return keep_error(&v->error, err);
	if (!strcmp(v->name, "hf"))
		rc = mfs_view_hf(ckpt, it->options, &v->view, &why);
	else
		rc = mfs_view_megatron(ckpt, v->name + strlen(MEGATRON), it->number, it->options,
				       &v->view, &why);
	return rc ? settle(&why, &v->error, err) : 0;
}

/* The checkpoint that a view is made of. A name that can be none is found out before any optimizer is. */
static int ckpt_for(struct mfs_iteration *it, const char *name, struct mfs_ckpt **ret,
		    struct mfs_error *err)
{
	int rc;

	if (!strcmp(name, "hf"))
		return mfs_iteration_ckpt(it, ret, err);
	rc = mfs_iteration_check_view(it, name, err);
	return rc ? rc : mfs_iteration_full_ckpt(it, ret, err);
}

int mfs_iteration_view(struct mfs_iteration *it, const char *name, struct mfs_view **ret,
		       struct mfs_error *err)
{
	struct mfs_open_view *v;
	struct mfs_ckpt *ckpt;
	int rc = ckpt_for(it, name, &ckpt, err);

	if (rc)
		return rc;
	v = place_of(it, name);
	if (!v)
		return mfs_fail_nomem(err);
	pthread_mutex_lock(&v->opening);
	if (!v->view)
		rc = open_view(it, v, ckpt, err);
	if (!rc)
		*ret = v->view;
	pthread_mutex_unlock(&v->opening);
	return rc;
}

int mfs_iteration_check_view(struct mfs_iteration *it, const char *name, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc;

	if (!strcmp(name, "hf"))
		return 0;
	if (strncmp(name, MEGATRON, strlen(MEGATRON)))
		return mfs_fail(err, -ENOENT, "there is no view '%s'", name);
	rc = mfs_iteration_ckpt(it, &ckpt, err);
	return rc ? rc : mfs_view_megatron_check(ckpt, name + strlen(MEGATRON), err);
}

int mfs_iteration_layouts(struct mfs_iteration *it, const char *const **ret, uint32_t *ret_count,
			  struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_iteration_ckpt(it, &ckpt, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&it->listing);
	if (!it->layouts)
		rc = mfs_view_megatron_layouts(ckpt, &it->arena, &it->layouts, &it->layout_count,
					       err);
	if (!rc) {
		*ret = it->layouts;
		*ret_count = it->layout_count;
	}
	pthread_mutex_unlock(&it->listing);
	return rc;
}
