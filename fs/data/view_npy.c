/* A dataset as numpy's arrays: tokens.npy, offsets.npy, documents.npy, and one for each column of
 * the rows. */
#include <stdio.h>

#include "formats/dataset/files/rows_files.h"
#include "fs/data/data_i.h"
#include "fs/view/build.h"

static int add_array(struct mfs_view *v, const char *name, struct mfs_vfile *f,
		     struct mfs_error *err)
{
	char file[256];

	snprintf(file, sizeof(file), "%s.npy", name);
	return mfs_view_add(v, file, f, err);
}

static int build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *view,
		 struct mfs_error *err)
{
	const struct mfs_rows *rows = d->rows;
	struct mfs_view *v = &view->public;
	struct mfs_vfile *f;
	int rc = mfs_npy_tokens(rows, &f, err);

	(void)spec;
	if (!rc)
		rc = add_array(v, "tokens", f, err);
	if (!rc)
		rc = mfs_npy_offsets(rows, &f, err);
	if (!rc)
		rc = add_array(v, "offsets", f, err);
	if (!rc && d->indexed) {
		rc = mfs_npy_documents(d->indexed, &f, err);
		if (!rc)
			rc = add_array(v, "documents", f, err);
	}
	for (size_t c = 0; c < rows->column_count && !rc; c++) {
		rc = mfs_npy_column(rows, c, &f, err);
		if (!rc)
			rc = add_array(v, rows->columns[c].name, f, err);
	}
	return rc;
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_npy = {
	.name = "npy",
	.help = "numpy's arrays",
	.of = MFS_VIEW_OF_ROWS,
	.open = open_view,
};
