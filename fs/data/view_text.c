/* A dataset as JSON lines of text: data.jsonl, or with -o split= train.jsonl, validation.jsonl,
 * test.jsonl. */
#include <stdio.h>

#include "formats/dataset/files/text_lines.h"
#include "fs/data/data_i.h"
#include "fs/data/data_splits.h"
#include "fs/data/data_text.h"
#include "fs/view/build.h"

static int possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	return s->dataset->rows ? mfs_data_text_possible(s->dataset, s->dataset->rows, err) : 0;
}

static int add_split(struct mfs_data_view *v, const struct mfs_data_split *split,
		     struct mfs_error *err)
{
	char name[32];
	struct mfs_vfile *f;
	int rc = mfs_text_lines(split->text, split->rows->rows, &f, err);

	snprintf(name, sizeof(name), "%s.jsonl", split->name);
	return rc ? rc : mfs_view_add(&v->public, name, f, err);
}

static int build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	int rc = mfs_data_text_possible(d, d->rows, err);

	(void)spec;
	if (!rc)
		rc = mfs_data_splits_open(d, &v->splits, err);
	if (!rc)
		rc = mfs_data_splits_open_texts(d, v, err);
	for (unsigned i = 0; i < v->splits.count && !rc; i++)
		rc = add_split(v, &v->splits.list[i], err);
	return rc;
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_text = {
	.name = "text",
	.help = "JSON lines of text, by -o tokenizer=",
	.of = MFS_VIEW_OF_ROWS,
	.by_option = true,
	.possible = possible,
	.open = open_view,
};
