/* Which datasets there are: from paths to names. */
#define _GNU_SOURCE
#include "fs/data/data.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/arena.h"
#include "formats/base/grow.h"
#include "formats/base/path.h"
#include "formats/dataset/rows/hf_dataset.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/io/fileset.h"
#include "fs/data/data_i.h"
#include "fs/data/data_tokenizer.h"

#define BLEND "blend"

#define LOOK_AT (32u << 20) /* tokens of a mount: some hundredths of a second of one processor */

struct mfs_data {
	const struct mfs_data_options *options;
	struct mfs_dataset **list; /* in order of names once all are there */
	uint32_t count;
	const char **prefixes; /* of indexed datasets */
	size_t prefix_count;
	uint64_t look_at; /* tokens that may still be looked at without having been asked for */
	struct mfs_keeper *keeper;
	struct mfs_data_tokenizer *tokenizer;
	struct mfs_arena arena;
};

/* ---- one dataset ---- */

static void free_dataset(struct mfs_dataset *d)
{
	mfs_data_texts_release(&d->texts);
	mfs_rows_free(d->rows);
	mfs_indexed_dataset_free(d->indexed);
	mfs_arena_release(&d->arena);
	free(d);
}

/* Whether a name cannot be that of an entry of data/. */
static bool is_no_name(const char *name)
{
	return !*name || !strcmp(name, ".") || !strcmp(name, "..");
}

/* of: what there will be of it. */
static int new_dataset(struct mfs_data *data, const char *name, const char *path, unsigned of,
		       struct mfs_dataset **ret, struct mfs_error *err)
{
	struct mfs_dataset *d;

	if (is_no_name(name))
		return mfs_fail(err, -EINVAL,
				"'%s': '%s' cannot be the name of a directory; rename it",
				path ? path : "", name);
	d = calloc(1, sizeof(*d));
	if (!d)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&d->texts.lock, NULL);
	d->name = mfs_arena_strndup(&data->arena, name, strlen(name));
	d->path = path ? mfs_arena_strndup(&data->arena, path, strlen(path)) : NULL;
	d->options = data->options;
	d->data = data;
	d->tokenizer = data->tokenizer;
	if (!d->name || (path && !d->path) || mfs_grow(&data->list, data->count)) {
		free_dataset(d);
		return mfs_fail_nomem(err);
	}
	mfs_views_init(&d->views, &mfs_dataset_owner_ops, d, &mfs_data_views, of, data->keeper);
	data->list[data->count++] = d;
	*ret = d;
	return 0;
}

static void note_time(struct mfs_dataset *d)
{
	for (size_t i = 0; i < d->rows->set_count; i++)
		for (uint32_t f = 0; f < mfs_fileset_count(d->rows->sets[i]); f++)
			if (mfs_fileset_mtime(d->rows->sets[i], f) > d->mtime_ns)
				d->mtime_ns = mfs_fileset_mtime(d->rows->sets[i], f);
}

/* Makes the warning that is shown when the dataset is mounted, inspected or verified. outside: how
 * many rows were found. */
static int note_warning(struct mfs_dataset *d, uint64_t outside, struct mfs_error *err)
{
	const char *known = d->indexed ? mfs_indexed_dataset_warning(d->indexed) : "";

	if (!outside)
		return 0;
	d->warning = mfs_arena_printf(
		&d->arena,
		"%s%s%s: %llu row%s hold%s tokens outside of a vocabulary of %llu or cannot be "
		"read; verify --deep names them",
		known, *known ? "; " : "", d->rows->name, (unsigned long long)outside,
		outside > 1 ? "s" : "", outside > 1 ? "" : "s",
		(unsigned long long)d->options->vocab_size);
	return d->warning ? 0 : mfs_fail_nomem(err);
}

/* Finds the rows that hold tokens outside of the vocabulary: in all datasets with vocab_scan, and
 * otherwise in small ones only. If a look at a small one fails, such rows are merely not kept apart
 * from their neighbours. */
