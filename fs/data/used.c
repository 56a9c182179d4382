/* Finds options (-o) that have no effect on a mount, or cannot have the one that was meant. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>

#include "formats/dataset/gpt/gpt_rules.h"
#include "fs/data/index_cache.h"
#include "fs/data/data_i.h"
#include "fs/data/data_run.h"

static bool has_hf_datasets(const struct mfs_data *data)
{
	for (uint32_t i = 0; data && i < mfs_data_count(data); i++)
		if (mfs_data_at(data, i)->rows && !mfs_data_at(data, i)->indexed)
			return true;
	return false;
}

static int check_words(const struct mfs_data *data, const struct mfs_blend_args *words,
		       struct mfs_error *err)
{
	const struct mfs_rows *rows;
	int rc = 0;

	for (uint32_t i = 0; words && i < words->count && !rc; i++)
		rc = mfs_data_resolve((void *)data, words->prefixes[i], &rows, err);
	return rc;
}

static int check_run(const struct mfs_data *data, const struct mfs_run *run, struct mfs_error *err)
{
	int rc = check_words(data, run->blend, err);

	for (int i = 0; i < MFS_SPLITS && !rc; i++)
		rc = check_words(data, run->per_split[i], err);
	return rc;
}

static int check_blends(const struct mfs_data *data, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < mfs_data_count(data) && !rc; i++) {
		struct mfs_data_run run;

		if (mfs_data_at(data, i)->rows)
			continue;
		rc = mfs_dataset_run(mfs_data_at(data, i), &run, err);
		if (rc)
			return rc;
		rc = check_run(data, &run.run, err);
		mfs_data_run_release(&run);
	}
	return rc;
}

/* A directory is not read: its run may not have written its descriptions yet. */
static int check_tokenizer(const struct mfs_data_options *o, struct mfs_error *err)
{
	json_t *tokenizer;
	struct stat st;
	int rc;

	if (!stat(o->tokenizer_id, &st) && S_ISDIR(st.st_mode))
		return 0;
	rc = mfs_cache_tokenizer(o->tokenizer_id, &tokenizer, NULL, err);
	if (!rc)
		json_decref(tokenizer);
	return rc;
}

int mfs_data_check_options(const struct mfs_view_options *opt, const struct mfs_data *data,
			   struct mfs_error *err)
{
	const struct mfs_data_options *o = opt->data;
	int rc;

	if (!data || !o)
		return 0;
	if ((o->column || o->has_eod) && !has_hf_datasets(data))
		return mfs_fail(
			err, -EINVAL,
			"option '%s' has no effect: no dataset here is one of HuggingFace's",
			o->column ? "column" : "append_eod");
	rc = check_blends(data, err);
	return rc || !o->tokenizer_id ? rc : check_tokenizer(o, err);
}
