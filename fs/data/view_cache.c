/*
 * What Megatron takes as --data-cache-path: the indices of all splits of a run, under the names by which it looks
 * for them (index_key.h, index_files.h). Their sizes are known at once; an index is made when it is read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/dataset/gpt/samples.h"
#include "fs/data/cache.h"
#include "fs/view/build.h"

int mfs_cache_rules(const struct mfs_data_options *opt, struct mfs_dataset_rules *ret,
		    struct mfs_error *err)
{
	*ret = mfs_dataset_rules_default();
	return opt->megatron ? mfs_dataset_rules_of(opt->megatron, ret, err) : 0;
}

/* ---- the view ---- */

static void release(struct mfs_view *view)
{
	struct mfs_cache_view *v = (struct mfs_cache_view *)view;

	for (int i = 0; i < MFS_SPLITS; i++)
		mfs_samples_free(v->samples[i]);
	for (size_t i = 0; i < v->gpt_count; i++)
		mfs_gpt_dataset_free(v->gpt[i]);
	for (size_t i = 0; i < v->blend_count; i++)
		mfs_blend_free(v->blends[i]);
	free(v->gpt);
	free(v->blends);
	free(v);
}

static int open_view(struct mfs_cache_builder *b, const char *name)
{
	int rc = mfs_cache_rules(b->d->options, &b->run.rules, b->err);

	if (rc)
		return rc;
	return strcmp(name, MFS_CACHE_ADOPTED) ? mfs_cache_add_run(b, name)
					       : mfs_cache_add_adopted(b);
}

int mfs_data_view_cache(struct mfs_dataset *d, const char *spec, struct mfs_view **ret,
			struct mfs_error *err)
{
	struct mfs_cache_builder b = {.d = d, .err = err};
	int rc = mfs_data_check_cache(d, spec, err);

	if (rc)
		return rc;
	b.view = calloc(1, sizeof(*b.view));
	if (!b.view)
		return mfs_fail_nomem(err);
	b.view->public.release = release;
	rc = open_view(&b, spec);
	return mfs_data_end_view(&b.view->public, NULL, rc, ret, err);
}

/* ---- names ---- */

static bool is_directory(const char *path)
{
	struct stat st;

	return path && !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Whether there can be any, be it of this dataset or of this mount. */
static int check_options(const struct mfs_dataset *d, struct mfs_error *err)
{
	struct mfs_dataset_rules rules;
	int rc = mfs_cache_rules(d->options, &rules, err);

	if (rc)
		return rc;
	if (rules.core < MFS_INDEX_FIRST_CORE)
		return mfs_fail(err, -EINVAL,
				"Megatron-LM before core 0.4 named its cached indices otherwise, "
				"which is not known here");
	if (!d->options->tokenizer_id && rules.core > MFS_INDEX_FIRST_CORE)
		return mfs_fail(err, -EINVAL,
				"Megatron finds cached indices by its tokenizer too: -o "
				"tokenizer_id=FILE names a file with its unique_identifiers, or a "
				"directory with the descriptions of an earlier run");
	return 0;
}

static int check_run(const struct mfs_dataset *d, const char *name, struct mfs_error *err)
{
	const struct mfs_data_options *opt = d->options;
	struct mfs_cache_spec spec;
	struct mfs_splits splits;
	struct mfs_dataset_rules rules;
	int rc = mfs_cache_spec_parse(name, &spec, err);

	if (!rc)
		rc = check_options(d, err);
	if (rc)
		return rc;
	if (d->rows && !(d->indexed && d->path))
		return mfs_fail(
			err, -EINVAL,
			"Megatron finds cached indices by the path of the data, and %s is no "
			"file that it could have been told: mount data/%s/megatron/%s of "
			"this mount in turn",
			d->name, d->name, d->name);
	if (!spec.split)
		return 0;
	if (!d->rows && !opt->data_path && !opt->data_args_path)
		return mfs_fail(err, -EINVAL,
				"'%s': datasets that are named for each split are not split", name);
	rc = mfs_cache_rules(opt, &rules, err);
	return rc ? rc : mfs_splits_parse(spec.split, &rules, &splits, err);
}

int mfs_data_check_cache(struct mfs_dataset *d, const char *spec, struct mfs_error *err)
{
	int rc;

	if (strcmp(spec, MFS_CACHE_ADOPTED))
		return check_run(d, spec, err);
	rc = check_options(d, err);
	if (!rc && !is_directory(d->options->tokenizer_id))
		rc = mfs_fail(err, -EINVAL,
			      "there are no descriptions to adopt: -o tokenizer_id=DIR names a "
			      "directory with those of an earlier run");
	return rc;
}

#define USUAL_LENGTH 4096
#define LEAST_LENGTH 16

/* The longest usual length of which the dataset has a sample. */
static int add_example(struct mfs_dataset *d, struct mfs_arena *arena, const char **names,
		       uint32_t *count, struct mfs_error *err)
{
	unsigned length = USUAL_LENGTH;

	while (d->rows && d->rows->tokens <= length && length >= LEAST_LENGTH)
		length /= 2;
	if (length < LEAST_LENGTH)
		return 0;
	names[*count] = mfs_arena_printf(arena, "s%u", length);
	if (!names[*count])
		return mfs_fail_nomem(err);
	*count += !check_run(d, names[*count], NULL);
	return 0;
}

int mfs_data_list_cache(struct mfs_dataset *d, struct mfs_arena *arena, const char *const **ret,
			uint32_t *ret_count, struct mfs_error *err)
{
	const char **names = mfs_arena_array(arena, 2, sizeof(*names));
	uint32_t count = 0;
	int rc;

	if (!names)
		return mfs_fail_nomem(err);
	if (!mfs_data_check_cache(d, MFS_CACHE_ADOPTED, NULL))
		names[count++] = MFS_CACHE_ADOPTED;
	rc = add_example(d, arena, names, &count, err);
	if (rc)
		return rc;
	*ret = names;
	*ret_count = count;
	return 0;
}
