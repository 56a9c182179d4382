#include "fs/data/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/path.h"
#include "formats/io/regular.h"
#include "fs/data/data_i.h"

#define MAX_WORDS_FILE (64u << 20) /* bytes of a --data-args-path file */

/* ---- words ---- */

static int parse_words(const char *what, const char *text, struct mfs_blend_args *ret,
		       struct mfs_error *err)
{
	int rc = mfs_blend_args_parse_text(text, strlen(text), ret, err);

	return rc ? mfs_fail_in(err, "%s", what) : 0;
}

static int read_file(int fd, size_t size, struct mfs_blend_args *ret, struct mfs_error *err)
{
	char *text = malloc(size + 1);
	ssize_t n;
	int rc;

	if (!text)
		return mfs_fail_nomem(err);
	n = read(fd, text, size);
	if (n < 0)
		rc = mfs_fail(err, -errno, "%s", strerror(errno));
	else
		rc = mfs_blend_args_parse_text(text, (size_t)n, ret, err);
	free(text);
	return rc;
}

static int parse_file(const char *path, struct mfs_blend_args *ret, struct mfs_error *err)
{
	struct stat st;
	int fd = -1, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, &st);

	if (rc && rc != -EINVAL)
		mfs_error_set(err, rc, "%s", strerror(-rc));
	else if (rc || st.st_size > MAX_WORDS_FILE)
		rc = mfs_fail(err, -EINVAL, "not a file of prefixes and weights");
	else
		rc = read_file(fd, (size_t)st.st_size, ret, err);
	if (fd >= 0)
		close(fd);
	return rc ? mfs_fail_in(err, "%s", path) : 0;
}

static int parse_splits(const struct mfs_data_words *words, struct mfs_data_run *r,
			struct mfs_error *err)
{
	bool any = false;
	int rc = 0;

	for (int i = 0; i < MFS_SPLITS && !rc; i++) {
		if (!words->split_data_path[i])
			continue;
		rc = parse_words(mfs_split_name((enum mfs_split)i), words->split_data_path[i],
				 &r->split[i], err);
		r->run.per_split[i] = &r->split[i];
		any = true;
	}
	return rc || any ? rc : mfs_fail(err, -ENODATA, "no data path was given");
}

static int parse_all(const struct mfs_data_words *words, struct mfs_data_run *r,
		     struct mfs_error *err)
{
	if (words->data_path && words->data_args_path)
		return mfs_fail(err, -EINVAL, "data path and data args path exclude each other");
	for (int i = 0; i < MFS_SPLITS; i++)
		if (words->split_data_path[i])
			return mfs_fail(err, -EINVAL,
					"a data path of all splits and one of the %s split exclude "
					"each other",
					mfs_split_name((enum mfs_split)i));
	r->run.blend = &r->all;
	return words->data_path ? parse_words("data path", words->data_path, &r->all, err)
				: parse_file(words->data_args_path, &r->all, err);
}

int mfs_data_run_parse(const struct mfs_data_words *words, struct mfs_data_run *ret,
		       struct mfs_error *err)
{
	int rc;

	*ret = (struct mfs_data_run){0};
	rc = words->data_path || words->data_args_path ? parse_all(words, ret, err)
						       : parse_splits(words, ret, err);
	if (rc)
		mfs_data_run_release(ret);
	return rc;
}

int mfs_data_run_single(const char *prefix, struct mfs_data_run *ret, struct mfs_error *err)
{
	*ret = (struct mfs_data_run){0};
	ret->run.blend = &ret->all;
	return mfs_blend_args_parse(&prefix, 1, &ret->all, err);
}

void mfs_data_run_release(struct mfs_data_run *r)
{
	mfs_blend_args_release(&r->all);
	for (int i = 0; i < MFS_SPLITS; i++)
		mfs_blend_args_release(&r->split[i]);
	r->run = (struct mfs_run){0};
}

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