static int find_bad(struct mfs_data *data, struct mfs_dataset *d, struct mfs_error *err)
{
	const uint64_t before = mfs_row_ranges_rows(&d->rows->bad);
	int rc = 0;

	if (data->options->vocab_scan) {
		rc = mfs_rows_find_bad(d->rows, 0, err);
	} else if (d->rows->tokens <= data->look_at) {
		data->look_at -= d->rows->tokens;
		mfs_rows_find_bad(d->rows, 0, NULL);
	}
	return rc ? rc : note_warning(d, mfs_row_ranges_rows(&d->rows->bad) - before, err);
}

static int finish_rows(struct mfs_data *data, struct mfs_dataset *d, struct mfs_error *err)
{
	int rc;

	note_time(d);
	if (!d->options->vocab_size)
		return 0;
	rc = mfs_rows_set_vocab(d->rows, d->options->vocab_size, err);
	return rc ? rc : find_bad(data, d, err);
}

static int open_indexed(struct mfs_data *data, const char *name, const char *path,
			const char *const *prefixes, size_t count, struct mfs_error *err)
{
	struct mfs_dataset *d;
	int rc = new_dataset(data, name, path, MFS_VIEW_OF_DATA, &d, err);

	if (!rc)
		rc = mfs_indexed_dataset_open(prefixes, count, &d->indexed, err);
	if (!rc)
		rc = mfs_rows_indexed(d->indexed, &d->rows, err);
	return rc ? rc : finish_rows(data, d, err);
}

/* split: NULL where there are none. */
static int open_hf(struct mfs_data *data, const char *name, const char *path, const char *split,
		   struct mfs_error *err)
{
	const struct mfs_hf_dataset_options opt = {.column = data->options->column,
						   .has_eod = data->options->has_eod,
						   .eod = data->options->eod};
	struct mfs_dataset *d;
	int rc = new_dataset(data, name, path, MFS_VIEW_OF_DATA, &d, err);

	if (!rc)
		rc = mfs_hf_dataset_open(path, split, &opt, &d->rows, err);
	return rc ? rc : finish_rows(data, d, err);
}

/* ---- what a path holds ---- */

static int add_prefix(struct mfs_data *data, const char *prefix, struct mfs_error *err)
{
	const char *copy = mfs_arena_strndup(&data->arena, prefix, strlen(prefix));

	if (!copy || mfs_grow(&data->prefixes, data->prefix_count))
		return mfs_fail_nomem(err);
	data->prefixes[data->prefix_count++] = copy;
	return open_indexed(data, mfs_path_base(prefix), prefix, &prefix, 1, err);
}

