/* A dataset as JSON lines of token ids: data.jsonl, or with -o split= train.jsonl,
 * validation.jsonl, test.jsonl. */
#include <stdio.h>

#include "formats/dataset/files/jsonl.h"
#include "fs/data/data_i.h"
#include "fs/data/data_splits.h"
#include "fs/view/build.h"

static int build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	char name[32];
	struct mfs_vfile *f;
	int rc = mfs_data_splits_open(d, &v->splits, err);

	(void)spec;
	for (unsigned i = 0; i < v->splits.count && !rc; i++) {
		snprintf(name, sizeof(name), "%s.jsonl", v->splits.list[i].name);
		rc = mfs_rows_jsonl(v->splits.list[i].rows, d->options->vocab_size, &f, err);
		if (!rc)
			rc = mfs_view_add(&v->public, name, f, err);
	}
	return rc;
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_jsonl = {
	.name = "jsonl",
	.help = "JSON lines of token ids",
	.of = MFS_VIEW_OF_ROWS,
	.open = open_view,
};
