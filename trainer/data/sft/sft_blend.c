#include "trainer/data/sft/sft_blend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/dataset/gpt/blend.h"
#include "formats/dataset/gpt/blend_args.h"

#define MEMBER_SHIFT 48 /* of a place: the path's number, above the sample's */

struct mft_sft_blend {
	struct mft_sft **members;
	uint32_t count;
	struct mfs_blend *blend; /* NULL: there is one member */
	uint64_t total;
	uint64_t weights; /* a digest; 0: there is one member */
};

static uint64_t digest(uint64_t before, const void *bytes, size_t len)
{
	static const uint8_t key[16] = {0};
	const uint64_t parts[2] = {before, mfs_siphash(bytes, len, key)};

	return mfs_siphash(parts, sizeof(parts), key);
}

/* A split that no member has is passed over. One that some have would be another blend without the
 * rest. */
static int lacks_member(const struct mft_sft_blend *b, const char *path, struct mfs_error *err)
{
	if (!b->count)
		return -ENODATA;
	mfs_fail_in(err, "a blend needs rows of each of its paths: %s", path);
	return -EINVAL;
}

static int open_members(const struct mft_sft_config *config, const struct mfs_blend_args *paths,
			struct mft_sft_blend *b, struct mfs_error *err)
{
	struct mft_sft_config c = *config;
	const char *without = NULL; /* the first path that has no rows */
	int rc = 0;

	b->members = calloc(paths->count, sizeof(struct mft_sft *));
	if (!b->members)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < paths->count && !rc; i++) {
		c.path = paths->prefixes[i];
		rc = mft_sft_open(&c, &b->members[b->count], err);
		b->count += !rc;
		if (rc == -ENODATA) {
			without = without ? without : c.path;
			rc = 0;
		}
	}
	return !rc && without ? lacks_member(b, without, err) : rc;
}

/* How often each path comes, as Megatron rounds and normalises it. */
static int blend_by_weights(const struct mfs_run *run, const struct mfs_blend_args *paths,
			    uint64_t samples, struct mft_sft_blend *b, struct mfs_error *err)
{
	double *weights = calloc(paths->count, sizeof(*weights));
	uint64_t *build = calloc(paths->count, sizeof(*build));
	int rc = weights && build ? 0 : mfs_fail_nomem(err);

	if (!rc) {
		memcpy(weights, paths->weights, paths->count * sizeof(*weights));
		b->weights = digest(0, weights, paths->count * sizeof(*weights)) | 1;
		rc = mfs_blend_normalize_first(weights, paths->count, &run->rules, err);
	}
	if (!rc)
		rc = mfs_blend_sizes(weights, paths->count, samples, &run->rules, build, &b->total,
				     err);
	if (!rc)
		rc = mfs_blend_new(weights, paths->count, b->total, &b->blend, err);
	free(weights);
	free(build);
	return rc;
}

/* Without weights Megatron blends by lengths, and a path of conversations has none then. */
static int check_paths(const struct mfs_run *run, const struct mfs_blend_args *paths,
		       enum mfs_split split, struct mfs_error *err)
{
	if (!paths || !paths->count)
		return mfs_fail(err, -ENODATA, "the %s split has no data", mfs_split_name(split));
	if (paths->count > 1 && !paths->weights)
		return mfs_fail(err, -ENOTSUP,
				"--sft takes one path of a split, or several with weights, as 0.3 "
				"A 0.7 B: found %u paths without",
				paths->count);
	if (paths->weights && run->samples[split] == MFS_GPT_ONE_EPOCH && paths->count > 1)
		return mfs_fail(err, -EINVAL,
				"a blend by weights needs a number of samples: it has no epochs in "
				"Megatron");
	return 0;
}

static int fill(const struct mft_sft_config *config, const struct mfs_run *run,
		struct mft_sft_blend *b, struct mfs_error *err)
{
	const struct mfs_blend_args *paths =
		run->blend ? run->blend : run->per_split[config->split];
	const uint64_t samples = run->samples[config->split];
	int rc = check_paths(run, paths, config->split, err);

	if (!rc)
		rc = open_members(config, paths, b, err);
	if (rc || paths->count > 1)
		return rc ? rc : blend_by_weights(run, paths, samples, b, err);
	b->total = samples == MFS_GPT_ONE_EPOCH ? mft_sft_count(b->members[0]) : samples;
	return 0;
}

int mft_sft_blend_open(const struct mft_sft_config *config, const struct mfs_run *run,
		       struct mft_sft_blend **ret, struct mfs_error *err)
{
	struct mft_sft_blend *b = calloc(1, sizeof(*b));
	int rc = b ? fill(config, run, b, err) : mfs_fail_nomem(err);

	if (rc)
		mft_sft_blend_free(b);
	else
		*ret = b;
	return rc;
}

void mft_sft_blend_free(struct mft_sft_blend *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->count; i++)
		mft_sft_free(b->members[i]);
	free(b->members);
	mfs_blend_free(b->blend);
	free(b);
}

uint64_t mft_sft_blend_total(const struct mft_sft_blend *b)
{
	return b->total;
}

uint64_t mft_sft_blend_count(const struct mft_sft_blend *b)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < b->count; i++)
		count += mft_sft_count(b->members[i]);
	return count;
}

uint64_t mft_sft_blend_order(const struct mft_sft_blend *b)
{
	uint64_t order = b->weights;

	if (!b->blend)
		return mft_sft_order(b->members[0]);
	for (uint32_t i = 0; i < b->count; i++) {
		const uint64_t parts[2] = {mft_sft_count(b->members[i]),
					   mft_sft_order(b->members[i])};

		order = digest(order, parts, sizeof(parts));
	}
	return order >> 1 | 1;
}

int mft_sft_blend_find(struct mft_sft_blend *b, uint64_t sample, uint64_t *ret,
		       struct mfs_error *err)
{
	int16_t member;
	int64_t number;
	int rc;

	*ret = sample;
	if (!b->blend)
		return 0;
	rc = mfs_blend_read(b->blend, sample, 1, &member, &number, err);
	if (!rc)
		*ret = (uint64_t)member << MEMBER_SHIFT | (uint64_t)number;
	return rc;
}

uint64_t mft_sft_blend_read(struct mft_sft_blend *b, uint64_t place, int32_t pad,
			    const struct mft_sft_sample *to)
{
	const uint64_t sample = place & ((UINT64_C(1) << MEMBER_SHIFT) - 1);

	return b->blend ? mft_sft_read(b->members[place >> MEMBER_SHIFT], sample, pad, to)
			: mft_sft_read(b->members[0], place, pad, to);
}
