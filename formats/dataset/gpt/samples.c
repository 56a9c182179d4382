#include "formats/dataset/gpt/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"

struct mfs_samples {
	struct mfs_samples_member *members;
	uint32_t member_count;
	struct mfs_blend *blend; /* NULL: members[0] alone */
	double *weights; /* normalised as often as Megatron does; of a blend that has a size */
	bool unsure;	 /* a dataset might have fewer samples than the blend takes */
	uint32_t length;
};

void mfs_samples_free(struct mfs_samples *s)
{
	if (!s)
		return;
	mfs_blend_free(s->blend);
	for (uint32_t i = 0; i < s->member_count; i++) {
		mfs_gpt_dataset_free(s->members[i].gpt);
		free(s->members[i].prefix);
	}
	free(s->members);
	free(s->weights);
	free(s);
}

uint64_t mfs_samples_count(const struct mfs_samples *s)
{
	return s->blend ? mfs_blend_size(s->blend)
			: mfs_gpt_dataset_sizes(s->members->gpt)->samples;
}

uint32_t mfs_samples_length(const struct mfs_samples *s)
{
	return s->length;
}

uint32_t mfs_samples_members(const struct mfs_samples *s)
{
	return s->member_count;
}

const struct mfs_samples_member *mfs_samples_member(const struct mfs_samples *s, uint32_t i)
{
	return &s->members[i];
}

struct mfs_blend *mfs_samples_blend(const struct mfs_samples *s)
{
	return s->blend;
}

const double *mfs_samples_weights(const struct mfs_samples *s)
{
	return s->weights;
}

/* ---- making ---- */

/* What all datasets of the split are made with. */
struct plan {
	const struct mfs_run *run;
	enum mfs_split split;
	struct mfs_splits shares;
	mfs_samples_resolve *resolve;
	void *arg;
};

static int new_gpt(const struct plan *p, struct mfs_samples_member *member, uint64_t samples,
		   struct mfs_error *err)
{
	const struct mfs_run *run = p->run;
	const struct mfs_gpt_config config = {
		.seq_length = run->seq_length,
		.seed = run->seed,
		.samples = samples,
		.no_extra_token = run->no_extra_token,
		.keep_last_partial = run->keep_last_partial && p->split == MFS_VALID,
		.separate_last_epoch = run->rules.separate_last_epoch,
	};
	uint64_t first, end;
	int rc = mfs_splits_range(&p->shares, p->split, member->rows->rows, &first, &end, err);

	if (!rc)
		rc = mfs_gpt_dataset_new(member->rows, first, end, &config, &member->gpt, err);
	return rc ? mfs_fail_in(err, "%s", member->prefix) : 0;
}

static int check_bytes(const struct plan *p, uint64_t bytes, struct mfs_error *err)
{
	const struct mfs_run *run = p->run;
	const uint64_t asked = run->samples[p->split];

	if (!run->most_bytes || asked == MFS_GPT_ONE_EPOCH || bytes <= run->most_bytes)
		return 0;
	return mfs_fail(err, -EINVAL,
			"%llu samples are too many: their indices would take more than %llu MiB of "
			"memory",
			(unsigned long long)asked, (unsigned long long)run->most_bytes >> 20);
}

/* samples: of each prefix. */
static int new_members(const struct plan *p, const struct mfs_blend_args *args,
		       const uint64_t *samples, struct mfs_samples *s, struct mfs_error *err)
{
	uint64_t bytes = 0;
	int rc = 0;

	s->members = calloc(args->count, sizeof(*s->members));
	if (!s->members)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < args->count && !rc; i++) {
		struct mfs_samples_member *member = &s->members[s->member_count++];

		member->prefix = strdup(args->prefixes[i]);
		rc = member->prefix ? p->resolve(p->arg, member->prefix, &member->rows, err)
				    : mfs_fail_nomem(err);
		if (!rc)
			rc = new_gpt(p, member, samples[i], err);
		if (!rc)
			bytes += mfs_gpt_dataset_bytes(member->gpt);
		if (!rc)
			rc = check_bytes(p, bytes, err);
	}
	return rc;
}

