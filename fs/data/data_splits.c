#include "fs/data/data_splits.h"

#include <errno.h>

#include "formats/dataset/gpt/gpt_rules.h"
#include "fs/data/data_i.h"

static const char *const names[MFS_SPLITS] = {
	[MFS_TRAIN] = "train", [MFS_VALID] = "validation", [MFS_TEST] = "test"};

int mfs_data_splits_parse(const struct mfs_data_options *opt, struct mfs_splits *ret,
			  struct mfs_error *err)
{
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	int rc = opt->megatron ? mfs_dataset_rules_of(opt->megatron, &rules, err) : 0;

	return rc ? rc : mfs_splits_parse(opt->split, &rules, ret, err);
}

static int add(struct mfs_data_splits *s, const char *name, const struct mfs_rows *of,
	       uint64_t first, uint64_t end, struct mfs_error *err)
{
	struct mfs_rows *rows;
	int rc = mfs_rows_slice(of, first, end, &rows, err);

	if (!rc)
		s->list[s->count++] = (struct mfs_data_split){name, rows};
	return rc;
}

static int add_splits(struct mfs_data_splits *s, const struct mfs_dataset *d, struct mfs_error *err)
{
	struct mfs_splits splits;
	uint64_t first, end;
	int rc = mfs_data_splits_parse(d->options, &splits, err);

	for (int i = 0; i < MFS_SPLITS && !rc; i++) {
		rc = mfs_splits_range(&splits, (enum mfs_split)i, d->rows->rows, &first, &end, err);
		if (!rc)
			rc = add(s, names[i], d->rows, first, end, err);
		if (rc == -ENODATA)
			rc = 0; /* no row is its */
	}
	return rc;
}

int mfs_data_splits_open(const struct mfs_dataset *d, struct mfs_data_splits *ret,
			 struct mfs_error *err)
{
	int rc;

	*ret = (struct mfs_data_splits){0};
	rc = d->options->split ? add_splits(ret, d, err)
			       : add(ret, "data", d->rows, 0, d->rows->rows, err);
	if (rc)
		mfs_data_splits_release(ret);
	return rc;
}

void mfs_data_splits_release(struct mfs_data_splits *s)
{
	for (unsigned i = 0; i < s->count; i++)
		mfs_rows_free(s->list[i].rows);
	s->count = 0;
}
