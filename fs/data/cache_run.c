/* The indices of all splits of a run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/samples.h"
#include "fs/data/cache.h"
#include "fs/data/run.h"
#include "fs/view/build.h"

/* A blend names its datasets to the letter of the words; one by itself lies where it was opened. */
static struct mfs_index_member member_of(const struct mfs_dataset *d,
					 const struct mfs_samples_part *part)
{
	return (struct mfs_index_member){d->rows ? d->path : part->prefix,
					 mfs_gpt_dataset_config(part->gpt)->samples};
}

static int add_blend_of(struct mfs_cache_builder *b, struct mfs_samples *s, enum mfs_split split)
{
	const uint32_t count = mfs_samples_parts(s);
	struct mfs_index_member *members = calloc(count, sizeof(*members));
	uint64_t *lengths = calloc(count, sizeof(*lengths));
	struct mfs_index_weights weights = {.weights = mfs_samples_weights(s),
					    .size = mfs_samples_count(s)};
	int rc = members && lengths ? 0 : mfs_fail_nomem(b->err);

	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_samples_part *part = mfs_samples_part(s, i);

		members[i] = member_of(b->d, part);
		lengths[i] = mfs_gpt_dataset_sizes(part->gpt)->samples;
	}
	if (!weights.weights)
		weights.lengths = lengths;
	if (!rc)
		rc = mfs_cache_add_blend(b, members, count, &weights, split, mfs_samples_blend(s));
	free(members);
	free(lengths);
	return rc;
}

static int add_samples(struct mfs_cache_builder *b, struct mfs_samples *s, enum mfs_split split)
{
	int rc = mfs_samples_check(s, b->err);

	for (uint32_t i = 0; i < mfs_samples_parts(s) && !rc; i++) {
		const struct mfs_samples_part *part = mfs_samples_part(s, i);
		const struct mfs_index_member member = member_of(b->d, part);

		rc = mfs_cache_add_gpt(b, &member, split, part->gpt);
	}
	return rc || !mfs_samples_blend(s) ? rc : add_blend_of(b, s, split);
}

/* One epoch of a blend by weights is what no run asks for: Megatron asserts. */
static bool is_asked_for(const struct mfs_run *run, enum mfs_split split)
{
	const struct mfs_blend_args *args = run->blend ? run->blend : run->per_split[split];

	return args && (!args->weights || run->samples[split] != MFS_GPT_ONE_EPOCH);
}

static int add_split(struct mfs_cache_builder *b, const struct mfs_run *run, enum mfs_split split)
{
	int rc = is_asked_for(run, split)
			 ? mfs_dataset_samples(b->d, run, split, &b->view->samples[split], b->err)
			 : -ENODATA;

	if (rc == -ENODATA)
		return 0;
	return rc ? rc : add_samples(b, b->view->samples[split], split);
}

/* --split as Megatron was told: commas, which separate options in -o and are slashes there (split=99/1/0). */
static char *split_text(const struct mfs_cache_spec *spec, const struct mfs_run *run)
{
	char *text = strdup(spec->split	 ? spec->split
			    : run->split ? run->split
					 : MFS_SPLIT_DEFAULT);

	for (char *p = text; p && *p; p++)
		if (*p == '/')
			*p = ',';
	return text;
}

static int add_splits(struct mfs_cache_builder *b, const struct mfs_run *run)
{
	int rc = 0;

	for (int i = 0; i < MFS_SPLITS && !rc; i++)
		rc = add_split(b, run, (enum mfs_split)i);
	if (!rc && !b->view->public.count)
		rc = mfs_fail(b->err, -ENODATA, "no split of %s has a sample of %u tokens",
			      b->d->name, run->seq_length);
	return rc;
}

static int add_run(struct mfs_cache_builder *b, const struct mfs_cache_spec *spec,
		   struct mfs_run *run)
{
	char *split = NULL;
	int rc;

	run->seq_length = b->run.seq_length = spec->seq_length;
	run->seed = b->run.seed = spec->seed;
	memcpy(run->samples, spec->samples, sizeof(run->samples));
	if (run->blend) {
		split = split_text(spec, run);
		if (!split)
			return mfs_fail_nomem(b->err);
		run->split = b->run.split = split;
	}
	rc = add_splits(b, run);
	free(split);
	return rc;
}

int mfs_cache_add_run(struct mfs_cache_builder *b, const char *name)
{
	struct mfs_access_fold access = {0};
	struct mfs_cache_spec spec;
	struct mfs_data_run r;
	int rc = mfs_cache_spec_parse(name, &spec, b->err);

	if (!rc)
		rc = mfs_dataset_run(b->d, &r, b->err);
	if (rc)
		return rc;
	if (b->d->options->tokenizer_id)
		rc = mfs_cache_tokenizer(b->d->options->tokenizer_id, &b->run.rules,
					 &b->run.tokenizer, &access, b->err);
	mfs_view_note_read(&b->view->public, &access);
	if (!rc)
		rc = add_run(b, &spec, &r.run);
	json_decref(b->run.tokenizer);
	mfs_data_run_release(&r);
	return rc;
}
