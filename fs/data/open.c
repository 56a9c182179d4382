/* What views of a dataset are made of, and what their builders have in common. */
#include "fs/data/data_i.h"
#include "fs/view/build.h"

/* A dataset is open as long as it is there. */
static int hold_origin(void *owner, enum mfs_view_of of, struct mfs_view_origin *ret,
		       struct mfs_held **ret_held, struct mfs_error *err)
{
	(void)of, (void)err;
	*ret = (struct mfs_view_origin){.dataset = owner};
	*ret_held = NULL;
	return 0;
}

const struct mfs_views_owner mfs_dataset_answers = {.hold = hold_origin};

struct mfs_views *mfs_dataset_views(struct mfs_dataset *d)
{
	return &d->views;
}

int mfs_data_end_view(struct mfs_view *v, const struct mfs_rows *rows, int rc,
		      struct mfs_view **ret, struct mfs_error *err)
{
	for (size_t i = 0; rows && i < rows->set_count; i++)
		mfs_view_note_sources(v, rows->sets[i]);
	if (!rc)
		rc = mfs_view_finish(v, err);
	if (rc) {
		mfs_view_free(v);
		return rc;
	}
	*ret = v;
	return 0;
}