static int add_directory(struct mfs_data *data, const char *dir, struct mfs_error *err)
{
	char **prefixes;
	size_t count;
	int rc = mfs_indexed_dataset_list(dir, &prefixes, &count, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = add_prefix(data, prefixes[i], err);
	free(prefixes);
	return rc;
}

static int add_hf_split(struct mfs_data *data, const char *path, const char *split,
			struct mfs_error *err)
{
	char *name = mfs_arena_printf(&data->arena, "%s_%s", mfs_path_base(path), split);

	return name ? open_hf(data, name, path, split, err) : mfs_fail_nomem(err);
}

static int add_hf(struct mfs_data *data, const char *path, struct mfs_error *err)
{
	const char *base = mfs_path_base(path), *dot = strrchr(base, '.');
	const char *const *splits;
	uint32_t count;
	int rc = mfs_hf_dataset_splits(path, &data->arena, &splits, &count, err);

	if (rc)
		return rc;
	if (!count) {
		char *name = mfs_arena_strndup(&data->arena, base,
					       dot && !strcmp(dot, ".arrow") ? (size_t)(dot - base)
									     : strlen(base));

		return name ? open_hf(data, name, path, NULL, err) : mfs_fail_nomem(err);
	}
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = add_hf_split(data, path, splits[i], err);
	return rc;
}

static int add_path(struct mfs_data *data, const char *named, struct mfs_error *err)
{
	char *path;
	int rc = mfs_data_path(named, &path, err);

	if (rc)
		return rc;
	switch (mfs_data_holds(path)) {
	case MFS_DATA_HOLDS_PREFIX:
		rc = add_prefix(data, path, err);
		break;
	case MFS_DATA_HOLDS_HF:
		rc = add_hf(data, path, err);
		break;
	case MFS_DATA_HOLDS_PREFIXES:
		rc = add_directory(data, path, err);
		break;
	case MFS_DATA_HOLDS_NONE:
		rc = mfs_fail(
			err, -ENODATA,
			"'%s' holds no dataset: looked for PREFIX.idx next to PREFIX.bin, and for "
			"what datasets' save_to_disk writes",
			named);
	}
	free(path);
	return rc;
}

static int by_base_name(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;

	return strcmp(mfs_path_base(*x), mfs_path_base(*y));
}

/* Prefixes are merged in the order of their names, whatever the order in which they were given, so
 * that what `datasets` has computed of the same files stays right. */
static int add_merge(struct mfs_data *data, struct mfs_error *err)
{
	if (!data->prefix_count)
		return mfs_fail(err, -ENODATA, "merge=%s: there is no indexed dataset to merge",
				data->options->merge);
	qsort(data->prefixes, data->prefix_count, sizeof(char *), by_base_name);
	return open_indexed(data, data->options->merge, NULL, data->prefixes, data->prefix_count,
			    err);
}

static bool wants_blend(const struct mfs_data_options *opt)
{
	bool wanted = opt->data_path || opt->data_args_path;

	for (int i = 0; i < MFS_SPLITS; i++)
		wanted |= opt->split_data_path[i] != NULL;
	return wanted;
}

static int add_blend(struct mfs_data *data, struct mfs_error *err)
{
	struct mfs_dataset *d;
	int rc = new_dataset(data, BLEND, NULL, MFS_VIEW_OF_RUN, &d, err);

	for (uint32_t i = 0; i < data->count && !rc; i++)
		if (data->list[i]->mtime_ns > d->mtime_ns)
			d->mtime_ns = data->list[i]->mtime_ns;
	return rc;
}

/* ---- before it is opened ---- */

static uint32_t count_prefixes(const char *dir)
{
	char **prefixes;
	size_t count;

	if (mfs_indexed_dataset_list(dir, &prefixes, &count, NULL))
		return 0;
	free(prefixes);
	return (uint32_t)count;
}

static uint32_t count_splits(const char *path)
{
	struct mfs_arena arena = {0};
	const char *const *splits;
	uint32_t count;
	const int rc = mfs_hf_dataset_splits(path, &arena, &splits, &count, NULL);

	mfs_arena_release(&arena);
	return rc ? 0 : count ? count : 1;
}

uint32_t mfs_data_look(const char *path, const struct mfs_data_options *opt)
{
	const enum mfs_data_path_kind holds = mfs_data_holds(path);
	uint32_t count = holds == MFS_DATA_HOLDS_HF	    ? count_splits(path)
			 : holds == MFS_DATA_HOLDS_PREFIXES ? count_prefixes(path)
							    : holds == MFS_DATA_HOLDS_PREFIX;

	if (count && opt)
		count += opt->path_count + !!opt->merge + wants_blend(opt);
	return count;
}

/* ---- all of them ---- */

static int by_name(const void *a, const void *b)
{
	const struct mfs_dataset *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int sort(struct mfs_data *data, struct mfs_error *err)
{
	if (!data->count)
		return mfs_fail(err, -ENODATA, "no dataset was named");
	qsort(data->list, data->count, sizeof(struct mfs_dataset *), by_name);
	for (uint32_t i = 1; i < data->count; i++) {
		const struct mfs_dataset *a = data->list[i - 1], *b = data->list[i];

		if (!strcmp(a->name, b->name))
			return mfs_fail(err, -EEXIST,
					"two datasets are named '%s': '%s' and '%s'; mount one of "
					"them elsewhere",
					a->name, a->path ? a->path : a->name,
					b->path ? b->path : b->name);
	}
	return 0;
}

/* What they cannot be shown as. Those may read why who may read the rows. */
static int look_at_views(struct mfs_data *data, struct mfs_error *err)
{
	for (uint32_t i = 0; i < data->count; i++) {
		struct mfs_dataset *d = data->list[i];
		const struct mfs_view_origin s = {.dataset = d};
		struct mfs_access_fold access = {0};

		for (size_t k = 0; d->rows && k < d->rows->set_count; k++)
			mfs_access_merge(&access, mfs_fileset_access(d->rows->sets[k]));
		if (mfs_views_look(&d->views, &s, &access, d->mtime_ns))
			return mfs_fail_nomem(err);
	}
	return 0;
}

int mfs_data_open(const char *source, const struct mfs_data_options *opt, struct mfs_data **ret,
		  struct mfs_error *err)
{
	struct mfs_data *data = calloc(1, sizeof(*data));
	int rc = 0;

	if (!data)
		return mfs_fail_nomem(err);
	data->keeper = mfs_keeper_new(MFS_DATA_KEEP_OPEN);
	if (!data->keeper) {
		free(data);
		return mfs_fail_nomem(err);
	}
	data->options = opt;
	data->look_at = LOOK_AT;
	rc = mfs_data_tokenizer_new(opt->tokenizer, &data->tokenizer, err);
	if (!rc && opt->text_scan && !opt->tokenizer)
		rc = mfs_fail(err, -EINVAL,
			      "text_scan needs tokenizer=DIR: it is about text next to tokens");
	if (!rc && opt->vocab_scan && !opt->vocab_size)
		rc = mfs_fail(err, -EINVAL,
			      "vocab_scan needs vocab_size=N: it looks for tokens outside of the "
			      "vocabulary");
	if (!rc && source)
		rc = add_path(data, source, err);
	for (unsigned i = 0; i < opt->path_count && !rc; i++)
		rc = add_path(data, opt->paths[i], err);
	if (!rc && opt->merge)
		rc = add_merge(data, err);
	if (!rc && wants_blend(opt))
		rc = add_blend(data, err);
	if (!rc)
		rc = sort(data, err);
	if (!rc)
		rc = look_at_views(data, err);
	if (rc) {
		mfs_data_free(data);
		return rc;
	}
	*ret = data;
	return 0;
}

void mfs_data_free(struct mfs_data *data)
{
	if (!data)
		return;
	/* All views go first, as a view of one dataset may read the rows of others. */
	for (uint32_t i = 0; i < data->count; i++)
		mfs_views_release(&data->list[i]->views);
	for (uint32_t i = 0; i < data->count; i++)
		free_dataset(data->list[i]);
	free(data->list);
	free(data->prefixes);
	mfs_keeper_free(data->keeper);
	mfs_data_tokenizer_free(data->tokenizer);
	mfs_arena_release(&data->arena);
	free(data);
}

uint32_t mfs_data_count(const struct mfs_data *data)
{
	return data->count;
}

struct mfs_dataset *mfs_data_at(const struct mfs_data *data, uint32_t i)
{
	return data->list[i];
}

struct mfs_dataset *mfs_data_find(const struct mfs_data *data, const char *name, size_t len)
{
	for (uint32_t i = 0; i < data->count; i++)
		if (!strncmp(data->list[i]->name, name, len) && !data->list[i]->name[len])
			return data->list[i];
	return NULL;
}

const char *mfs_dataset_name(const struct mfs_dataset *d)
{
	return d->name;
}

const char *mfs_dataset_path(const struct mfs_dataset *d)
{
	return d->path;
}

const struct mfs_data_options *mfs_dataset_options(const struct mfs_dataset *d)
{
	return d->options;
}

struct mfs_indexed_dataset *mfs_dataset_indexed(const struct mfs_dataset *d)
{
	return d->indexed;
}

struct mfs_rows *mfs_dataset_rows(const struct mfs_dataset *d)
{
	return d->rows;
}

int64_t mfs_dataset_mtime(const struct mfs_dataset *d)
{
	return d->mtime_ns;
}

const char *mfs_dataset_warning(const struct mfs_dataset *d)
{
	if (d->warning)
		return d->warning;
	return d->indexed ? mfs_indexed_dataset_warning(d->indexed) : "";
}

struct mfs_fileset *const *mfs_dataset_sets(const struct mfs_dataset *d, uint32_t *ret_count)
{
	*ret_count = d->rows ? (uint32_t)d->rows->set_count : 0;
	return d->rows ? d->rows->sets : NULL;
}
