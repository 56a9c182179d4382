/*
 * A dataset as a directory that datasets.load_from_disk opens: of all rows, or with -o split= a DatasetDict
 * of the three splits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/dataset/rules.h"
#include "formats/dataset/splits.h"
#include "fs/data_hf_files.h"
#include "fs/data_i.h"
#include "fs/view_build.h"

struct hf_view {
	struct mfs_view public;
	struct mfs_rows *split[MFS_SPLITS]; /* the rows of each; NULL: not divided */
};

/* As `datasets` calls them. */
static const char *const split_names[MFS_SPLITS] = {
	[MFS_TRAIN] = "train", [MFS_VALID] = "validation", [MFS_TEST] = "test"};

static int parse_split(const struct mfs_data_options *opt, struct mfs_splits *ret,
		       struct mfs_error *err)
{
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	int rc = opt->megatron ? mfs_dataset_rules_of(opt->megatron, &rules, err) : 0;

	return rc ? rc : mfs_splits_parse(opt->split, &rules, ret, err);
}

/* A split without a share has no rows. */
static int add_split(struct mfs_dataset *d, struct hf_view *v, const struct mfs_splits *splits,
		     enum mfs_split split, struct mfs_error *err)
{
	uint64_t first = 0, end = 0;
	char spec[96];
	int rc = mfs_splits_range(splits, split, d->rows->rows, &first, &end, err);

	if (rc && rc != -ENODATA)
		return rc;
	rc = mfs_rows_slice(d->rows, first, end, &v->split[split], err);
	if (rc)
		return rc;
	snprintf(spec, sizeof(spec), "%s: rows %llu to %llu", split_names[split],
		 (unsigned long long)first, (unsigned long long)end);
	return mfs_data_add_hf_dir(
		&v->public,
		&(struct mfs_data_hf_dir){.dir = split_names[split],
					  .split = split_names[split],
					  .rows = v->split[split],
					  .spec = spec,
					  .arrow = {.batch = d->options->arrow_batch}},
		err);
}

static int add_splits(struct mfs_dataset *d, struct hf_view *v, struct mfs_error *err)
{
	struct mfs_splits splits;
	int rc = parse_split(d->options, &splits, err);

	for (int i = 0; i < MFS_SPLITS && !rc; i++)
		rc = add_split(d, v, &splits, (enum mfs_split)i, err);
	return rc ? rc : mfs_data_add_hf_dict(&v->public, split_names, MFS_SPLITS, err);
}

static int add_all(struct mfs_dataset *d, struct hf_view *v, struct mfs_error *err)
{
	return mfs_data_add_hf_dir(
		&v->public,
		&(struct mfs_data_hf_dir){.dir = "",
					  .rows = d->rows,
					  .spec = "all rows",
					  .arrow = {.batch = d->options->arrow_batch}},
		err);
}

static void release(struct mfs_view *view)
{
	struct hf_view *v = (struct hf_view *)view;

	for (int i = 0; i < MFS_SPLITS; i++)
		mfs_rows_free(v->split[i]);
	free(v);
}

int mfs_data_view_hf(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err)
{
	struct hf_view *v = calloc(1, sizeof(*v));
	int rc;

	if (!v)
		return mfs_fail_nomem(err);
	v->public.release = release;
	rc = d->options->split ? add_splits(d, v, err) : add_all(d, v, err);
	for (size_t i = 0; i < d->rows->set_count; i++)
		mfs_view_note_sources(&v->public, d->rows->sets[i]);
	if (!rc)
		rc = mfs_view_finish(&v->public, err);
	if (rc) {
		mfs_view_free(&v->public);
		return rc;
	}
	*ret = &v->public;
	return 0;
}
