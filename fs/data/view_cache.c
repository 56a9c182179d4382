/*
 * What Megatron takes as --data-cache-path: the indices of all splits of a run, under the names by
 * which it looks for them (index_key.h, index_files.h). Their sizes are known at once; an index is
 * made when it is read.
 */
#include <errno.h>
#include <stdlib.h>

#include "formats/dataset/gpt/samples.h"
#include "formats/dataset/index/index_key.h"
#include "fs/data/index_cache.h"
#include "fs/view/build.h"

/* Those of -o megatron=, else the newest. */
static int rules_of(const struct mfs_data_options *opt, struct mfs_dataset_rules *ret,
		    struct mfs_error *err)
{
	*ret = mfs_dataset_rules_default();
	return opt->megatron ? mfs_dataset_rules_of(opt->megatron, ret, err) : 0;
}

/* ---- names ---- */

/* Whether there can be any indices, by the mount's options alone. */
static int check_options(const struct mfs_dataset *d, struct mfs_dataset_rules *rules,
			 struct mfs_error *err)
{
	int rc = rules_of(d->options, rules, err);

	if (rc)
		return rc;
	if (rules->core < MFS_INDEX_FIRST_CORE)
		return mfs_fail(
			err, -EINVAL,
			"the names of cached indices of Megatron-LM before core 0.4 are not "
			"supported");
	if (!d->options->tokenizer_id && rules->core > MFS_INDEX_FIRST_CORE)
		return mfs_fail(err, -EINVAL,
				"Megatron finds cached indices by its tokenizer, too: -o "
				"tokenizer_id=FILE names a file with its unique_identifiers, or a "
				"directory with the descriptions of an earlier run");
	return 0;
}

static int check_path(const struct mfs_dataset *d, struct mfs_error *err)
{
	if (!d->rows || (d->indexed && d->path))
		return 0;
	return mfs_fail(err, -EINVAL,
			"Megatron finds cached indices by the path of the data, and %s is not a "
			"file on the disk: mount data/%s/megatron/%s of this mount, and take the "
			"cache from there",
			d->name, d->name, d->name);
}

static int possible(const struct mfs_view_origin *s, struct mfs_error *err)
{
	struct mfs_dataset_rules rules;
	int rc = check_options(s->dataset, &rules, err);

	return rc ? rc : check_path(s->dataset, err);
}

static int parse(const struct mfs_dataset *d, const char *name, struct mfs_cache_spec *spec,
		 struct mfs_error *err)
{
	const struct mfs_data_options *opt = d->options;
	struct mfs_splits splits;
	struct mfs_dataset_rules rules;
	int rc = mfs_cache_spec_parse(name, spec, err);

	if (!rc)
		rc = check_options(d, &rules, err);
	if (!rc)
		rc = check_path(d, err);
	if (rc)
		return rc;
	if (!spec->split)
		return 0;
	if (!d->rows && !opt->data_path && !opt->data_args_path)
		return mfs_fail(
			err, -EINVAL,
			"'%s': each split has datasets of its own, so a split cannot be given",
			name);
	return mfs_splits_parse(spec->split, &rules, &splits, err);
}

static int check(const struct mfs_view_origin *s, const char *name, struct mfs_error *err)
{
	struct mfs_cache_spec spec;

	return parse(s->dataset, name, &spec, err);
}

#define USUAL_LENGTH 4096
#define LEAST_LENGTH 16

/* Lists the longest usual length of which the dataset has a sample. */
static int list(const struct mfs_view_origin *s, struct mfs_arena *arena, const char *const **ret,
		uint32_t *ret_count, struct mfs_error *err)
{
	const struct mfs_dataset *d = s->dataset;
	const char **names = mfs_arena_array(arena, 1, sizeof(*names));
	unsigned length = USUAL_LENGTH;

	while (d->rows && d->rows->tokens <= length && length >= LEAST_LENGTH)
		length /= 2;
	if (!names || !(*names = mfs_arena_printf(arena, "s%u", length)))
		return mfs_fail_nomem(err);
	*ret = names;
	*ret_count = length >= LEAST_LENGTH && !check(s, *names, NULL);
	return 0;
}

/* ---- the view ---- */

static int build(struct mfs_dataset *d, const char *name, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	struct mfs_cache_spec spec;
	int rc = parse(d, name, &spec, err);

	return rc ? rc : mfs_cache_add_run(d, &spec, v, err);
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

const struct mfs_view_kind mfs_view_kind_data_cache = {
	.name = "cache",
	.spec = "s4096",
	.help = "what Megatron takes as --data-cache-path",
	.of = MFS_VIEW_OF_RUN,
	.by_option = true,
	.possible = possible,
	.check = check,
	.list = list,
	.open = open_view,
};
