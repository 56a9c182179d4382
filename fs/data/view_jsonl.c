/* A dataset as JSON lines of token ids: data.jsonl, or with -o split= train.jsonl, validation.jsonl, test.jsonl. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/dataset/files/jsonl.h"
#include "fs/data/data_i.h"
#include "fs/data/splits.h"
#include "fs/view/build.h"

struct jsonl_view {
	struct mfs_view public;
	struct mfs_data_splits splits;
};

static int build(struct mfs_dataset *d, struct jsonl_view *v, struct mfs_error *err)
{
	char name[32];
	struct mfs_vfile *f;
	int rc = mfs_data_splits_open(d, &v->splits, err);

	for (unsigned i = 0; i < v->splits.count && !rc; i++) {
		snprintf(name, sizeof(name), "%s.jsonl", v->splits.list[i].name);
		rc = mfs_rows_jsonl(v->splits.list[i].rows, d->options->vocab_size, &f, err);
		if (!rc)
			rc = mfs_view_add(&v->public, name, f, err);
	}
	return rc;
}

static void release(struct mfs_view *view)
{
	struct jsonl_view *v = (struct jsonl_view *)view;

	mfs_data_splits_release(&v->splits);
	free(v);
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	struct mfs_dataset *d = s->dataset;
	struct jsonl_view *v = calloc(1, sizeof(*v));

	(void)spec;
	if (!v)
		return mfs_fail_nomem(err);
	v->public.release = release;
	return mfs_data_end_view(&v->public, d->rows, build(d, v, err), ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_jsonl = {
	.name = "jsonl",
	.help = "JSON lines of token ids",
	.of = MFS_VIEW_OF_ROWS,
	.open = open_view,
};
