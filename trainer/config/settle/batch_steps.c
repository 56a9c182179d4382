#include "trainer/config/settle/batch_steps.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST		9e18 /* tokens */
#define MOST_INCREMENTS (1 << 13)

/* "250B" at *at, up to end. */
static bool read_number(const char **at, char end, uint64_t *ret)
{
	static const char letters[] = "KMBT";
	const char *letter;
	char *rest;
	double number;

	if (!isdigit((unsigned char)**at) && **at != '.')
		return false;
	number = strtod(*at, &rest);
	letter = *rest ? strchr(letters, toupper((unsigned char)*rest)) : NULL;
	for (const char *l = letters; letter && l <= letter; l++)
		number *= 1000;
	rest += letter != NULL;
	if (*rest != end && !(end == ' ' && (!*rest || *rest == ',' || isspace(*rest))))
		return false;
	if (!(number >= 0 && number < LARGEST))
		return false;
	*ret = (uint64_t)number;
	*at = rest;
	return true;
}

static int by_threshold(const void *a, const void *b)
{
	const struct mft_batch_step *x = a, *y = b;

	return (x->threshold > y->threshold) - (x->threshold < y->threshold);
}

static int check(const struct mft_batch_step *steps, uint32_t count, const char *text,
		 struct mfs_error *err)
{
	if (!count || steps[0].threshold)
		return mfs_fail(err, -EINVAL,
				"--step-batch-size-schedule: expected a first threshold of 0, "
				"found '%.80s'",
				text);
	for (uint32_t i = 1; i < count; i++)
		if (steps[i].threshold == steps[i - 1].threshold)
			return mfs_fail(err, -EINVAL,
					"--step-batch-size-schedule: expected thresholds that "
					"differ, found %llu samples twice",
					(unsigned long long)steps[i].threshold);
	return 0;
}

int mft_batch_steps_parse(const char *text, int64_t seq_length, struct mfs_arena *arena,
			  const struct mft_batch_step **ret, uint32_t *ret_count,
			  struct mfs_error *err)
{
	struct mft_batch_step *steps;
	uint32_t count = 0;
	int r;

	*ret = NULL;
	*ret_count = 0;
	if (!text)
		return 0;
	steps = mfs_arena_array(arena, strlen(text) / 2 + 1, sizeof(*steps));
	if (!steps)
		return mfs_fail_nomem(err);
	for (const char *at = text;; count++) {
		at += strspn(at, " \t\r\n,");
		if (!*at)
			break;
		if (!read_number(&at, ':', &steps[count].threshold) || *at++ != ':' ||
		    !read_number(&at, ' ', &steps[count].batch) || !steps[count].batch)
			return mfs_fail(err, -EINVAL,
					"--step-batch-size-schedule: expected THRESHOLD:BATCH, as "
					"\"0:768 250B:1536\", found '%.80s'",
					text);
		steps[count].threshold /= (uint64_t)seq_length;
	}
	qsort(steps, count, sizeof(*steps), by_threshold);
	r = check(steps, count, text, err);
	if (!r) {
		*ret = steps;
		*ret_count = count;
	}
	return r;
}

/* ---- --rampup-batch-size ---- */

static int check_ramp(const struct mft_batch_ramp *r, struct mfs_error *err)
{
	if (r->start < 1 || r->increment < 1 || r->samples < 1)
		return mfs_fail(err, -EINVAL,
				"--rampup-batch-size: expected a first batch, an increment and "
				"samples, all positive, found %lld %lld %lld",
				(long long)r->start, (long long)r->increment,
				(long long)r->samples);
	if (r->start > r->end || (r->end - r->start) % r->increment)
		return mfs_fail(err, -EINVAL,
				"--rampup-batch-size: expected increments of %lld that lead from "
				"%lld to --global-batch-size %lld",
				(long long)r->increment, (long long)r->start, (long long)r->end);
	if ((r->end - r->start) / r->increment > MOST_INCREMENTS)
		return mfs_fail(err, -EINVAL, "--rampup-batch-size: expected at most %d increments",
				MOST_INCREMENTS);
	return 0;
}

/* The first sample of increment k, as Python's int(consumed / each) counts them. After the ramp
 * there is nothing to count. */
static uint64_t begin_of(const struct mft_batch_ramp *r, uint64_t k, double each)
{
	uint64_t at = (uint64_t)((double)k * each);

	while (at && (uint64_t)((double)(at - 1) / each) >= k)
		at--;
	while (at <= (uint64_t)r->samples && (uint64_t)((double)at / each) < k)
		at++;
	return at;
}

int mft_batch_ramp_steps(const struct mft_batch_ramp *ramp, struct mfs_arena *arena,
			 const struct mft_batch_step **ret, uint32_t *ret_count,
			 struct mfs_error *err)
{
	struct mft_batch_step *steps;
	uint64_t count;
	double each;
	int r = check_ramp(ramp, err);

	if (r)
		return r;
	count = (uint64_t)(ramp->end - ramp->start) / (uint64_t)ramp->increment;
	each = count ? (double)ramp->samples / (double)count : 1;
	steps = mfs_arena_array(arena, count + 1, sizeof(*steps));
	if (!steps)
		return mfs_fail_nomem(err);
	for (uint64_t k = 0; k <= count; k++)
		steps[k] = (struct mft_batch_step){
			.threshold = k ? begin_of(ramp, k, each) : 0,
			.batch = (uint64_t)ramp->start + k * (uint64_t)ramp->increment,
		};
	*ret = steps;
	*ret_count = (uint32_t)count + 1;
	return 0;
}
