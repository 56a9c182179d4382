/*
 * The samples of a training run as a directory that datasets.load_from_disk opens: row k is what
 * GPTDataset or BlendedDataset has as sample k, S + 1 tokens. Names of such views: fs/data/spec.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/dataset/gpt/rows_samples.h"
#include "fs/data/hf_directory.h"
#include "fs/data/data_i.h"
#include "fs/data/data_run.h"
#include "fs/data/spec.h"
#include "fs/view/build.h"

static int no_spec(const struct mfs_dataset *d, const char *name, struct mfs_error *err)
{
	return mfs_fail(err, -ENOENT,
			"data/%s/samples has no '%.80s': its names are "
			"{train|valid|test}-s{LENGTH}[-n{SAMPLES}][-seed{SEED}][-split{99,1,0}]",
			d->name, name);
}

/* Reads numbers of tokens, and no sample. */
static int new_samples(const struct mfs_dataset *d, const char *name,
		       struct mfs_samples_spec *ret_spec, struct mfs_samples **ret,
		       struct mfs_error *err)
{
	struct mfs_samples_spec spec;
	struct mfs_data_run r;
	int rc;

	if (!mfs_samples_spec_parse(name, &spec))
		return no_spec(d, name, err);
	rc = mfs_dataset_run(d, &r, err);
	if (rc)
		return rc;
	if (*spec.split && !r.run.blend)
		rc = mfs_fail(
			err, -EINVAL,
			"'%.80s': each split has datasets of its own, so a split cannot be given",
			name);
	if (*spec.split)
		r.run.split = spec.split;
	r.run.seq_length = spec.seq_length;
	r.run.seed = spec.seed;
	r.run.samples[spec.of] = spec.samples;
	if (!rc)
		rc = mfs_dataset_samples(d, &r.run, spec.of, ret, err);
	mfs_data_run_release(&r);
	if (!rc)
		*ret_spec = spec;
	return rc;
}

/* A name of the right form that cannot be opened is impossible (-EINVAL). */
static int check(const struct mfs_view_origin *origin, const char *name, struct mfs_error *err)
{
	struct mfs_dataset *d = origin->dataset;
	struct mfs_samples_spec spec;
	struct mfs_error why;
	struct mfs_samples *s;
	int rc;

	if (!mfs_samples_spec_parse(name, &spec))
		return no_spec(d, name, err);
	rc = new_samples(d, name, &spec, &s, &why);
	if (!rc)
		mfs_samples_free(s);
	if (rc && rc != -ENOMEM)
		rc = mfs_fail(err, -EINVAL, "data/%s/samples/%s: %s", d->name, name, why.msg);
	return rc == -ENOMEM ? mfs_fail_nomem(err) : rc;
}

/* ---- the view ---- */

/* What `datasets` calls a split. Only the validation split has another name. */
static const char *hf_name(enum mfs_split split)
{
	return split == MFS_VALID ? "validation" : mfs_split_name(split);
}

/* A file of a blend's words may have changed by the next mount. */
static void describe_file(const char *path, struct mfs_buf *ret)
{
	struct stat st;

	if (path && !stat(path, &st))
		mfs_buf_printf(ret, "%lld %lld.%09ld\n", (long long)st.st_size,
			       (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/* Everything that decides which samples are made of which files. */
static void describe(const struct mfs_dataset *d, const char *name, struct mfs_buf *ret)
{
	const struct mfs_data_options *o = d->options;
	const char *const given[] = {d->name,
				     name,
				     o->split,
				     o->megatron,
				     o->data_path,
				     o->data_args_path,
				     o->split_data_path[MFS_TRAIN],
				     o->split_data_path[MFS_VALID],
				     o->split_data_path[MFS_TEST]};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(given); i++)
		mfs_buf_printf(ret, "%s\n", given[i] ? given[i] : "");
	describe_file(o->data_args_path, ret);
	mfs_data_add_options(o, ret);
}

static int add_files(struct mfs_dataset *d, const char *name, enum mfs_split split,
		     struct mfs_data_view *v, struct mfs_error *err)
{
	struct mfs_buf given = {0};
	int rc = 0;

	describe(d, name, &given);
	if (given.failed)
		rc = mfs_fail_nomem(err);
	else
		rc = mfs_data_add_hf_dir(
			&v->public,
			&(struct mfs_data_hf_dir){.dir = "",
						  .split = hf_name(split),
						  .rows = v->rows,
						  .spec = given.data,
						  .arrow = {.batch = d->options->arrow_batch}},
			err);
	mfs_buf_release(&given);
	return rc;
}

static int build(struct mfs_dataset *d, const char *name, struct mfs_data_view *v,
		 struct mfs_error *err)
{
	struct mfs_samples_spec spec;
	int rc = new_samples(d, name, &spec, v->samples, err);

	if (!rc)
		rc = mfs_samples_check(*v->samples, err);
	if (!rc)
		rc = mfs_rows_samples(*v->samples, name, 0, &v->rows, err);
	return rc ? rc : add_files(d, name, spec.of, v, err);
}

static int open_view(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		     struct mfs_error *err)
{
	return mfs_data_open_view(s, spec, build, ret, err);
}

/* ---- examples ---- */

#define USUAL_LENGTH  4096
#define USUAL_SAMPLES 1000 /* where Megatron wants a number */
#define LEAST_LENGTH  16

/* The longest usual length of which the split has a sample, if as many are asked for. */
static bool find_length(const struct mfs_view_origin *origin, enum mfs_split split,
			uint64_t samples, char text[MFS_SPEC_SIZE])
{
	struct mfs_samples_spec s = {.of = split, .samples = samples, .seed = MFS_RUN_SEED};

	for (s.seq_length = USUAL_LENGTH; s.seq_length >= LEAST_LENGTH; s.seq_length /= 2)
		if (!check(origin, mfs_samples_spec_name(&s, text), NULL))
			return true;
	return false;
}

static int list(const struct mfs_view_origin *s, struct mfs_arena *arena, const char *const **ret,
		uint32_t *ret_count, struct mfs_error *err)
{
	const char **names = mfs_arena_array(arena, MFS_SPLITS, sizeof(*names));
	uint32_t count = 0;

	if (!names)
		return mfs_fail_nomem(err);
	for (int i = 0; i < MFS_SPLITS; i++) {
		char text[MFS_SPEC_SIZE];

		if (!find_length(s, (enum mfs_split)i, MFS_GPT_ONE_EPOCH, text) &&
		    !find_length(s, (enum mfs_split)i, USUAL_SAMPLES, text))
			continue;
		names[count] = mfs_arena_printf(arena, "%s", text);
		if (!names[count++])
			return mfs_fail_nomem(err);
	}
	*ret = names;
	*ret_count = count;
	return 0;
}

const struct mfs_view_kind mfs_view_kind_data_samples = {
	.name = "samples",
	.spec = "train-s4096",
	.help = "samples of a training run, in its order, as a dataset",
	.of = MFS_VIEW_OF_RUN,
	.takes_files = true,
	.check = check,
	.list = list,
	.open = open_view,
};
