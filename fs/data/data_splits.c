#include "fs/data/data_splits.h"

#include <errno.h>

#include "formats/base/buf.h"
#include "formats/dataset/gpt/gpt_rules.h"
#include "fs/data/data_i.h"
#include "fs/data/data_text.h"
#include "fs/data/hf_directory.h"

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
		s->list[s->count++] = (struct mfs_data_split){.name = name, .rows = rows};
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

void mfs_data_splits_describe(const struct mfs_data_options *opt, const char *split,
			      struct mfs_buf *ret)
{
	mfs_data_add_options(opt, ret);
	if (split)
		mfs_buf_printf(ret, "%s of %s by %s", split, opt->split,
			       opt->megatron ? opt->megatron : "the newest rules");
}

static int open_text(struct mfs_dataset *d, struct mfs_data_view *v, struct mfs_data_split *split,
		     struct mfs_error *err)
{
	struct mfs_buf spec = {0};
	int rc;

	mfs_data_splits_describe(d->options, d->options->split ? split->name : NULL, &spec);
	rc = spec.failed ? mfs_fail_nomem(err)
			 : mfs_data_text_open(d, v, split->rows, spec.len ? spec.data : "",
					      &split->text, err);
	mfs_buf_release(&spec);
	return rc;
}

int mfs_data_splits_open_texts(struct mfs_dataset *d, struct mfs_data_view *v,
			       struct mfs_error *err)
{
	int rc = 0;

	if (mfs_data_text_possible(d, d->rows, NULL))
		return 0;
	for (unsigned i = 0; i < v->splits.count && !rc; i++)
		rc = open_text(d, v, &v->splits.list[i], err);
	return rc;
}

void mfs_data_splits_release(struct mfs_data_splits *s)
{
	for (unsigned i = 0; i < s->count; i++)
		mfs_rows_free(s->list[i].rows);
	s->count = 0;
}
