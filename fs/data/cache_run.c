/* The indices of all splits of a run: the files of a directory below data/NAME/cache. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/gpt/samples.h"
#include "formats/dataset/index/index_files.h"
#include "formats/dataset/index/index_key.h"
#include "fs/data/index_cache.h"
#include "fs/data/data_run.h"
#include "fs/view/build.h"

struct builder {
	struct mfs_dataset *d;
	struct mfs_data_view *view;
	struct mfs_index_run run; /* what the keys have in common */
	enum mfs_split split;	  /* at hand */
	struct mfs_error *err;
};

/* ---- the files of one index ---- */

/* A dataset may be in a blend twice. */
static bool is_there(const struct mfs_view *v, const char *name)
{
	for (uint32_t i = 0; i < v->count; i++)
		if (!strcmp(v->files[i].name, name))
			return true;
	return false;
}

/* The description and the arrays of the index of g, or of blend. Takes the key over. */
static int add_index(struct builder *b, struct mfs_index_key *key, struct mfs_gpt_dataset *g,
		     struct mfs_blend *blend)
{
	const char *kind = g ? "GPTDataset" : "BlendedDataset";
	const enum mfs_index_array end = g ? MFS_INDEX_GPT_ARRAYS : MFS_INDEX_ARRAYS;
	char description[MFS_INDEX_NAME_SIZE], name[MFS_INDEX_NAME_SIZE];
	struct mfs_view *v = &b->view->public;
	struct mfs_vfile *f;
	int rc = 0;

	mfs_index_name(key->digest, kind, b->split, "description.txt", &b->run.rules, description);
	if (is_there(v, description)) {
		mfs_index_key_release(key);
		return 0;
	}
	for (enum mfs_index_array a = g ? 0 : MFS_INDEX_GPT_ARRAYS; a < end && !rc; a++) {
		mfs_index_name(key->digest, kind, b->split, mfs_index_array_name(a), &b->run.rules,
			       name);
		rc = g ? mfs_index_file_gpt(g, a, &b->run.rules, &f, b->err)
		       : mfs_index_file_blend(blend, a, &f, b->err);
		if (!rc)
			rc = mfs_view_add(v, name, f, b->err);
	}
	if (!rc)
		return mfs_view_add_bytes(v, description, key->text, key->len, b->err);
	mfs_index_key_release(key);
	return rc;
}

static int add_gpt(struct builder *b, const struct mfs_index_member *member,
		   struct mfs_gpt_dataset *g)
{
	const struct mfs_rows *rows = mfs_gpt_dataset_rows(g);
	struct mfs_index_key key;
	int rc = mfs_index_key_gpt(&b->run, member, b->split, &key, b->err);

	if (rc)
		return rc;
	for (size_t i = 0; i < rows->set_count; i++)
		mfs_view_note_sources(&b->view->public, rows->sets[i]);
	return add_index(b, &key, g, NULL);
}

/* ---- all of them ---- */

/* A blend names its datasets by the words as they were given, a single dataset by the path at which
 * it was opened. */
static struct mfs_index_member member_of(const struct mfs_dataset *d,
					 const struct mfs_samples_member *part)
{
	return (struct mfs_index_member){d->rows ? d->path : part->prefix,
					 mfs_gpt_dataset_config(part->gpt)->samples};
}

static int add_blend(struct builder *b, struct mfs_samples *s)
{
	const uint32_t count = mfs_samples_members(s);
	struct mfs_index_member *members = calloc(count, sizeof(*members));
	uint64_t *lengths = calloc(count, sizeof(*lengths));
	struct mfs_index_weights weights = {.weights = mfs_samples_weights(s),
					    .size = mfs_samples_count(s)};
	struct mfs_index_key key;
	int rc = members && lengths ? 0 : mfs_fail_nomem(b->err);

	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_samples_member *part = mfs_samples_member(s, i);

		members[i] = member_of(b->d, part);
		lengths[i] = mfs_gpt_dataset_sizes(part->gpt)->samples;
	}
	if (!weights.weights)
		weights.lengths = lengths;
	if (!rc)
		rc = mfs_index_key_blend(&b->run, members, count, &weights, b->split, &key, b->err);
	if (!rc)
		rc = add_index(b, &key, NULL, mfs_samples_blend(s));
	free(members);
	free(lengths);
	return rc;
}

static int add_samples(struct builder *b, struct mfs_samples *s)
{
	int rc = mfs_samples_check(s, b->err);

	for (uint32_t i = 0; i < mfs_samples_members(s) && !rc; i++) {
		const struct mfs_samples_member *part = mfs_samples_member(s, i);
		const struct mfs_index_member member = member_of(b->d, part);

		rc = add_gpt(b, &member, part->gpt);
	}
	return rc || !mfs_samples_blend(s) ? rc : add_blend(b, s);
}

/* No run asks for one epoch of a blend by weights: Megatron asserts. */
static bool is_asked_for(const struct mfs_run *run, enum mfs_split split)
{
	const struct mfs_blend_args *args = run->blend ? run->blend : run->per_split[split];

	return args && (!args->weights || run->samples[split] != MFS_GPT_ONE_EPOCH);
}

static int add_split(struct builder *b, const struct mfs_run *run)
{
	struct mfs_samples **samples = &b->view->samples[b->split];
	int rc = is_asked_for(run, b->split)
			 ? mfs_dataset_samples(b->d, run, b->split, samples, b->err)
			 : -ENODATA;

	if (rc == -ENODATA)
		return 0;
	return rc ? rc : add_samples(b, *samples);
}

/* --split as Megatron was told it, with commas. In -o, where commas separate options, slashes
 * stand for them (split=99/1/0). */
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

static int add_splits(struct builder *b, const struct mfs_run *run)
{
	int rc = 0;

	for (b->split = 0; b->split < MFS_SPLITS && !rc; b->split++)
		rc = add_split(b, run);
	if (!rc && !b->view->public.count)
		rc = mfs_fail(b->err, -ENODATA, "no split of %s has a sample of %u tokens",
			      b->d->name, run->seq_length);
	return rc;
}

static int add_run(struct builder *b, const struct mfs_cache_spec *spec, struct mfs_run *run)
{
	char *split = NULL;
	int rc;

	run->seq_length = b->run.seq_length = spec->seq_length;
	run->seed = b->run.seed = spec->seed;
	b->run.rules = run->rules;
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

int mfs_cache_add_run(struct mfs_dataset *d, const struct mfs_cache_spec *spec,
		      struct mfs_data_view *v, struct mfs_error *err)
{
	struct builder b = {.d = d, .view = v, .err = err};
	struct mfs_access_fold access = {0};
	struct mfs_data_run r;
	int rc = mfs_dataset_run(d, &r, err);

	if (rc)
		return rc;
	if (d->options->tokenizer_id)
		rc = mfs_cache_tokenizer(d->options->tokenizer_id, &b.run.tokenizer, &access, err);
	mfs_view_note_read(&v->public, &access);
	if (!rc)
		rc = add_run(&b, spec, &r.run);
	json_decref(b.run.tokenizer);
	mfs_data_run_release(&r);
	return rc;
}
