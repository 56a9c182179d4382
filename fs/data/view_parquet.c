/* A dataset as Parquet files: data-00000-of-0000N.parquet, or with -o split= train-...,
 * validation-..., test-... */
#include <stdio.h>

#include "formats/dataset/files/parquet_image.h"
#include "fs/data/data_i.h"
#include "fs/data/data_splits.h"
#include "fs/view/build.h"

static void free_image(void *image)
{
	mfs_parquet_image_free(image);
}

/* The first file keeps what all of them read from. */
static int add_files(struct mfs_view *v, const char *name, struct mfs_parquet_image *image,
		     struct mfs_error *err)
{
	const uint32_t count = mfs_parquet_image_files(image);
	char file[64];
	struct mfs_vfile *f;
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		snprintf(file, sizeof(file), "%s-%05u-of-%05u.parquet", name, i, count);
		rc = mfs_parquet_image_file(image, i, &f, err);
		if (rc && !i)
			mfs_parquet_image_free(image);
		if (rc)
			return rc;
		if (!i)
			mfs_vfile_keep(f, image, free_image);
		rc = mfs_view_add(v, file, f, err);
	}
	return rc;
}

static int build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	struct mfs_parquet_config config = {0};
	struct mfs_parquet_image *image;
	int rc = mfs_data_splits_open(d, &v->splits, err);

	(void)spec;
	if (!rc)
		rc = mfs_data_splits_open_texts(d, v, err);
	for (unsigned i = 0; i < v->splits.count && !rc; i++) {
		config.text = v->splits.list[i].text;
		rc = mfs_parquet_image_new(v->splits.list[i].rows, &config, &image, err);
		if (!rc)
			rc = add_files(&v->public, v->splits.list[i].name, image, err);
	}
	return rc;
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_parquet = {
	.name = "parquet",
	.help = "Parquet files",
	.of = MFS_VIEW_OF_ROWS,
	.open = open_view,
};
