/* What views of a dataset are made of, and what their builders have in common. */
#include <stdlib.h>

#include "formats/dataset/gpt/samples.h"
#include "fs/data/data_i.h"
#include "fs/data/data_splits.h"
#include "fs/view/build.h"

/* A dataset is open as long as it is there. */
static int hold_origin(void *owner, enum mfs_view_source_kind of, struct mfs_view_origin *ret,
		       struct mfs_held **ret_held, struct mfs_error *err)
{
	(void)of, (void)err;
	*ret = (struct mfs_view_origin){.dataset = owner};
	*ret_held = NULL;
	return 0;
}

const struct mfs_view_table mfs_data_views = {MFS_DATA_VIEWS(MFS_VIEW_COUNT),
					      {MFS_DATA_VIEWS(MFS_VIEW_LIST)}};

const struct mfs_views_owner_ops mfs_dataset_owner_ops = {.hold = hold_origin};

struct mfs_views *mfs_dataset_views(struct mfs_dataset *d)
{
	return &d->views;
}

static void release(struct mfs_view *view)
{
	struct mfs_data_view *v = (struct mfs_data_view *)view;

	for (unsigned i = 0; i < v->text_count; i++)
		mfs_row_text_free(v->texts[i]);
	mfs_rows_free(v->rows);
	mfs_data_splits_release(&v->splits);
	for (int i = 0; i < MFS_SPLITS; i++)
		mfs_samples_free(v->samples[i]);
	free(v);
}

int mfs_data_open_view(const struct mfs_view_origin *s, const char *spec, mfs_data_build *build,
		       struct mfs_view **ret, struct mfs_error *err)
{
	struct mfs_data_view *v = calloc(1, sizeof(*v));
	const struct mfs_rows *rows;
	int rc;

	if (!v)
		return mfs_fail_nomem(err);
	v->public.release = release;
	rc = build(s->dataset, spec, v, err);
	rows = v->rows ? v->rows : s->dataset->rows;
	for (size_t i = 0; rows && i < rows->set_count; i++)
		mfs_view_note_sources(&v->public, rows->sets[i]);
	if (!rc)
		rc = mfs_view_finish(&v->public, err);
	if (rc) {
		mfs_view_free(&v->public);
		return rc;
	}
	*ret = &v->public;
	return 0;
}
