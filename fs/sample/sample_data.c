/* Prefixes as rows: of the datasets that were named, or of files at their paths. */
#include <errno.h>

#include "fs/sample/sample.h"

void mfs_sample_data_release(struct mfs_sample_data *d)
{
	mfs_rows_table_release(&d->paths);
}

int mfs_sample_resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
		       struct mfs_error *err)
{
	struct mfs_sample_data *d = arg;
	int opened, rc = d->data ? mfs_data_resolve((void *)d->data, prefix, ret, err) : -ENOENT;

	if (rc != -ENOENT)
		return rc;
	opened = mfs_rows_open(&d->paths, prefix, ret, err);
	if (opened != -ENOENT || d->data)
		return opened;
	return mfs_fail(err, rc,
			"'%s.idx' is missing: say where the datasets are with -o data=PATH",
			prefix);
}