/*
 * weights sum to 1. A dataset is chosen where its error, weight * samples so far - its own, is the
 * largest, and all errors together are 0: it is never below 0 then, and no dataset has more than
 * weight * size + 1.
 */
static bool may_exceed(const struct mfs_samples *s, uint64_t size)
{
	for (uint32_t i = 0; i < s->member_count; i++) {
		const double most = s->weights[i] * (double)size * (1 + 1e-9) + 1;

		if (most > (double)mfs_gpt_dataset_sizes(s->members[i].gpt)->samples)
			return true;
	}
	return false;
}

/* By s->weights as they are before BlendedDataset normalises them. */
static int blend_by_weights(struct mfs_samples *s, uint64_t size, struct mfs_error *err)
{
	int rc = mfs_blend_new(s->weights, s->member_count, size, &s->blend, err);

	if (!rc)
		rc = mfs_blend_normalize(s->weights, s->member_count, err);
	if (!rc)
		s->unsure = may_exceed(s, size);
	return rc;
}

static int new_weighted(const struct plan *p, const struct mfs_blend_args *args, uint64_t *samples,
			struct mfs_samples *s, struct mfs_error *err)
{
	uint64_t size;
	int rc;

	if (p->run->samples[p->split] == MFS_GPT_ONE_EPOCH)
		return mfs_fail(err, -EINVAL,
				"a blend by weights needs a number of samples: it has no epochs in "
				"Megatron");
	memcpy(s->weights, args->weights, args->count * sizeof(*s->weights));
	rc = mfs_blend_normalize_first(s->weights, args->count, &p->run->rules, err);
	if (!rc)
		rc = mfs_blend_sizes(s->weights, args->count, p->run->samples[p->split],
				     &p->run->rules, samples, &size, err);
	if (!rc)
		rc = new_members(p, args, samples, s, err);
	return rc ? rc : blend_by_weights(s, size, err);
}

/* The exhaustive blend, whose lengths are not weights. */
static int blend_all(struct mfs_samples *s, const uint64_t *lengths, struct mfs_error *err)
{
	free(s->weights);
	s->weights = NULL;
	return mfs_blend_new_exhaustive(lengths, s->member_count, &s->blend, err);
}

static int new_unweighted(const struct plan *p, const struct mfs_blend_args *args,
			  uint64_t *samples, struct mfs_samples *s, struct mfs_error *err)
{
	const uint64_t wanted = p->run->samples[p->split];
	uint64_t total = 0;
	int rc;

	if (p->run->rules.before_core)
		return mfs_fail(err, -EINVAL,
				"Megatron-LM before core 0.4 has no blends without weights");
	for (uint32_t i = 0; i < args->count; i++)
		samples[i] = MFS_GPT_ONE_EPOCH;
	rc = new_members(p, args, samples, s, err);
	for (uint32_t i = 0; i < args->count && !rc; i++) {
		samples[i] = mfs_gpt_dataset_sizes(s->members[i].gpt)->samples;
		s->weights[i] = (double)samples[i];
		if (mfs_add_overflows(total, samples[i], &total))
			rc = mfs_fail(err, -EINVAL, "the datasets have too many samples");
	}
	if (rc)
		return rc;
	return wanted == MFS_GPT_ONE_EPOCH ? blend_all(s, samples, err)
					   : blend_by_weights(s, mfs_min_u64(wanted, total), err);
}

static int new_blend(const struct plan *p, const struct mfs_blend_args *args, struct mfs_samples *s,
		     struct mfs_error *err)
{
	uint64_t *samples = calloc(args->count, sizeof(*samples));
	int rc;

	s->weights = calloc(args->count, sizeof(*s->weights));
	if (!samples || !s->weights)
		rc = mfs_fail_nomem(err);
	else if (args->weights)
		rc = new_weighted(p, args, samples, s, err);
	else
		rc = new_unweighted(p, args, samples, s, err);
	free(samples);
	return rc;
}

/* Whether there is nothing to blend. */
static bool is_single(const struct mfs_run *run, const struct mfs_blend_args *args)
{
	return args->count == 1 && (!args->weights || (!run->blend && !run->rules.before_core));
}

static int fill(const struct plan *p, const struct mfs_blend_args *args, struct mfs_samples *s,
		struct mfs_error *err)
{
	const uint64_t wanted = p->run->samples[p->split];

