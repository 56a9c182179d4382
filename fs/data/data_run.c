#include "fs/data/data_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/path.h"
#include "fs/data/data_i.h"

/* ---- what they name ---- */

static struct mfs_dataset *find_name(const struct mfs_data *data, const char *name)
{
	struct mfs_dataset *d = mfs_data_find(data, name, strlen(name));

	return d && d->rows ? d : NULL;
}

static struct mfs_dataset *find_path(const struct mfs_data *data, const char *path)
{
	struct mfs_dataset *found = NULL;
	char *full;

	if (mfs_data_path(path, &full, NULL))
		return NULL;
	for (uint32_t i = 0; i < mfs_data_count(data) && !found; i++) {
		struct mfs_dataset *d = mfs_data_at(data, i);

		if (d->rows && d->path && !strcmp(d->path, full))
			found = d;
	}
	free(full);
	return found;
}

int mfs_data_resolve(void *arg, const char *prefix, const struct mfs_rows **ret,
		     struct mfs_error *err)
{
	const struct mfs_data *data = arg;
	const struct mfs_dataset *d = find_name(data, prefix);

	if (!d)
		d = find_path(data, prefix);
	if (!d)
		d = find_name(data, mfs_path_base(prefix));
	if (!d)
		return mfs_fail(
			err, -ENOENT,
			"there is no dataset '%s' here, nor one named '%s': -o data=PATH adds "
			"some",
			prefix, mfs_path_base(prefix));
	*ret = d->rows;
	return 0;
}

/* ---- of a mount ---- */

int mfs_dataset_run(const struct mfs_dataset *d, struct mfs_data_run *ret, struct mfs_error *err)
{
	const struct mfs_data_options *opt = d->options;
	const struct mfs_data_words words = {.data_path = opt->data_path,
					     .split_data_path = {opt->split_data_path[MFS_TRAIN],
								 opt->split_data_path[MFS_VALID],
								 opt->split_data_path[MFS_TEST]},
					     .data_args_path = opt->data_args_path};
	struct mfs_dataset_rules rules = mfs_dataset_rules_default();
	int rc = opt->megatron ? mfs_dataset_rules_of(opt->megatron, &rules, err) : 0;

	if (!rc)
		rc = d->rows ? mfs_data_run_single(d->name, ret, err)
			     : mfs_data_run_parse(&words, ret, err);
	if (rc)
		return rc;
	ret->run.split = opt->split;
	ret->run.rules = rules;
	ret->run.most_bytes = MFS_DATA_INDEX_BYTES;
	return 0;
}

static int resolve_itself(void *arg, const char *prefix, const struct mfs_rows **ret,
			  struct mfs_error *err)
{
	const struct mfs_dataset *d = arg;

	(void)prefix, (void)err;
	*ret = d->rows;
	return 0;
}

int mfs_dataset_samples(const struct mfs_dataset *d, const struct mfs_run *run,
			enum mfs_split split, struct mfs_samples **ret, struct mfs_error *err)
{
	return d->rows ? mfs_samples_new(run, split, resolve_itself, (void *)d, ret, err)
		       : mfs_samples_new(run, split, mfs_data_resolve, (void *)d->data, ret, err);
}
