#include "formats/dataset/gpt/splits.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/random/numpy.h"

const char *mfs_split_name(enum mfs_split split)
{
	static const char *const names[] = {"train", "valid", "test"};

	return split < MFS_SPLITS ? names[split] : "?";
}

/* One run of digits and dots as Python's float() reads it. */
static int read_number(const char *text, size_t len, double *ret, struct mfs_error *err)
{
	char digits[400];
	char *end;

	if (len >= sizeof(digits))
		return mfs_fail(err, -EINVAL, "--split: a number of %zu digits is too long", len);
	memcpy(digits, text, len);
	digits[len] = '\0';
	*ret = strtod(digits, &end);
	if (*end || end == digits)
		return mfs_fail(err, -EINVAL, "--split: '%.60s' is not a number", digits);
	return 0;
}

static int read_parts(const char *text, double *part, struct mfs_error *err)
{
	static const char run[] = ".0123456789";
	unsigned count = 0;

	for (const char *p = text + strcspn(text, run); *p; p += strcspn(p, run)) {
		const size_t len = strspn(p, run);
		int rc;

		if (count == MFS_SPLITS)
			return mfs_fail(err, -EINVAL, "--split '%.60s' has more than three parts",
					text);
		rc = read_number(p, len, &part[count++], err);
		if (rc)
			return rc;
		p += len;
	}
	return 0;
}

int mfs_splits_parse(const char *text, const struct mfs_dataset_rules *rules,
		     struct mfs_splits *ret, struct mfs_error *err)
{
	struct mfs_splits s = {.before_core = rules->before_core};
	double edge = 0, sum;
	int rc = read_parts(text, s.part, err);

	if (rc)
		return rc;
	sum = mfs_numpy_sum(s.part, MFS_SPLITS);
	if (!(sum > 0) || !isfinite(sum))
		return mfs_fail(err, -EINVAL, "--split '%.60s' leaves every split empty", text);
	for (unsigned i = 0; i < MFS_SPLITS; i++) {
		s.part[i] /= sum;
		s.share[i].begin = edge;
		edge += s.part[i];
		s.share[i].end = edge;
	}
	*ret = s;
	return 0;
}

struct mfs_splits mfs_splits_whole(enum mfs_split split)
{
	struct mfs_splits s = {0};

	s.share[split].end = 1;
	s.part[split] = 1;
	return s;
}

/* Megatron-LM's megatron/data/dataset_utils.py: get_train_valid_test_split_. What the rounded parts
 * have too much or too little in sum is taken from all ends. */
static void range_before_core(const struct mfs_splits *s, enum mfs_split split, uint64_t sequences,
			      int64_t *ret_first, int64_t *ret_end)
{
	int64_t edge[MFS_SPLITS + 1] = {0}, over;

	for (unsigned i = 0; i < MFS_SPLITS; i++)
		edge[i + 1] = edge[i] + (int64_t)rint(s->part[i] * (double)sequences);
	over = edge[MFS_SPLITS] - (int64_t)sequences;
	for (unsigned i = 1; i <= MFS_SPLITS; i++)
		edge[i] -= over;
	*ret_first = edge[split];
	*ret_end = edge[split + 1];
}

int mfs_splits_range(const struct mfs_splits *s, enum mfs_split split, uint64_t sequences,
		     uint64_t *ret_first, uint64_t *ret_end, struct mfs_error *err)
{
	const struct mfs_split_share *share = &s->share[split];
	int64_t first, end;

	if (sequences > (uint64_t)1 << 53)
		return mfs_fail(err, -EINVAL, "%llu sequences cannot be split",
				(unsigned long long)sequences);
	/* Python's round() of a float is rint(): halves go to the even number. */
	first = (int64_t)rint(share->begin * (double)sequences);
	end = (int64_t)rint(share->end * (double)sequences);
	if (s->before_core)
		range_before_core(s, split, sequences, &first, &end);
	if (!(share->end > share->begin) || end <= first)
		return mfs_fail(err, -ENODATA, "the %s split has none of the %llu sequences",
				mfs_split_name(split), (unsigned long long)sequences);
	/* The parts' sum may be above 1 in its last bit; and before core a first part of nothing
	 * may have lost what was over, and begin at -1. */
	if (first < 0 || (uint64_t)end > sequences)
		return mfs_fail(err, -EINVAL,
				"the %s split goes from sequence %lld to %lld of %llu",
				mfs_split_name(split), (long long)first, (long long)end,
				(unsigned long long)sequences);
	*ret_first = (uint64_t)first;
	*ret_end = (uint64_t)end;
	return 0;
}