	if (!is_single(p->run, args))
		return new_blend(p, args, s, err);
	if (args->weights && wanted == MFS_GPT_ONE_EPOCH)
		return mfs_fail(err, -EINVAL, "'%s' has a weight, but no number of samples",
				args->prefixes[0]);
	return new_members(p, args, &wanted, s, err);
}

int mfs_samples_new(const struct mfs_run *run, enum mfs_split split, mfs_samples_resolve *resolve,
		    void *arg, struct mfs_samples **ret, struct mfs_error *err)
{
	const struct mfs_blend_args *args = run->blend ? run->blend : run->per_split[split];
	struct plan p = {run, split, mfs_splits_whole(split), resolve, arg};
	struct mfs_samples *s;
	int rc = 0;

	if (!args)
		return mfs_fail(err, -ENODATA, "the %s split has no dataset",
				mfs_split_name(split));
	if (run->blend)
		rc = mfs_splits_parse(run->split ? run->split : MFS_SPLIT_DEFAULT, &run->rules,
				      &p.shares, err);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return mfs_fail_nomem(err);
	s->length = run->seq_length + !run->no_extra_token;
	rc = fill(&p, args, s, err);
	if (rc) {
		mfs_samples_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* ---- what is in them ---- */

int mfs_samples_check(struct mfs_samples *s, struct mfs_error *err)
{
	uint64_t *lengths;
	int rc;

	if (!s->unsure)
		return 0;
	lengths = calloc(s->member_count, sizeof(*lengths));
	if (!lengths)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < s->member_count; i++)
		lengths[i] = mfs_gpt_dataset_sizes(s->members[i].gpt)->samples;
	rc = mfs_blend_check(s->blend, lengths, err);
	free(lengths);
	return rc;
}

int mfs_samples_locate(struct mfs_samples *s, uint64_t first, uint64_t count, int16_t *ret_member,
		       int64_t *ret_sample, struct mfs_error *err)
{
	const uint64_t total = mfs_samples_count(s);

	if (s->blend)
		return mfs_blend_read(s->blend, first, count, ret_member, ret_sample, err);
	if (!mfs_range_ok(first, count, total))
		return mfs_fail(err, -EINVAL, "samples %llu+%llu are not among the %llu there are",
				(unsigned long long)first, (unsigned long long)count,
				(unsigned long long)total);
	for (uint64_t i = 0; i < count; i++) {
		ret_member[i] = 0;
		ret_sample[i] = (int64_t)(first + i);
	}
	return 0;
}

/* Those of the members whose indices are not there yet, each once; *ret_count of them. */
static void list_unbuilt(const struct mfs_samples *s, const int16_t *member, uint64_t count,
			 struct mfs_gpt_dataset **ret, size_t *ret_count)
{
	bool *seen = (bool *)(ret + s->member_count);
	size_t n = 0;

	for (uint64_t i = 0; i < count; i++) {
		const uint32_t k = member ? (uint32_t)member[i] : (uint32_t)i;

		if (seen[k] || mfs_gpt_dataset_built(s->members[k].gpt))
			continue;
		seen[k] = true;
		ret[n++] = s->members[k].gpt;
	}
	*ret_count = n;
}

static bool all_built(const struct mfs_samples *s, const int16_t *member, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		if (!mfs_gpt_dataset_built(s->members[member ? (uint32_t)member[i] : i].gpt))
			return false;
	return true;
}

int mfs_samples_build(struct mfs_samples *s, const int16_t *member, uint64_t count,
		      unsigned threads, struct mfs_error *err)
{
	struct mfs_gpt_dataset **list;
	size_t n;
	int rc;

	if (!member)
		count = s->member_count;
	if (all_built(s, member, count))
		return 0;
	list = calloc(s->member_count, sizeof(struct mfs_gpt_dataset *) + sizeof(bool));
	if (!list)
		return mfs_fail_nomem(err);
	list_unbuilt(s, member, count, list, &n);
	rc = mfs_gpt_dataset_build_all(list, n, mfs_threads_count(threads, MFS_THREADS_MAX), err);
	free(list);
	return rc;
}
