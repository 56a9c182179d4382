/*
 * A dataset as a directory that datasets.load_from_disk opens: of all rows, or with -o split= a
 * DatasetDict of the three splits.
 */
#include <string.h>

#include "formats/base/buf.h"
#include "fs/data/hf_directory.h"
#include "fs/data/data_i.h"
#include "fs/data/data_splits.h"
#include "fs/view/build.h"

/* A column of text, where there can be one. What map() has made of rows without it is not what it
 * makes of these. */
static int add_text(struct mfs_dataset *d, struct mfs_data_view *v, struct mfs_data_hf_dir *dir,
		    struct mfs_buf *spec, struct mfs_error *err)
{
	int rc;

	if (mfs_data_text_possible(d, d->rows, NULL))
		return 0;
	if (spec->failed)
		return mfs_fail_nomem(err);
	rc = mfs_data_text_open(d, v, dir->rows, spec->len ? spec->data : "", &dir->arrow.text,
				err);
	if (!rc)
		mfs_buf_printf(spec, "text by %016llx\n",
			       (unsigned long long)mfs_data_text_hash(d));
	return rc;
}

static int add_dir(struct mfs_dataset *d, struct mfs_data_view *v, const char *split,
		   const struct mfs_rows *rows, struct mfs_error *err)
{
	const struct mfs_data_options *opt = d->options;
	struct mfs_data_hf_dir dir = {.dir = split ? split : "",
				      .split = split,
				      .rows = rows,
				      .arrow.batch = opt->arrow_batch};
	struct mfs_buf spec = {0};
	int rc;

	mfs_data_splits_describe(opt, split, &spec);
	rc = add_text(d, v, &dir, &spec, err);
	dir.spec = spec.len ? spec.data : "";
	if (!rc)
		rc = spec.failed ? mfs_fail_nomem(err) : mfs_data_add_hf_dir(&v->public, &dir, err);
	mfs_buf_release(&spec);
	return rc;
}

/* v->rows are those of a split without rows. */
static const struct mfs_rows *rows_of(const struct mfs_data_view *v, const char *split)
{
	for (unsigned i = 0; i < v->splits.count; i++)
		if (!strcmp(v->splits.list[i].name, split))
			return v->splits.list[i].rows;
	return v->rows;
}

static int add_splits(struct mfs_dataset *d, struct mfs_data_view *v, struct mfs_error *err)
{
	static const char *const names[] = {"train", "validation", "test"};
	int rc = mfs_data_splits_open(d, &v->splits, err);

	if (!rc)
		rc = mfs_rows_slice(d->rows, 0, 0, &v->rows, err);
	for (int i = 0; i < 3 && !rc; i++)
		rc = add_dir(d, v, names[i], rows_of(v, names[i]), err);
	return rc ? rc : mfs_data_add_hf_dict(&v->public, names, 3, err);
}

static int build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	(void)spec;
	return d->options->split ? add_splits(d, v, err) : add_dir(d, v, NULL, d->rows, err);
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_hf = {
	.name = "hf",
	.help = "a dataset for load_from_disk",
	.of = MFS_VIEW_OF_ROWS,
	.takes_files = true,
	.open = open_view,
};
