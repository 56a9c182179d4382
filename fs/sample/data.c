/* Prefixes as rows: of the datasets that were named, or of files at their paths. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/dataset/rows/rows_indexed.h"
#include "formats/indexed/indexed_dataset.h"
#include "fs/sample/sample.h"

struct mfs_sample_opened {
	char *prefix;
	struct mfs_indexed_dataset *indexed;
	struct mfs_rows *rows;
	struct mfs_sample_opened *next;
};

static void free_opened(struct mfs_sample_opened *o)
{
	mfs_rows_free(o->rows);
	mfs_indexed_dataset_free(o->indexed);
	free(o->prefix);
	free(o);
}

void mfs_sample_data_release(struct mfs_sample_data *d)
{
	while (d->opened) {
		struct mfs_sample_opened *o = d->opened;

		d->opened = o->next;
		free_opened(o);
	}
}

static bool lies_there(const char *prefix)
{
	struct mfs_buf path = {0};
	bool there;

	mfs_buf_printf(&path, "%s.idx", prefix);
	there = !path.failed && !access(path.data, F_OK);
	mfs_buf_release(&path);
	return there;
}

static int fill(struct mfs_sample_opened *o, uint64_t vocab_size, struct mfs_error *err)
{
	const char *prefix = o->prefix;
	int rc = mfs_indexed_dataset_open(&prefix, 1, &o->indexed, err);

	if (!rc)
		rc = mfs_rows_indexed(o->indexed, &o->rows, err);
	if (!rc && vocab_size)
		rc = mfs_rows_set_vocab(o->rows, vocab_size, err);
	return rc;
}

static int open_prefix(struct mfs_sample_data *d, const char *prefix, const struct mfs_rows **ret,
		       struct mfs_error *err)
{
	struct mfs_sample_opened *o;
	int rc;

	for (o = d->opened; o; o = o->next)
		if (!strcmp(o->prefix, prefix)) {
			*ret = o->rows;
			return 0;
		}
	o = calloc(1, sizeof(*o));
	if (!o)
		return mfs_fail_nomem(err);
	o->prefix = strdup(prefix);
	rc = o->prefix ? fill(o, d->vocab_size, err) : mfs_fail_nomem(err);
	if (rc) {
		free_opened(o);
		return rc;
	}
	o->next = d->opened;
	d->opened = o;
	*ret = o->rows;
	return 0;
}

int mfs_sample_resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
		       struct mfs_error *err)
{
	struct mfs_sample_data *d = arg;
	int rc = d->data ? mfs_data_resolve((void *)d->data, prefix, ret, err) : -ENOENT;

	if (rc != -ENOENT)
		return rc;
	if (lies_there(prefix))
		return open_prefix(d, prefix, ret, err);
	return d->data ? rc
		       : mfs_fail(err, rc,
				  "'%s.idx' is missing: say where the datasets are with -o "
				  "data=PATH",
				  prefix);
}
