/* A dataset as Parquet files: data-00000-of-0000N.parquet, or with -o split= train-..., validation-..., test-... */
#include <stdio.h>
#include <stdlib.h>

#include "formats/dataset/files/parquet_image.h"
#include "fs/data/data_i.h"
#include "fs/data/splits.h"
#include "fs/view/build.h"

struct parquet_view {
	struct mfs_view public;
	struct mfs_data_splits splits;
	struct mfs_parquet_image *files[MFS_SPLITS];
};

static int add_files(struct mfs_view *v, const char *name, struct mfs_parquet_image *files,
		     struct mfs_error *err)
{
	const uint32_t count = mfs_parquet_image_files(files);
	char file[64];
	struct mfs_vfile *f;
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		snprintf(file, sizeof(file), "%s-%05u-of-%05u.parquet", name, i, count);
		rc = mfs_parquet_image_file(files, i, &f, err);
		if (!rc)
			rc = mfs_view_add(v, file, f, err);
	}
	return rc;
}

static int build(struct mfs_dataset *d, struct parquet_view *v, struct mfs_error *err)
{
	const struct mfs_parquet_config config = {0};
	int rc = mfs_data_splits_open(d, &v->splits, err);

	for (unsigned i = 0; i < v->splits.count && !rc; i++) {
		rc = mfs_parquet_image_new(v->splits.list[i].rows, &config, &v->files[i], err);
		if (!rc)
			rc = add_files(&v->public, v->splits.list[i].name, v->files[i], err);
	}
	return rc;
}

static void release(struct mfs_view *view)
{
	struct parquet_view *v = (struct parquet_view *)view;

	for (unsigned i = 0; i < MFS_SPLITS; i++)
		mfs_parquet_image_free(v->files[i]);
	mfs_data_splits_release(&v->splits);
	free(v);
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	struct mfs_dataset *d = s->dataset;
	struct parquet_view *v = calloc(1, sizeof(*v));

	(void)spec;
	if (!v)
		return mfs_fail_nomem(err);
	v->public.release = release;
	return mfs_data_end_view(&v->public, d->rows, build(d, v, err), ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_parquet = {
	.name = "parquet",
	.help = "Parquet files",
	.of = MFS_VIEW_OF_ROWS,
	.open = open_view,
};
