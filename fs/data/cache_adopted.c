/* The indices that descriptions of an earlier run ask for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/index/index_description.h"
#include "fs/data/cache.h"
#include "fs/view/build.h"

/* The dataset that Megatron read at this path; NULL: none of ours. */
static const struct mfs_rows *rows_at(const struct mfs_data *data, const char *path)
{
	const struct mfs_rows *rows = NULL;
	char *full;

	if (mfs_data_path(path, &full, NULL))
		return NULL;
	for (uint32_t i = 0; i < mfs_data_count(data) && !rows; i++) {
		const struct mfs_dataset *d = mfs_data_at(data, i);

		if (d->indexed && d->path && !strcmp(d->path, full))
			rows = d->rows;
	}
	free(full);
	return rows;
}

static int adopt_gpt(struct mfs_cache_builder *b, const struct mfs_index_description *d)
{
	const struct mfs_rows *rows = rows_at(b->d->data, d->members->path);
	const struct mfs_gpt_config config = {.seq_length = d->run.seq_length,
					      .seed = d->run.seed,
					      .samples = d->members->samples,
					      .separate_last_epoch =
						      d->run.rules.separate_last_epoch};
	struct mfs_gpt_dataset **g = &b->view->gpt[b->view->gpt_count];
	struct mfs_splits splits = mfs_splits_whole(d->split);
	uint64_t first, end;
	int rc = 0;

	if (!rows)
		return 0;
	if (d->run.split)
		rc = mfs_splits_parse(d->run.split, &d->run.rules, &splits, b->err);
	if (!rc)
		rc = mfs_splits_range(&splits, d->split, rows->rows, &first, &end, b->err);
	if (!rc)
		rc = mfs_gpt_dataset_new(rows, first, end, &config, g, b->err);
	/* What cannot be any more is not served: the data may have changed since. */
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	b->view->gpt_count++;
	return mfs_cache_add_gpt(b, d->members, d->split, *g);
}

static int adopt_blend(struct mfs_cache_builder *b, const struct mfs_index_description *d)
{
	const struct mfs_index_weights *w = &d->weights;
	struct mfs_blend **blend = &b->view->blends[b->view->blend_count];
	int rc;

	for (size_t i = 0; i < d->count; i++)
		if (!rows_at(b->d->data, d->members[i].path))
			return 0;
	rc = w->lengths ? mfs_blend_new_exhaustive(w->lengths, d->count, blend, b->err)
			: mfs_blend_new_normalized(w->weights, d->count, w->size, blend, b->err);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	b->view->blend_count++;
	return mfs_cache_add_blend(b, d->members, d->count, w, d->split, *blend);
}

static int make_room(struct mfs_cache_view *v, struct mfs_error *err)
{
	struct mfs_gpt_dataset **gpt = reallocarray(v->gpt, v->gpt_count + 1, sizeof(void *));
	struct mfs_blend **blends;

	if (gpt)
		v->gpt = gpt;
	blends = reallocarray(v->blends, v->blend_count + 1, sizeof(void *));
	if (blends)
		v->blends = blends;
	return gpt && blends ? 0 : mfs_fail_nomem(err);
}

static int adopt(void *arg, const struct mfs_index_description *d, struct mfs_error *err)
{
	struct mfs_cache_builder *b = arg;
	int rc = make_room(b->view, err);

	b->run = d->run;
	if (!rc)
		rc = d->blend ? adopt_blend(b, d) : adopt_gpt(b, d);
	return rc;
}

int mfs_cache_add_adopted(struct mfs_cache_builder *b)
{
	const char *dir = b->d->options->tokenizer_id;
	const struct mfs_dataset_rules rules = b->run.rules;
	struct mfs_access_fold access = {0};
	int rc = mfs_cache_descriptions(dir, &rules, adopt, b, &access, b->err);

	mfs_view_note_read(&b->view->public, &access);
	if (!rc && !b->view->public.count)
		rc = mfs_fail(b->err, -ENODATA,
			      "no description in %s is of datasets that are mounted here", dir);
	return rc;
}
